"""How a group goes from one generation to the next, and what its deadlines do.

Empty or Stable -> PreparingRebalance (members join) -> CompletingRebalance (the leader assigns) -> Stable, or back to
PreparingRebalance at any point. Each step adds to the decision that it is given.
"""

from __future__ import annotations

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.groups.errors import RebalanceInProgressError, UnknownMemberIdError
from penstock.coordinator.groups.messages import Decision, Joined, Synced
from penstock.coordinator.groups.model import NEVER_MS, Group, Member, State
from penstock.protocol.group_records import GroupKey

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a member that joined for the first time waits for the others; its client may have gone away meanwhile."""

_CAN_REBALANCE = (State.EMPTY, State.STABLE, State.COMPLETING)


class Rebalances:
    def __init__(self, settings: GroupSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock

    # Sessions.
    def touch(self, group: Group, member: Member) -> None:
        """The member gave a sign of life."""
        self.expect(group, member, member.session_timeout_ms)

    def expect(self, group: Group, member: Member, wait_ms: int) -> None:
        member.deadline_ms = self.clock.monotonic_ms() + wait_ms
        group.wake_by(member.deadline_ms)

    # Preparing.
    def prepare_or_complete(self, group: Group, decision: Decision) -> None:
        """Somebody joined or left: a rebalance begins, or perhaps ends."""
        if group.state in _CAN_REBALANCE:
            self.prepare(group, decision)
        else:
            self.complete_if_all_joined(group, decision)

    def prepare(self, group: Group, decision: Decision) -> None:
        if group.state is State.COMPLETING:
            self.drop_assignments(group, RebalanceInProgressError("the group rebalances again"), decision)
        group.unsynced.clear()
        group.sync_deadline_ms = NEVER_MS
        now_ms = self.clock.monotonic_ms()
        timeout_ms = group.rebalance_timeout_ms
        if group.state is State.EMPTY:
            delay_ms = self.settings.initial_delay_ms
            group.initial_left_ms = max(timeout_ms - delay_ms, 0)
            group.join_deadline_ms = now_ms + delay_ms
            group.new_member_added = False
        else:
            group.join_deadline_ms = now_ms + timeout_ms
        group.wake_by(group.join_deadline_ms)
        group.move(State.PREPARING, self.clock.wall_ms())
        self.complete_if_all_joined(group, decision)

    def complete_if_all_joined(self, group: Group, decision: Decision) -> None:
        if group.state is not State.PREPARING or not group.all_joined:
            return
        # A group that was empty waits out its initial delay: more members are likely.
        if group.previous_state is not State.EMPTY or not group.members or self.settings.initial_delay_ms <= 0:
            self._complete_join(group, decision)

    def _initial_delay_passed(self, group: Group, decision: Decision) -> None:
        if group.new_member_added and group.initial_left_ms > 0:
            group.new_member_added = False
            delay_ms = min(self.settings.initial_delay_ms, group.initial_left_ms)
            group.initial_left_ms -= delay_ms
            group.join_deadline_ms = self.clock.monotonic_ms() + delay_ms
            group.wake_by(group.join_deadline_ms)
        else:
            self._complete_join(group, decision)

    def _complete_join(self, group: Group, decision: Decision) -> None:
        """The time to join is over, or all did: the others are out, but for static members, who may come back."""
        group.join_deadline_ms = NEVER_MS
        for member in list(group.members.values()):
            if member.join is None and member.instance_id is None:
                group.remove(member.member_id)
        if group.members and not self._elect(group):
            group.join_deadline_ms = self.clock.monotonic_ms() + group.rebalance_timeout_ms
            group.wake_by(group.join_deadline_ms)
            return
        group.next_generation(self.clock.wall_ms())
        if not group.members:
            self.store(group, decision)
            return
        for member in group.members.values():
            group.unsynced.add(member.member_id)
            if member.join is not None:
                decision.reply(member.join, self.joined(group, member))
                member.join = None
                member.is_new = False
            self.touch(group, member)
        group.sync_deadline_ms = self.clock.monotonic_ms() + group.rebalance_timeout_ms
        group.wake_by(group.sync_deadline_ms)

    @staticmethod
    def _elect(group: Group) -> bool:
        """A leader that joined; returns whether there is one."""
        leader = None if group.leader is None else group.members.get(group.leader)
        if leader is None or leader.join is None:
            joined = next((member for member in group.members.values() if member.join is not None), None)
            if joined is None:
                return False
            group.leader = joined.member_id
        return True

    @staticmethod
    def joined(group: Group, member: Member) -> Joined:
        """What a member of the present generation is told; only the leader sees the others."""
        return Joined(
            None,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader or "",
            False,
            group.joined_members() if member.member_id == group.leader else (),
        )

    # Completing.
    def assign(self, group: Group, assignments: dict[str, bytes], decision: Decision) -> None:
        """The leader has assigned: the record, and with it the answers to all that synced."""
        before_state, before_ms = group.state, group.state_ms
        group.move(State.STABLE, self.clock.wall_ms())
        decision.records.append((GroupKey(group.group_id), group.value(assignments)))
        synced = []
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                synced.append((member, member.sync))
                decision.reply(member.sync, Synced(None, group.protocol_type, group.protocol, member.assignment))
                member.sync = None
                self.touch(group, member)
        if not group.unsynced:
            group.sync_deadline_ms = NEVER_MS

        generation = group.generation

        def failed(error: PenstockError) -> Decision:
            again = Decision()
            if group.state is not State.STABLE or group.generation != generation:
                # The group went on before the failure was known.
                again.replies = [(answer, Synced(error)) for _, answer in synced]
                return again
            group.state, group.state_ms = before_state, before_ms
            for member, answer in synced:
                member.sync = answer
            self.drop_assignments(group, error, again)
            self.prepare(group, again)
            return again

        decision.failed = failed

    def drop_assignments(self, group: Group, error: PenstockError, decision: Decision) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:
                decision.reply(member.sync, Synced(error))
                member.sync = None
                self.touch(group, member)

    def store(self, group: Group, decision: Decision) -> None:
        decision.records.append((GroupKey(group.group_id), group.value()))

    # Leaving.
    def remove(self, group: Group, member: Member, decision: Decision) -> None:
        """Takes a member out and answers what it waits for. The caller rebalances."""
        group.remove(member.member_id)
        self.refuse_waits(member, UnknownMemberIdError(f"{member.member_id} left the group"), decision)

    @staticmethod
    def refuse_waits(member: Member, error: PenstockError, decision: Decision) -> None:
        if member.join is not None:
            decision.reply(member.join, Joined(error, ""))
            member.join = None
        if member.sync is not None:
            decision.reply(member.sync, Synced(error))
            member.sync = None

    # Deadlines.
    def expire(self, group: Group) -> Decision:
        """Everything whose time is over. The caller looks at `wake_ms` afterwards."""
        decision = Decision()
        now_ms = self.clock.monotonic_ms()
        late_ids = [member_id for member_id, deadline_ms in group.pending.items() if deadline_ms <= now_ms]
        for member_id in late_ids:
            del group.pending[member_id]
        late = [one for one in group.members.values() if one.deadline_ms <= now_ms and (one.is_new or not one.waits)]
        if group.sync_deadline_ms <= now_ms and group.state in (State.COMPLETING, State.STABLE):
            late += [group.members[member_id] for member_id in sorted(group.unsynced) if member_id in group.members]
            group.sync_deadline_ms = NEVER_MS
            group.unsynced.clear()
        for member in dict.fromkeys(late):
            self.remove(group, member, decision)
        if late or late_ids:
            self._after_removal(group, decision, members_left=bool(late))
        if group.state is State.PREPARING and group.join_deadline_ms <= now_ms:
            if group.previous_state is State.EMPTY:
                self._initial_delay_passed(group, decision)
            else:
                self._complete_join(group, decision)
        self._find_wake(group)
        return decision

    def _after_removal(self, group: Group, decision: Decision, *, members_left: bool) -> None:
        if group.state in (State.STABLE, State.COMPLETING):
            if members_left:
                self.prepare(group, decision)
        else:
            self.complete_if_all_joined(group, decision)

    @staticmethod
    def _find_wake(group: Group) -> None:
        deadlines = [group.join_deadline_ms, group.sync_deadline_ms, *group.pending.values()]
        deadlines += [one.deadline_ms for one in group.members.values() if one.is_new or not one.waits]
        group.wake_ms = min(deadlines)
