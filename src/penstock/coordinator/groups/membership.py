"""Join, sync, heartbeat and leave: what members ask of their group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.base.errors import PenstockError
from penstock.coordinator.errors import CoordinatorNotAvailableError
from penstock.coordinator.groups.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from penstock.coordinator.groups.messages import Answer, Asker, Decision, Join, Joined, Leaving, Left, Sync, Synced
from penstock.coordinator.groups.model import Group, Member, State
from penstock.coordinator.groups.rebalance import NEW_MEMBER_TIMEOUT_MS, Rebalances


def find_member(group: Group, asker: Asker) -> Member:
    """The member that asks, in the generation that it names."""
    if group.state is State.DEAD:
        raise CoordinatorNotAvailableError(f"group {group.group_id} is about to go")
    member = _identify(group, asker.member_id, asker.instance_id)
    if asker.generation != group.generation:
        raise IllegalGenerationError(f"group {group.group_id} is in generation {group.generation}")
    return member


def _identify(group: Group, member_id: str, instance_id: str | None) -> Member:
    if instance_id is not None:
        known = group.static.get(instance_id)
        if known is None:
            raise UnknownMemberIdError(f"group {group.group_id} has no static member {instance_id}")
        if known != member_id:
            raise FencedInstanceIdError(f"static member {instance_id} has another id now")
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberIdError(f"group {group.group_id} has no member {member_id!r}")
    return member


class Membership:
    def __init__(self, rebalances: Rebalances, new_suffix: Callable[[], str]) -> None:
        self._rebalances = rebalances
        self._new_suffix = new_suffix

    # Joining.
    def join(self, group: Group, request: Join, answer: Answer, decision: Decision) -> None:
        try:
            self._check_join(group, request)
            if request.member_id == "":
                self._join_new(group, request, answer, decision)
            else:
                self._join_known(group, request, answer, decision)
        except GroupMaxSizeReachedError as error:
            decision.reply(answer, Joined(error, ""))  # it is no member any more
        except PenstockError as error:
            decision.reply(answer, Joined(error, request.member_id))

    def _check_join(self, group: Group, request: Join) -> None:
        if group.state is State.DEAD:
            raise CoordinatorNotAvailableError(f"group {group.group_id} is about to go")
        if not self._has_room(group, request.member_id):
            if group.remove(request.member_id) is None:
                group.pending.pop(request.member_id, None)
            raise GroupMaxSizeReachedError(f"group {group.group_id} is full")
        if not group.supports(request.protocol_type, request.protocols):
            raise InconsistentGroupProtocolError(f"group {group.group_id} shares no protocol with the new member")

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._rebalances.settings.members_max
        member = group.members.get(member_id)
        if group.state is State.PREPARING:
            return (member is not None and member.join is not None) or group.waiting_joins < limit
        return group.state is State.EMPTY or member is not None or len(group.members) < limit

    def _join_new(self, group: Group, request: Join, answer: Answer, decision: Decision) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{prefix}-{self._new_suffix()}"
        if request.instance_id is not None:
            if request.instance_id in group.static:
                self._replace_static(group, request, member_id, answer, decision)
            else:
                self._add(group, request, member_id, answer, decision)
        elif request.requires_known_id:
            deadline_ms = self._rebalances.clock.monotonic_ms() + request.session_timeout_ms
            group.pending[member_id] = deadline_ms
            group.wake_by(deadline_ms)
            decision.reply(answer, Joined(MemberIdRequiredError("join again with this member id"), member_id))
        else:
            self._add(group, request, member_id, answer, decision)

    def _add(self, group: Group, request: Join, member_id: str, answer: Answer, decision: Decision) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        member.join = answer
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.state is State.PREPARING and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._rebalances.expect(group, member, NEW_MEMBER_TIMEOUT_MS)
        self._rebalances.prepare_or_complete(group, decision)

    def _replace_static(self, group: Group, request: Join, member_id: str, answer: Answer, decision: Decision) -> None:
        """A static member came back: where its subscription fits the group as it is, nobody else notices (KIP-345)."""
        assert request.instance_id is not None
        leader_before = group.leader
        member = group.members[group.static[request.instance_id]]
        before = (member.member_id, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        fenced = FencedInstanceIdError(f"static member {request.instance_id} has another id now")
        self._rebalances.refuse_waits(member, fenced, decision)
        group.rename(member, member_id)
        self._update(member, request)
        if group.state is not State.STABLE or group.choose_protocol() != group.protocol:
            member.join = answer
            self._rebalances.touch(group, member)
            self._rebalances.prepare_or_complete(group, decision)
            return
        self._rebalances.touch(group, member)
        self._rebalances.store(group, decision)
        decision.reply(answer, self._returned(group, member, leader_before or "", request))

        def failed(error: PenstockError) -> Decision:
            again = Decision()
            if group.members.get(member_id) is member:
                group.rename(member, before[0])
                _, member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
            again.reply(answer, Joined(error, ""))
            return again

        decision.failed = failed

    @staticmethod
    def _returned(group: Group, member: Member, leader_before: str, request: Join) -> Joined:
        # A leader that does not know of skipped assignments is told of its old id as the leader's, or it would assign.
        skips = request.may_skip_assignment and group.leader == member.member_id
        return Joined(
            None,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            member.member_id if skips else leader_before,
            skips,
            group.joined_members() if skips else (),
        )

    @staticmethod
    def _update(member: Member, request: Join) -> None:
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    def _join_known(self, group: Group, request: Join, answer: Answer, decision: Decision) -> None:
        if request.member_id in group.pending and request.instance_id is None:
            self._add(group, request, request.member_id, answer, decision)
            return
        member = _identify(group, request.member_id, request.instance_id)
        if group.state is State.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        is_same = member.protocols == request.protocols
        if group.state is State.COMPLETING and is_same:
            # Its answer got lost.
            decision.reply(answer, self._rebalances.joined(group, member))
            return
        if group.state is State.STABLE and is_same and member.member_id != group.leader:
            decision.reply(answer, self._rebalances.joined(group, member))
            return
        if member.join is not None:
            decision.reply(member.join, Joined(RebalanceInProgressError("joined again meanwhile"), member.member_id))
        self._update(member, request)
        if group.state is not State.PREPARING:
            self._rebalances.prepare(group, decision)
        member.join = answer
        self._rebalances.complete_if_all_joined(group, decision)

    # Syncing.
    def sync(self, group: Group, request: Sync, answer: Answer, decision: Decision) -> None:
        try:
            member = find_member(group, Asker(request.member_id, request.instance_id, request.generation))
            self._check_sync(group, request)
        except PenstockError as error:
            decision.reply(answer, Synced(error))
            return
        group.unsynced.discard(member.member_id)
        self._rebalances.touch(group, member)
        if group.state is State.STABLE:
            decision.reply(answer, Synced(None, group.protocol_type, group.protocol, member.assignment))
            return
        if member.sync is not None:
            decision.reply(member.sync, Synced(RebalanceInProgressError("synced again meanwhile")))
        member.sync = answer
        if member.member_id == group.leader:
            self._rebalances.assign(group, dict(request.assignments), decision)

    @staticmethod
    def _check_sync(group: Group, request: Sync) -> None:
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise InconsistentGroupProtocolError(f"the group's protocol type is {group.protocol_type}")
        if request.protocol is not None and request.protocol != group.protocol:
            raise InconsistentGroupProtocolError(f"the group's protocol is {group.protocol}")
        if group.state is State.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        if group.state is State.PREPARING:
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")

    # Living on.
    def heartbeat(self, group: Group, asker: Asker) -> None:
        """Raises what the member must know."""
        member = find_member(group, asker)
        if group.state is State.EMPTY:
            raise UnknownMemberIdError(f"group {group.group_id} is empty")
        self._rebalances.touch(group, member)
        if group.state is State.PREPARING:
            raise RebalanceInProgressError(f"group {group.group_id} rebalances")

    def leave(self, group: Group, leaving: Sequence[Leaving], decision: Decision) -> tuple[Left, ...]:
        left = []
        changed = False
        for member_id, instance_id in leaving:
            try:
                changed = self._leave(group, member_id, instance_id, decision) or changed
                left.append(Left(member_id, instance_id, None))
            except PenstockError as error:
                left.append(Left(member_id, instance_id, error))
        if changed and group.state is not State.EMPTY:
            self._rebalances.prepare_or_complete(group, decision)
        return tuple(left)

    def _leave(self, group: Group, member_id: str, instance_id: str | None, decision: Decision) -> bool:
        if group.pending.pop(member_id, None) is not None:
            return group.state is State.PREPARING
        if member_id == "" and instance_id is not None:
            member_id = group.static.get(instance_id, "")
        self._rebalances.remove(group, _identify(group, member_id, instance_id), decision)
        return True
