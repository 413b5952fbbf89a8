"""The store port: a tree shaped like ZooKeeper's, spoken to without waiting.

`submit` returns at once. Answers, watches and session events arrive in one ordered queue, so a watch is seen before any
answer that shows the change it tells of. A transaction changes everything or nothing. Connection loss means that the
outcome is unknown: read again, decide again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.base.errors import PenstockError

ANY_VERSION = -1


class StoreError(PenstockError):
    """The store refused an operation."""


class NoNodeError(StoreError):
    """There is no node of this path."""


class NodeExistsError(StoreError):
    """There is a node of this path already."""


class BadVersionError(StoreError):
    """The node was changed by somebody else meanwhile."""


class NotEmptyError(StoreError):
    """The node has children."""


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral node can have no children."""


class BadPathError(StoreError):
    """Not a path of the tree."""


class ConnectionLostError(StoreError):
    """Whether the operation happened is not known."""


class LateError(StoreError):
    """What follows from the operation has not happened in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    path: str
    version: int


Operation = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What ZooKeeper says about a node."""

    created_zxid: int
    modified_zxid: int
    children_zxid: int
    created_ms: int
    modified_ms: int
    version: int
    children_version: int
    ephemeral_owner: int
    data_length: int
    children: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Operations that happen together or not at all."""

    operations: tuple[Operation, ...]


class ReadKind(Enum):
    DATA = "data"
    EXISTS = "exists"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    kind: ReadKind
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A transaction's first operation that could not be done; nothing of it was."""

    index: int
    error: StoreError


Result = str | Stat | Node | tuple[str, ...] | None
"""Of a create its path, of a write or an existence question a Stat (None: there is none), of a read a Node or names."""


class Change(Enum):
    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A transaction happened; what each operation gave."""

    token: int
    transaction: Transaction
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    token: int
    index: int
    error: StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    token: int
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A watch fired; it is gone with that."""

    path: str
    change: Change


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanged:
    state: SessionState


Event = Committed | Refused | Answered | Watched | SessionChanged


class Store(Protocol):
    def submit(self, request: Transaction | Read) -> int:
        """Hands a request over; the token comes back with its event."""

    def take_events(self) -> list[Event]:
        """What has arrived since the last call, in order."""
