"""The tree itself, pure: ZooKeeper's rules without ZooKeeper.

Invariants:
- every node's parent exists and is not ephemeral;
- a transaction that is refused changes nothing, not even the counter of transactions;
- a watch fires once, and belongs to the session that set it;
- a node's `children_version` rises with each child made or removed; sequential children are numbered by those made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.metadata.store import (
    ANY_VERSION,
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
    StoreError,
    Transaction,
)

NO_SESSION = 0


class Made(NamedTuple):
    """A node was made; sequential names are resolved."""

    path: str
    data: bytes
    ephemeral_owner: int


class Written(NamedTuple):
    path: str
    data: bytes


class Removed(NamedTuple):
    path: str


class Kept(NamedTuple):
    """A node as it stands, with its counters: what a journal written anew begins with."""

    path: str
    data: bytes
    ephemeral_owner: int
    created_zxid: int
    modified_zxid: int
    children_zxid: int
    created_ms: int
    modified_ms: int
    version: int
    children_version: int


Effect = Made | Written | Removed | Kept


class Fired(NamedTuple):
    session: int
    path: str
    change: Change


class _Node:
    __slots__ = (
        "children",
        "children_version",
        "children_zxid",
        "created_ms",
        "created_zxid",
        "data",
        "ephemeral_owner",
        "modified_ms",
        "modified_zxid",
        "version",
    )

    def __init__(self, data: bytes, ephemeral_owner: int, zxid: int, now_ms: int) -> None:
        self.data = data
        self.ephemeral_owner = ephemeral_owner
        self.created_zxid = self.modified_zxid = self.children_zxid = zxid
        self.created_ms = self.modified_ms = now_ms
        self.version = 0
        self.children_version = 0
        self.children: set[str] = set()

    @property
    def children_made(self) -> int:
        """Ever: of the changes, those that were no removals."""
        return (self.children_version + len(self.children)) // 2

    def stat(self) -> Stat:
        return Stat(
            created_zxid=self.created_zxid,
            modified_zxid=self.modified_zxid,
            children_zxid=self.children_zxid,
            created_ms=self.created_ms,
            modified_ms=self.modified_ms,
            version=self.version,
            children_version=self.children_version,
            ephemeral_owner=self.ephemeral_owner,
            data_length=len(self.data),
            children=len(self.children),
        )

    def copy(self) -> _Node:
        twin = _Node(self.data, self.ephemeral_owner, self.created_zxid, self.created_ms)
        twin.modified_zxid, twin.children_zxid = self.modified_zxid, self.children_zxid
        twin.modified_ms, twin.version, twin.children_version = self.modified_ms, self.version, self.children_version
        twin.children = set(self.children)
        return twin


def check_path(path: str) -> None:
    """ZooKeeper's rules for a path."""
    if path == "/":
        return
    parts = path.split("/")
    if parts[0] != "" or any(part in ("", ".", "..") or "\x00" in part for part in parts[1:]) or len(parts) < 2:
        raise BadPathError(f"{path!r} is not a path of the tree")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """Nodes by path. Time and session come with each call."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes: dict[str, _Node] = {"/": _Node(b"", NO_SESSION, 0, 0)}
        self._data_watches: dict[str, dict[int, None]] = {}
        self._child_watches: dict[str, dict[int, None]] = {}

    # Reading.
    def read(self, request: Read, session: int) -> Result:
        """What is there; a watch, if asked for, is set also where existence was asked for in vain."""
        check_path(request.path)
        node = self._nodes.get(request.path)
        if request.watch and (node is not None or request.kind is ReadKind.EXISTS):
            watches = self._child_watches if request.kind is ReadKind.CHILDREN else self._data_watches
            watches.setdefault(request.path, {})[session] = None
        if request.kind is ReadKind.EXISTS:
            return None if node is None else node.stat()
        if node is None:
            raise NoNodeError(f"there is no {request.path}")
        if request.kind is ReadKind.DATA:
            return Node(data=node.data, stat=node.stat())
        return tuple(sorted(node.children))

    def walk(self) -> Iterator[Kept]:
        """Every node, parents first."""
        for path in sorted(self._nodes):
            node = self._nodes[path]
            yield Kept(
                path,
                node.data,
                node.ephemeral_owner,
                node.created_zxid,
                node.modified_zxid,
                node.children_zxid,
                node.created_ms,
                node.modified_ms,
                node.version,
                node.children_version,
            )

    # Changing.
    def commit(
        self, transaction: Transaction, session: int, now_ms: int
    ) -> tuple[tuple[Result, ...], tuple[Effect, ...]] | Refusal:
        """All of it, or a refusal that changed nothing."""
        undo: dict[str, _Node | None] = {}
        zxid = self.zxid + 1
        results: list[Result] = []
        effects: list[Effect] = []
        for index, operation in enumerate(transaction.operations):
            try:
                effect = self._resolve(operation, session)
            except StoreError as error:
                self._roll_back(undo)
                return Refusal(index=index, error=error)
            if effect is not None:
                self._remember(effect.path, undo)
                self._apply(effect, zxid, now_ms)
                effects.append(effect)
            results.append(self._result(effect))
        self.zxid = zxid
        return tuple(results), tuple(effects)

    def replay(self, effects: tuple[Effect, ...], zxid: int, now_ms: int) -> None:
        """Does again what a commit did, from the journal."""
        for effect in effects:
            if isinstance(effect, Kept):
                self._keep(effect)
            else:
                self._apply(effect, zxid, now_ms)
        self.zxid = zxid

    def _keep(self, kept: Kept) -> None:
        node = self._nodes[kept.path] = _Node(kept.data, kept.ephemeral_owner, kept.created_zxid, kept.created_ms)
        node.modified_zxid, node.children_zxid, node.modified_ms = (
            kept.modified_zxid,
            kept.children_zxid,
            kept.modified_ms,
        )
        node.version, node.children_version = kept.version, kept.children_version
        if kept.path != "/":
            self._nodes[parent_of(kept.path)].children.add(kept.path.rpartition("/")[2])

    def ephemerals(self, session: int | None) -> tuple[str, ...]:
        """Paths that a session's end removes, in order; None means of every session."""
        return tuple(
            sorted(
                path
                for path, node in self._nodes.items()
                if node.ephemeral_owner != NO_SESSION and session in (None, node.ephemeral_owner)
            )
        )

    def fire(self, effects: tuple[Effect, ...]) -> list[Fired]:
        """The watches that a commit's effects set off, in the order of the effects. They are gone with that."""
        fired: list[Fired] = []
        for effect in effects:
            path = effect.path
            if isinstance(effect, Written):
                fired += self._take(self._data_watches, path, Change.DATA)
                continue
            if isinstance(effect, Made):
                fired += self._take(self._data_watches, path, Change.CREATED)
            else:
                deleted = self._take(self._data_watches, path, Change.DELETED)
                also = self._take(self._child_watches, path, Change.DELETED)
                fired += deleted + [event for event in also if event not in deleted]
            fired += self._take(self._child_watches, parent_of(path), Change.CHILDREN)
        return fired

    def drop_watches(self, session: int) -> None:
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, sessions in watches.items() if session in sessions]:
                del watches[path][session]
                if not watches[path]:
                    del watches[path]

    @staticmethod
    def _take(watches: dict[str, dict[int, None]], path: str, change: Change) -> list[Fired]:
        return [Fired(session, path, change) for session in watches.pop(path, ())]

    def _resolve(self, operation: Operation, session: int) -> Effect | None:
        """Checks one operation against the tree as it is now, and says what it does."""
        check_path(operation.path)
        if isinstance(operation, Create):
            return self._resolve_create(operation, session)
        node = self._nodes.get(operation.path)
        if node is None:
            raise NoNodeError(f"there is no {operation.path}")
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{operation.path} has version {node.version}, not {operation.version}")
        if isinstance(operation, SetData):
            return Written(operation.path, operation.data)
        if isinstance(operation, Check):
            return None
        assert isinstance(operation, Delete)
        if operation.path == "/":
            raise BadPathError("the root stays")
        if node.children:
            raise NotEmptyError(f"{operation.path} has {len(node.children)} children")
        return Removed(operation.path)

    def _resolve_create(self, operation: Create, session: int) -> Made:
        parent = self._nodes.get(parent_of(operation.path))
        if operation.path == "/":
            raise NodeExistsError("there is / already")
        if parent is None:
            raise NoNodeError(f"there is no {parent_of(operation.path)}")
        path = f"{operation.path}{parent.children_made:010d}" if operation.sequential else operation.path
        if path in self._nodes:
            raise NodeExistsError(f"there is {path} already")
        if parent.ephemeral_owner != NO_SESSION:
            raise NoChildrenForEphemeralsError(f"{parent_of(path)} is ephemeral")
        return Made(path, operation.data, session if operation.ephemeral else NO_SESSION)

    def _apply(self, effect: Effect, zxid: int, now_ms: int) -> None:
        if isinstance(effect, Written):
            node = self._nodes[effect.path]
            node.data = effect.data
            node.version += 1
            node.modified_zxid, node.modified_ms = zxid, now_ms
            return
        assert not isinstance(effect, Kept), "only a journal's beginning keeps nodes"
        parent = self._nodes[parent_of(effect.path)]
        name = effect.path.rpartition("/")[2]
        if isinstance(effect, Made):
            self._nodes[effect.path] = _Node(effect.data, effect.ephemeral_owner, zxid, now_ms)
            parent.children.add(name)
        else:
            del self._nodes[effect.path]
            parent.children.remove(name)
        parent.children_version += 1
        parent.children_zxid = zxid

    def _result(self, effect: Effect | None) -> Result:
        if isinstance(effect, Made):
            return effect.path
        return self._nodes[effect.path].stat() if isinstance(effect, Written) else None

    def _remember(self, path: str, undo: dict[str, _Node | None]) -> None:
        for touched in (path, parent_of(path)):
            if touched not in undo:
                node = self._nodes.get(touched)
                undo[touched] = None if node is None else node.copy()

    def _roll_back(self, undo: dict[str, _Node | None]) -> None:
        for path, node in undo.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node
