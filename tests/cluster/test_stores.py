"""One behaviour suite over both stores, the embedded one and a real ZooKeeper; then random operations, answer by answer."""

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.stores import AskedEmbedded, AskedStore, AskedZooKeeper

from penstock.app.zookeeper_server import ZooKeeperServer
from penstock.metadata.store import (
    Answered,
    BadPathError,
    BadVersionError,
    Change,
    Check,
    Committed,
    Create,
    Delete,
    Event,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Read,
    ReadKind,
    Refused,
    Result,
    SetData,
    Stat,
    StoreError,
    Transaction,
    Watched,
)


class Tree:
    """A store, and a place in it that nobody else uses."""

    def __init__(self, store: AskedStore) -> None:
        self._store = store
        self.root = f"/{uuid.uuid4().hex}"
        self.commit(Create(path=self.root))

    def ask(self, *operations: Operation) -> list[Event]:
        return self._store.ask(Transaction(operations=operations))

    def commit(self, *operations: Operation) -> tuple[Result, ...]:
        event = self.ask(*operations)[-1]
        assert isinstance(event, Committed), event
        return event.results

    def refusal(self, *operations: Operation) -> tuple[int, type[StoreError]]:
        event = self.ask(*operations)[-1]
        assert isinstance(event, Refused), event
        return event.index, type(event.error)

    def read(self, kind: ReadKind, name: str = "", *, watch: bool = False) -> Result:
        event = self._store.ask(Read(kind=kind, path=self.at(name), watch=watch))[-1]
        assert isinstance(event, Answered), event
        return event.result

    def read_refusal(self, kind: ReadKind, path: str) -> type[StoreError]:
        event = self._store.ask(Read(kind=kind, path=path))[-1]
        assert isinstance(event, Refused), event
        return type(event.error)

    def stat(self, name: str = "") -> Stat:
        found = self.read(ReadKind.EXISTS, name)
        assert isinstance(found, Stat)
        return found

    def watches_of(self, *operations: Operation) -> list[tuple[str, Change]]:
        *before, last = self.ask(*operations)
        assert isinstance(last, Committed), last
        told = [event for event in before if isinstance(event, Watched)]
        return [(event.path.removeprefix(self.root), event.change) for event in told]

    def at(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


@pytest.fixture(params=["embedded", "zookeeper", "zookeeper below a path"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    store: AskedStore
    if request.param == "embedded":
        store = AskedEmbedded(tmp_path / "store")
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        place = f"/clusters/{uuid.uuid4().hex}" if request.param.endswith("path") else ""
        store = AskedZooKeeper(f"{server.connect}{place}")
    yield Tree(store)
    store.close()


def test_what_was_made_is_read_back(tree: Tree) -> None:
    assert tree.commit(Create(path=tree.at("a"), data=b"one")) == (tree.at("a"),)
    found = tree.read(ReadKind.DATA, "a")
    assert isinstance(found, Node)
    assert found.data == b"one"
    assert (found.stat.version, found.stat.data_length, found.stat.ephemeral_owner) == (0, 3, 0)


def test_a_write_raises_the_version_and_checks_it(tree: Tree) -> None:
    tree.commit(Create(path=tree.at("a")))
    (stat,) = tree.commit(SetData(path=tree.at("a"), data=b"x", version=0))
    assert isinstance(stat, Stat)
    assert stat.version == 1
    assert tree.refusal(SetData(path=tree.at("a"), data=b"y", version=0)) == (0, BadVersionError)
    assert tree.refusal(Delete(path=tree.at("a"), version=0)) == (0, BadVersionError)
    assert tree.refusal(Check(path=tree.at("a"), version=7)) == (0, BadVersionError)
    tree.commit(SetData(path=tree.at("a"), data=b"y"), Check(path=tree.at("a"), version=2))


def test_a_transaction_happens_as_a_whole_or_not_at_all(tree: Tree) -> None:
    tree.commit(Create(path=tree.at("a")))
    refused = tree.refusal(
        Create(path=tree.at("b")), SetData(path=tree.at("a"), data=b"x"), Create(path=tree.at("a")), Delete(path="/x/y")
    )
    assert refused == (2, NodeExistsError)
    assert tree.read(ReadKind.CHILDREN) == ("a",)
    assert tree.stat("a").version == 0


def test_a_transaction_sees_what_it_did_before(tree: Tree) -> None:
    tree.commit(Create(path=tree.at("a")), Create(path=tree.at("a/b")), Delete(path=tree.at("a/b")))
    assert tree.read(ReadKind.CHILDREN, "a") == ()


def test_what_is_not_there_is_refused(tree: Tree) -> None:
    assert tree.refusal(Create(path=tree.at("no/child"))) == (0, NoNodeError)
    assert tree.refusal(SetData(path=tree.at("no"), data=b"")) == (0, NoNodeError)
    assert tree.refusal(Delete(path=tree.at("no"))) == (0, NoNodeError)
    assert tree.refusal(Check(path=tree.at("no"), version=0)) == (0, NoNodeError)
    assert tree.read(ReadKind.EXISTS, "no") is None
    assert tree.read_refusal(ReadKind.DATA, tree.at("no")) is NoNodeError
    assert tree.read_refusal(ReadKind.CHILDREN, tree.at("no")) is NoNodeError


def test_a_node_with_children_stays(tree: Tree) -> None:
    tree.commit(Create(path=tree.at("a")), Create(path=tree.at("a/b")))
    assert tree.refusal(Delete(path=tree.at("a"))) == (0, NotEmptyError)


def test_an_ephemeral_node_has_an_owner_and_no_children(tree: Tree) -> None:
    tree.commit(Create(path=tree.at("a"), ephemeral=True))
    assert tree.stat("a").ephemeral_owner != 0
    assert tree.refusal(Create(path=tree.at("a/b"))) == (0, NoChildrenForEphemeralsError)


def test_sequential_names_count_what_was_made(tree: Tree) -> None:
    tree.commit(Create(path=tree.at("other")), Delete(path=tree.at("other")))
    made = [tree.commit(Create(path=tree.at("n-"), sequential=True))[0] for _ in range(2)]
    assert made == [tree.at("n-0000000001"), tree.at("n-0000000002")]
    tree.commit(Delete(path=tree.at("n-0000000001")))
    assert tree.commit(Create(path=tree.at("n-"), sequential=True)) == (tree.at("n-0000000003"),)
    assert tree.stat().children_version == 6


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/a/./b", "/a/../b", "/a\x00"])
def test_what_is_no_path_is_refused(tree: Tree, path: str) -> None:
    assert tree.refusal(Create(path=tree.at("good")), Create(path=path)) == (1, BadPathError)
    assert tree.read_refusal(ReadKind.DATA, path) is BadPathError
    assert tree.read(ReadKind.CHILDREN) == ()


def test_a_watch_tells_once_and_before_the_answer(tree: Tree) -> None:
    tree.read(ReadKind.EXISTS, "a", watch=True)
    tree.read(ReadKind.CHILDREN, watch=True)
    assert sorted(tree.watches_of(Create(path=tree.at("a"))), key=str) == [
        ("", Change.CHILDREN),
        ("/a", Change.CREATED),
    ]
    assert tree.watches_of(SetData(path=tree.at("a"), data=b"x")) == []
    tree.read(ReadKind.DATA, "a", watch=True)
    assert tree.watches_of(SetData(path=tree.at("a"), data=b"x")) == [("/a", Change.DATA)]
    tree.read(ReadKind.DATA, "a", watch=True)
    tree.read(ReadKind.CHILDREN, "a", watch=True)
    assert tree.watches_of(Delete(path=tree.at("a"))) == [("/a", Change.DELETED)]


def test_a_refused_read_sets_no_watch(tree: Tree) -> None:
    assert tree.read_refusal(ReadKind.DATA, tree.at("a")) is NoNodeError
    assert tree.watches_of(Create(path=tree.at("a"))) == []


_NAMES = ("a", "b", "a/c", "a/c/d", "b/e")


def _operation(draw: random.Random, root: str) -> Operation:
    path = f"{root}/{draw.choice(_NAMES)}"
    version = draw.choice((-1, -1, -1, 0, 1, 2))
    kinds: tuple[Callable[[], Operation], ...] = (
        lambda: Create(path=path, data=draw.randbytes(draw.randrange(5)), ephemeral=draw.random() < 0.2),
        lambda: Create(path=path, sequential=True, ephemeral=draw.random() < 0.2),
        lambda: SetData(path=path, data=draw.randbytes(3), version=version),
        lambda: Delete(path=path, version=version),
        lambda: Check(path=path, version=max(version, 0)),
    )
    return draw.choices(kinds, weights=(5, 1, 4, 4, 1))[0]()


def _request(draw: random.Random, root: str) -> Transaction | Read:
    if draw.random() < 0.4:
        path = f"{root}/{draw.choice(_NAMES)}" if draw.random() < 0.9 else root
        return Read(kind=draw.choice(tuple(ReadKind)), path=path, watch=draw.random() < 0.6)
    return Transaction(operations=tuple(_operation(draw, root) for _ in range(draw.choice((1, 1, 2, 3, 5)))))


def _plain(value: object) -> object:
    """An answer without what differs by nature: absolute times and transaction numbers, the owner's number."""
    if isinstance(value, Stat):
        created, modified, children = value.created_zxid, value.modified_zxid, value.children_zxid
        order = (created < modified, created < children, (modified > children) - (modified < children))
        counters = (value.version, value.children_version, value.data_length, value.children)
        return (*counters, order, value.ephemeral_owner != 0)
    if isinstance(value, Node):
        return value.data, _plain(value.stat)
    return value


def _told(events: list[Event]) -> list[object]:
    told: list[object] = []
    for event in events:
        if isinstance(event, Committed):
            told.append(("committed", tuple(map(_plain, event.results))))
        elif isinstance(event, Answered):
            told.append(("answered", _plain(event.result)))
        elif isinstance(event, Refused):
            told.append(("refused", event.index, type(event.error)))
        else:
            told.append(event)
    # One transaction's watches: ZooKeeper has no order between a node's own and its parent's.
    return sorted(told[:-1], key=str) + told[-1:]


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_give_the_same_answers(
    zookeeper: ZooKeeperServer, tmp_path: Path, seed: int, full_counts: bool
) -> None:
    embedded, real = AskedEmbedded(tmp_path / "store"), AskedZooKeeper(zookeeper.connect)
    draw = random.Random(seed)
    root = f"/random-{seed}"
    try:
        for store in (embedded, real):
            store.ask(Transaction(operations=(Create(path=root),)))
        for number in range(20_000 if full_counts else 400):
            request = _request(draw, root)
            assert _told(embedded.ask(request)) == _told(real.ask(request)), (seed, number, request)
    finally:
        embedded.close()
        real.close()
