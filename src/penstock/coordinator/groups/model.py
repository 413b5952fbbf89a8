"""A group and its members as they stand in memory."""

from __future__ import annotations

import struct
from collections import Counter
from enum import Enum

from penstock.coordinator.groups.messages import Answer, JoinedMember
from penstock.protocol.group_records import GroupValue, MemberValue, OffsetValue

CONSUMER = "consumer"
NEVER_MS = 2**62


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[tuple[str, bytes], ...],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.join: Answer | None = None
        self.sync: Answer | None = None
        self.deadline_ms = NEVER_MS
        """When it counts as gone, on the monotonic clock; not while it waits for an answer, unless it is new."""
        self.is_new = False

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def waits(self) -> bool:
        return self.join is not None or self.sync is not None


class Group:
    """Invariants: `static` names members that are there; the leader is one of the members; an empty group has none."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.state_ms = now_ms
        """When the state began, by the wall clock; -1 where the record does not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        """Ids that were given out and have not joined yet, with their deadlines."""
        self.unsynced: set[str] = set()
        self.join_deadline_ms = NEVER_MS
        self.sync_deadline_ms = NEVER_MS
        self.initial_left_ms = 0
        self.new_member_added = False
        self.subscribed: frozenset[str] | None = None
        """Topics that members consume; None where that cannot be told."""
        self.offsets: dict[tuple[str, int], OffsetValue] = {}
        self.wake_ms = NEVER_MS
        """No deadline of the group is earlier than this."""

    def move(self, state: State, now_ms: int) -> None:
        self.previous_state, self.state, self.state_ms = self.state, state, now_ms

    def wake_by(self, deadline_ms: int) -> None:
        self.wake_ms = min(self.wake_ms, deadline_ms)

    @property
    def waiting_joins(self) -> int:
        return sum(member.join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Members.
    def add(self, member: Member) -> None:
        if not self.members:
            self.subscribed = None
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under another id."""
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.members[member_id] = member
        assert member.instance_id is not None
        self.static[member.instance_id] = member_id

    # Protocols.
    def common_protocols(self) -> set[str]:
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        if self.state is State.EMPTY or not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(name in self.common_protocols() for name, _ in protocols)

    def choose_protocol(self) -> str | None:
        """Each member votes for the first of its protocols that all support; ties go to the earliest member's choice."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values() if common
        )
        return max(votes, key=lambda name: votes[name]) if votes else None

    def next_generation(self, now_ms: int) -> None:
        self.generation = 0 if self.generation == 2**31 - 1 else self.generation + 1
        self.unsynced.clear()
        if self.members:
            self.protocol = self.choose_protocol()
            self.move(State.COMPLETING, now_ms)
        else:
            self.protocol = None
            self.move(State.EMPTY, now_ms)
        self.subscribed = self.read_subscriptions()

    def read_subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        if self.members and self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    # Its record.
    def value(self, assignments: dict[str, bytes] | None = None) -> GroupValue:
        members = tuple(
            MemberValue(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupValue(self.protocol_type or "", self.generation, self.protocol, self.leader, self.state_ms, members)

    def load(self, value: GroupValue) -> None:
        """Becomes what a record says; its offsets stay."""
        self.generation, self.protocol = value.generation, value.protocol
        self.protocol_type = value.protocol_type or None
        self.members, self.static, self.pending, self.unsynced = {}, {}, {}, set()
        self.leader = None
        for one in value.members:
            member = Member(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_timeout_ms,
                one.session_timeout_ms,
                ((value.protocol or "", one.subscription),),
            )
            member.assignment = one.assignment
            self.add(member)
        if value.leader in self.members:
            self.leader = value.leader
        self.state = self.previous_state = State.STABLE if self.members else State.EMPTY
        self.state_ms = value.current_state_timestamp_ms
        self.subscribed = self.read_subscriptions()


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics in a consumer's subscription (version, count, names); None where the bytes are none."""
    try:
        (version, count) = struct.unpack_from(">hi", metadata)
        if version < 0 or count < 0:
            return None
        position, topics = 6, set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + length]
            if length < 0 or len(name) != length:
                return None
            topics.add(name.decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
