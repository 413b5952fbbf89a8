"""The groups of one partition of `__consumer_offsets`.

`replay` fills it from the log; then requests are decided. A decision's records are appended by the caller, who says
`appended` (only then do offsets change) or asks the decision what follows a failure. Members, joins and deadlines change
as they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.coordinator.errors import NotCoordinatorError
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.groups.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from penstock.coordinator.groups.membership import Membership
from penstock.coordinator.groups.messages import (
    Answer,
    Asker,
    Commit,
    Decision,
    Join,
    Joined,
    Leaving,
    Left,
    Sync,
    Synced,
    Writer,
)
from penstock.coordinator.groups.model import NEVER_MS, Group, State
from penstock.coordinator.groups.offsets import (
    PartitionOutcome,
    check_commit,
    check_commit_in_transaction,
    decide_commit,
    decide_delete,
    decide_expiry,
)
from penstock.coordinator.groups.pending_offsets import PendingOffsets
from penstock.coordinator.groups.rebalance import Rebalances
from penstock.protocol.group_records import GroupKey, GroupValue, OffsetKey, OffsetValue

CLASSIC = "classic"


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class Shard:
    def __init__(self, settings: GroupSettings, clock: Clock, new_suffix: Callable[[], str]) -> None:
        self._settings = settings
        self._clock = clock
        self._rebalances = Rebalances(settings, clock)
        self._membership = Membership(self._rebalances, new_suffix)
        self.groups: dict[str, Group] = {}
        self.pending_offsets = PendingOffsets()
        self.touched: dict[str, Group] = {}
        """Groups whose deadlines may be earlier than known: the caller takes them and sets its timers."""

    # State from records.
    def replay(self, key: OffsetKey | GroupKey, value: OffsetValue | GroupValue | None) -> None:
        """One record of the log, in order; a record written to a group removed before makes it anew (KAFKA-4704)."""
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            self._set_offset(key, value)
        elif value is None:
            group = self.groups.get(key.group)
            if group is None:
                return
            group.load(GroupValue("", 0, None, None, -1, ()))
            self._drop_if_nothing(group)
        else:
            assert isinstance(value, GroupValue)
            self._group(key.group).load(value)

    def loaded(self) -> Decision:
        """The log is read to its end: members have one session timeout to show themselves."""
        decision = Decision()
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalances.touch(group, member)
            if len(group.members) > self._settings.members_max:
                self._rebalances.prepare(group, decision)
            self._touched(group)
        return decision

    def appended(self, decision: Decision) -> None:
        """A decision's records are in the log."""
        if decision.writer is not None:
            for key, value in decision.records:
                assert isinstance(key, OffsetKey)
                assert isinstance(value, OffsetValue)
                self.hold(decision.writer.producer_id, key, value)
            return
        for key, value in decision.records:
            if isinstance(key, OffsetKey):
                assert value is None or isinstance(value, OffsetValue)
                self._set_offset(key, value)
            elif value is None:
                gone = self.groups.pop(key.group, None)
                if gone is not None:
                    gone.state = State.DEAD

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._clock.wall_ms())
        return group

    def hold(self, producer_id: int, key: OffsetKey, value: OffsetValue | None) -> None:
        """An offset in a transaction: it counts when that is committed."""
        self._group(key.group)
        self.pending_offsets.hold(producer_id, key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The producer's marker is in the log."""
        touched = self.pending_offsets.groups_of(producer_id)
        for key, value in self.pending_offsets.end(producer_id, commit=commit):
            self._put_offset(key, value)
        for group_id in touched:
            group = self.groups.get(group_id)
            if group is not None:
                self._drop_if_nothing(group)

    def _set_offset(self, key: OffsetKey, value: OffsetValue | None) -> None:
        if value is None:
            self.pending_offsets.drop(key)
        else:
            self.pending_offsets.supersede(key)
        self._put_offset(key, value)

    def _put_offset(self, key: OffsetKey, value: OffsetValue | None) -> None:
        if value is not None:
            self._group(key.group).offsets[key.topic, key.partition] = value
            return
        group = self.groups.get(key.group)
        if group is not None:
            group.offsets.pop((key.topic, key.partition), None)
            self._drop_if_nothing(group)

    def _drop_if_nothing(self, group: Group) -> None:
        held = self.pending_offsets.has_group(group.group_id)
        if not (group.offsets or held or group.pending) and group.state is State.EMPTY and group.generation == 0:
            self.groups.pop(group.group_id, None)

    def _touched(self, group: Group) -> None:
        if group.wake_ms != NEVER_MS:
            self.touched[group.group_id] = group

    def resign(self) -> Decision:
        """Another broker takes over: everybody who waits is sent there."""
        decision = Decision()
        error = NotCoordinatorError("the group's coordinator moved")
        for group in self.groups.values():
            group.state = State.DEAD
            for member in group.members.values():
                self._rebalances.refuse_waits(member, error, decision)
        self.groups = {}
        return decision

    # Members.
    def join(self, request: Join, answer: Answer) -> Decision:
        decision = Decision()
        low, high = self._settings.session_timeout_min_ms, self._settings.session_timeout_max_ms
        group = self.groups.get(request.group_id)
        if not low <= request.session_timeout_ms <= high:
            error: PenstockError = InvalidSessionTimeoutError(f"a session's timeout is between {low} and {high} ms")
            decision.reply(answer, Joined(error, request.member_id))
        elif group is None and request.member_id != "":
            decision.reply(answer, Joined(UnknownMemberIdError("there is no such group"), request.member_id))
        else:
            group = group or self._group(request.group_id)
            self._membership.join(group, request, answer, decision)
            self._touched(group)
        return decision

    def sync(self, request: Sync, answer: Answer) -> Decision:
        decision = Decision()
        group = self.groups.get(request.group_id)
        if group is None:
            decision.reply(answer, Synced(UnknownMemberIdError("there is no such group")))
        else:
            self._membership.sync(group, request, answer, decision)
            self._touched(group)
        return decision

    def heartbeat(self, group_id: str, asker: Asker) -> None:
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"there is no group {group_id}")
        before_ms = group.wake_ms
        try:
            self._membership.heartbeat(group, asker)
        finally:
            if group.wake_ms != before_ms:
                self._touched(group)

    def leave(self, group_id: str, leaving: Sequence[Leaving]) -> tuple[Decision, tuple[Left, ...]]:
        group = self.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            raise UnknownMemberIdError(f"there is no group {group_id}")
        decision = Decision()
        left = self._membership.leave(group, leaving, decision)
        self._touched(group)
        return decision, left

    def expire(self, group: Group) -> Decision:
        """Deadlines of one group have come."""
        if self.groups.get(group.group_id) is not group:
            return Decision()
        decision = self._rebalances.expire(group)
        self._touched(group)
        return decision

    # Offsets.
    def commit(
        self, group_id: str, asker: Asker, commits: Sequence[Commit], retention_ms: int = -1
    ) -> tuple[Decision, tuple[PartitionOutcome, ...]]:
        group = self.groups.get(group_id)
        if group is None:
            if asker.generation >= 0:
                raise IllegalGenerationError(f"there is no group {group_id}")
            # It stays only if something is committed to it.
            group = Group(group_id, self._clock.wall_ms())
        else:
            check_commit(group, asker, self._rebalances)
            self._touched(group)
        decision = Decision()
        now_ms, limit = self._clock.wall_ms(), self._settings.metadata_bytes_max
        return decision, decide_commit(group, commits, retention_ms, limit, now_ms, decision)

    def commit_in_transaction(
        self, group_id: str, asker: Asker, commits: Sequence[Commit], writer: Writer
    ) -> tuple[Decision, tuple[PartitionOutcome, ...]]:
        """Offsets that count when the writer's transaction commits. What is refused leaves nothing pending (KAFKA-16371)."""
        group = self.groups.get(group_id)
        if group is None:
            if asker.generation >= 0:
                raise IllegalGenerationError(f"there is no group {group_id}")
            group = Group(group_id, self._clock.wall_ms())
        else:
            check_commit_in_transaction(group, asker)
        decision = Decision(writer=writer)
        now_ms, limit = self._clock.wall_ms(), self._settings.metadata_bytes_max
        return decision, decide_commit(group, commits, -1, limit, now_ms, decision)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> tuple[Decision, tuple[PartitionOutcome, ...]]:
        decision = Decision()
        return decision, decide_delete(self.groups.get(group_id), partitions, self.pending_offsets, decision)

    def forget_topics(self, topics: Iterable[str]) -> Decision:
        """Topics were deleted: so are the offsets in them, also those that a transaction would commit."""
        gone = frozenset(topics)
        decision = Decision()
        for group in self.groups.values():
            for topic, partition in group.offsets:
                if topic in gone:
                    decision.records.append((OffsetKey(group.group_id, topic, partition), None))
        decision.records.extend((key, None) for key in self._only_pending() if key.topic in gone)
        return decision

    def _only_pending(self) -> Iterator[OffsetKey]:
        """Places that have an offset in a transaction and none that counts."""
        for key in self.pending_offsets.places():
            group = self.groups.get(key.group)
            if group is None or (key.topic, key.partition) not in group.offsets:
                yield key

    def expire_offsets(self) -> Iterator[Decision]:
        """One decision for each group that lost something; the caller may pause between two."""
        now_ms = self._clock.wall_ms()
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is not group:
                continue  # it went between two turns, and another may have its name
            decision = Decision()
            decide_expiry(group, self.pending_offsets, self._settings.retention_ms, now_ms, decision)
            yield decision

    # Looking.
    def delete(self, group_id: str) -> Decision:
        group = self.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            raise GroupIdNotFoundError(f"there is no group {group_id}")
        if group.state is not State.EMPTY:
            raise NonEmptyGroupError(f"group {group_id} has members")
        decision = Decision()
        for topic, partition in group.offsets:
            decision.records.append((OffsetKey(group_id, topic, partition), None))
        decision.records.extend((key, None) for key in self._only_pending() if key.group == group_id)
        decision.records.append((GroupKey(group_id), None))
        return decision

    def list(self) -> Iterator[ListedGroup]:
        for group in self.groups.values():
            yield ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
