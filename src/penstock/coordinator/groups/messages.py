"""What the coordinator is asked and what it replies, free of the wire; and what a decision is.

An `Answer` is whoever waits for a reply. The coordinator keeps answers and hands them back in decisions; it calls none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from penstock.base.errors import PenstockError
from penstock.protocol.group_records import GroupKey, GroupValue, OffsetKey, OffsetValue

Answer: TypeAlias = Callable[[Any], object]
Record: TypeAlias = tuple[OffsetKey | GroupKey, OffsetValue | GroupValue | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_id: bool
    """KIP-394: a new member is told its id first, and joins with it."""
    may_skip_assignment: bool
    """The leader understands that it need not assign (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    error: PenstockError | None
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Synced(NamedTuple):
    error: PenstockError | None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    member_id: str
    instance_id: str | None


class Left(NamedTuple):
    member_id: str
    instance_id: str | None
    error: PenstockError | None


class Commit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Asker(NamedTuple):
    """Who commits: a member of a generation, or a client outside of any (-1, "", None)."""

    member_id: str
    instance_id: str | None
    generation: int


class Writer(NamedTuple):
    """A producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Decision:
    """Records to append as one batch, and the replies that rest on them; with a `writer` they are part of its transaction.

    Whoever carries it out appends the records and calls `Shard.appended`; replies leave when the records are below the
    high watermark. Where the append fails, `failed` says what follows instead; without it the replies stand.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Answer, Any]] = field(default_factory=list)
    failed: Callable[[PenstockError], Decision] | None = None
    writer: Writer | None = None

    def reply(self, answer: Answer, value: Any) -> None:
        self.replies.append((answer, value))
