"""The tree keeps ZooKeeper's rules."""

from __future__ import annotations

import pytest

from penstock.metadata.store import (
    BadPathError,
    BadVersionError,
    Change,
    Check,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Read,
    ReadKind,
    Refusal,
    Result,
    SetData,
    Stat,
    Transaction,
)
from penstock.metadata.tree import Fired, Tree


def do(tree: Tree, *operations: Operation, session: int = 1) -> tuple[tuple[Result, ...], list[Fired]]:
    outcome = tree.commit(Transaction(operations=operations), session, 100)
    assert not isinstance(outcome, Refusal), outcome
    return outcome[0], tree.fire(outcome[1])


def refuse(tree: Tree, *operations: Operation) -> Refusal:
    before = list(tree.walk())
    outcome = tree.commit(Transaction(operations=operations), 1, 100)
    assert isinstance(outcome, Refusal)
    assert list(tree.walk()) == before, "a refusal changes nothing"
    return outcome


def read(tree: Tree, path: str, kind: ReadKind = ReadKind.DATA, *, watch: bool = False, session: int = 1) -> Result:
    return tree.read(Read(kind=kind, path=path, watch=watch), session)


def test_versions_rise_with_each_write_and_are_checked() -> None:
    tree = Tree()
    do(tree, Create(path="/a", data=b"0"))
    (stat,), _ = do(tree, SetData(path="/a", data=b"1", version=0))
    assert isinstance(stat, Stat)
    assert stat.version == 1
    assert isinstance(refuse(tree, SetData(path="/a", data=b"2", version=0)).error, BadVersionError)
    assert isinstance(refuse(tree, Delete(path="/a", version=0)).error, BadVersionError)
    do(tree, Check(path="/a", version=1), Delete(path="/a", version=1))
    assert read(tree, "/a", ReadKind.EXISTS) is None


def test_a_transaction_refused_at_its_last_operation_changes_nothing() -> None:
    tree = Tree()
    do(tree, Create(path="/a"), Create(path="/a/b", data=b"x"))
    refusal = refuse(
        tree,
        SetData(path="/a/b", data=b"y"),
        Create(path="/a/c"),
        Delete(path="/a/b"),
        Create(path="/d"),
        Check(path="/a", version=9),
    )
    assert refusal.index == 4
    node = read(tree, "/a/b")
    assert isinstance(node, Node)
    assert (node.data, node.stat.version) == (b"x", 0)


def test_what_may_not_be() -> None:
    tree = Tree()
    do(tree, Create(path="/a"), Create(path="/a/b"), Create(path="/e", ephemeral=True))
    assert isinstance(refuse(tree, Create(path="/x/y")).error, NoNodeError)
    assert isinstance(refuse(tree, Create(path="/a")).error, NodeExistsError)
    assert isinstance(refuse(tree, Delete(path="/a")).error, NotEmptyError)
    assert isinstance(refuse(tree, Create(path="/e/f")).error, NoChildrenForEphemeralsError)
    assert isinstance(refuse(tree, SetData(path="/x", data=b"")).error, NoNodeError)
    for path in ("", "a", "/a/", "//", "/a/../b", "/a/./b", "/\x00", "/a//b"):
        assert isinstance(refuse(tree, Create(path=path)).error, BadPathError), path
    with pytest.raises(NoNodeError):
        read(tree, "/x")


def test_sequential_names_never_repeat() -> None:
    tree = Tree()
    do(tree, Create(path="/q"))
    (first,), _ = do(tree, Create(path="/q/n-", sequential=True))
    assert first == "/q/n-0000000000"
    do(tree, Delete(path=first))
    (second,), _ = do(tree, Create(path="/q/n-", sequential=True))
    assert second == "/q/n-0000000001", "only children made count, as in ZooKeeper"


def test_a_watch_fires_once_for_the_session_that_set_it() -> None:
    tree = Tree()
    do(tree, Create(path="/a"))
    read(tree, "/a", watch=True, session=7)
    read(tree, "/a", ReadKind.CHILDREN, watch=True, session=8)
    read(tree, "/b", ReadKind.EXISTS, watch=True, session=7)
    assert do(tree, SetData(path="/a", data=b"1"))[1] == [Fired(7, "/a", Change.DATA)]
    assert do(tree, SetData(path="/a", data=b"2"))[1] == []
    assert do(tree, Create(path="/a/c"))[1] == [Fired(8, "/a", Change.CHILDREN)]
    assert do(tree, Create(path="/b"))[1] == [Fired(7, "/b", Change.CREATED)]


def test_a_deleted_node_tells_a_session_once_though_it_watched_data_and_children() -> None:
    tree = Tree()
    do(tree, Create(path="/a"))
    read(tree, "/a", watch=True)
    read(tree, "/a", ReadKind.CHILDREN, watch=True)
    assert do(tree, Delete(path="/a"))[1] == [Fired(1, "/a", Change.DELETED)]


def test_watches_of_an_ended_session_are_gone() -> None:
    tree = Tree()
    do(tree, Create(path="/a"))
    read(tree, "/a", watch=True, session=7)
    tree.drop_watches(7)
    assert do(tree, SetData(path="/a", data=b"1"))[1] == []


def test_ephemerals_belong_to_their_session() -> None:
    tree = Tree()
    do(tree, Create(path="/a", ephemeral=True), session=3)
    do(tree, Create(path="/b", ephemeral=True), session=4)
    assert tree.ephemerals(3) == ("/a",)
    assert tree.ephemerals(None) == ("/a", "/b")
