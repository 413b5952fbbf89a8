"""A group under random members, time and crashes, against what must always hold.

- a request is answered once, and in the end all are;
- generations rise; all who are told of one generation are told of the same leader and protocol;
- offsets are those of the commits that were accepted, before and after a reload;
- a stable group comes back from its records as it was;
- no deadline is earlier than the group's next waking.
"""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.coordinator.group_world import OUTSIDER, GroupWorld, Waiting

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.errors import MemberIdRequiredError
from penstock.coordinator.groups.messages import Asker, Commit, Joined, Leaving
from penstock.coordinator.groups.model import State

PROTOCOLS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True).map(
    lambda names: tuple((name, b"") for name in names)
)
PICK = st.integers(0, 10)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(members_max=4)
        self.joins: list[tuple[str | None, Waiting]] = []
        self.syncs: list[Waiting] = []
        self.joined: list[tuple[str | None, Joined]] = []
        self.told: dict[int, tuple[str, str | None]] = {}
        self.offsets: dict[int, int] = {}
        self.generation = 0

    # Requests.
    def _join(self, member_id: str, instance_id: str | None, protocols: tuple[tuple[str, bytes], ...]) -> None:
        waiting = self.world.join(member_id, instance_id=instance_id, protocols=protocols)
        self.joins.append((instance_id, waiting))

    @rule(protocols=PROTOCOLS)
    def a_new_member(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        told = self.world.join(requires_known_id=True, protocols=protocols)
        if told.error is MemberIdRequiredError:
            self._join(told.reply.member_id, None, protocols)

    @rule(protocols=PROTOCOLS)
    def an_id_that_nobody_uses(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self.world.join(requires_known_id=True, protocols=protocols)

    @rule(instance=st.sampled_from(["x", "y"]), protocols=PROTOCOLS)
    def a_static_member(self, instance: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._join("", instance, protocols)

    @precondition(lambda self: self.joined)
    @rule(pick=PICK, protocols=PROTOCOLS)
    def join_again(self, pick: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        instance_id, joined = self.joined[pick % len(self.joined)]
        self._join(joined.member_id, instance_id, protocols)

    @precondition(lambda self: self.joined)
    @rule(pick=PICK)
    def sync(self, pick: int) -> None:
        instance_id, joined = self.joined[-1 - pick % len(self.joined)]
        assignments = {member.member_id: member.member_id.encode() for member in joined.members}
        self.syncs.append(self.world.sync(joined, assignments, instance_id=instance_id))

    @precondition(lambda self: self.joined)
    @rule(pick=PICK)
    def heartbeat(self, pick: int) -> None:
        instance_id, joined = self.joined[-1 - pick % len(self.joined)]
        self.world.heartbeat(joined, instance_id)

    @precondition(lambda self: self.joined)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        instance_id, joined = self.joined[-1 - pick % len(self.joined)]
        with contextlib.suppress(PenstockError):
            self.world.leave(Leaving(joined.member_id, instance_id))

    @rule(partition=st.integers(0, 3), offset=st.integers(0, 99), pick=PICK)
    def commit(self, partition: int, offset: int, pick: int) -> None:
        asker = OUTSIDER
        if self.joined and pick % 3:
            instance_id, joined = self.joined[-1 - pick % len(self.joined)]
            asker = Asker(joined.member_id, instance_id, joined.generation)
        with contextlib.suppress(PenstockError):
            self.world.commit(asker, Commit("t", partition, offset, -1, ""))
            self.offsets[partition] = offset

    @rule()
    def delete(self) -> None:
        with contextlib.suppress(PenstockError):
            self.world.run(self.world.shard.delete("g"))
            self.offsets = {}
            self._forget()

    # The world.
    @rule(ms=st.sampled_from([1, 500, 3_000, 9_999, 60_000, 400_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def crash(self) -> None:
        group = self.world.shard.groups.get("g")
        before = None
        if group is not None and group.state is State.STABLE:
            before = (group.generation, group.leader, group.protocol, set(group.members), dict(group.static))
        self.world.reload()
        self.joins, self.syncs = [], []
        group = self.world.shard.groups.get("g")
        if before is not None:
            assert group is not None
            after = (group.generation, group.leader, group.protocol, set(group.members), dict(group.static))
            assert after == before
        # A generation that was never written is forgotten.
        self._forget()

    def _forget(self) -> None:
        self.told, self.joined, self.generation = {}, [], 0

    # What holds.
    @invariant()
    def joined_members_agree(self) -> None:
        waiting = []
        for instance_id, join in self.joins:
            if not join.is_there:
                waiting.append((instance_id, join))
            elif join.error is None:
                self._told(instance_id, join.reply)
        self.joins = waiting

    def _told(self, instance_id: str | None, joined: Joined) -> None:
        self.joined.append((instance_id, joined))
        self.generation = max(self.generation, joined.generation)
        if instance_id is None:
            known = self.told.setdefault(joined.generation, (joined.leader, joined.protocol))
            assert known[1] == joined.protocol
        if joined.members:
            assert joined.leader == joined.member_id
            assert joined.member_id in {member.member_id for member in joined.members}

    @invariant()
    def offsets_are_those_that_were_accepted(self) -> None:
        group = self.world.shard.groups.get("g")
        found = {} if group is None else {place[1]: value.offset for place, value in group.offsets.items()}
        assert found == self.offsets

    @invariant()
    def the_group_is_whole(self) -> None:
        group = self.world.shard.groups.get("g")
        if group is None:
            return
        assert group.generation >= self.generation
        assert (group.leader in group.members) == bool(group.members)
        assert set(group.static.values()) <= set(group.members)
        assert (group.state is State.EMPTY) <= (not group.members)
        assert not (group.state is State.STABLE and any(member.join for member in group.members.values()))
        assert group.state is State.COMPLETING or not any(member.sync for member in group.members.values())
        deadlines = [one.deadline_ms for one in group.members.values() if one.is_new or not one.waits]
        deadlines += [*group.pending.values(), group.join_deadline_ms, group.sync_deadline_ms]
        assert group.wake_ms <= min(deadlines)

    def teardown(self) -> None:
        self.world.advance(2_000_000)
        assert all(join.is_there for _, join in self.joins)
        assert all(sync.is_there for sync in self.syncs)
        group = self.world.shard.groups.get("g")
        assert group is None or (group.state is State.EMPTY and not group.members)


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
