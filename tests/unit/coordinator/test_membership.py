"""Groups from their first member to their last: the classic protocol, decision by decision."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.group_world import GroupWorld, subscription

from penstock.base.errors import MessageTooLargeError
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.groups.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from penstock.coordinator.groups.messages import Leaving
from penstock.coordinator.groups.model import State
from penstock.protocol.group_records import GroupKey, GroupValue


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_an_empty_group_waits_for_more_members_before_its_first_generation(world: GroupWorld) -> None:
    first = world.join()
    world.advance(2_000)
    second = world.join()
    world.advance(1_000)
    assert not first.is_there, "somebody came during the delay: it is extended"
    world.advance(3_000)
    assert (first.reply.generation, second.reply.generation) == (1, 1)
    assert [member.member_id for member in first.reply.members] == [first.reply.member_id, second.reply.member_id]
    assert second.reply.members == ()
    assert second.reply.leader == first.reply.member_id


def test_the_initial_delay_is_not_extended_beyond_the_rebalance_timeout(world: GroupWorld) -> None:
    first = world.join(rebalance_timeout_ms=5_000)
    for _ in range(5):
        world.advance(1_000)
        world.join(rebalance_timeout_ms=5_000)
    assert first.is_there
    assert len(first.reply.members) == 5


def test_members_sync_when_the_leader_has_assigned_and_the_record_says_so(world: GroupWorld) -> None:
    waits = [world.join(), world.join()]
    world.advance(6_000)
    leader, follower = (wait.reply for wait in waits)
    synced = world.sync(follower)
    assert not synced.is_there
    assert world.sync(leader, {leader.member_id: b"0", follower.member_id: b"1"}).reply.assignment == b"0"
    assert synced.reply.assignment == b"1"
    assert world.group.state is State.STABLE
    key, value = world.records[-1]
    assert key == GroupKey("g")
    assert isinstance(value, GroupValue)
    assert [member.assignment for member in value.members] == [b"0", b"1"]
    assert world.sync(follower).reply.assignment == b"1", "asked again, the same answer"


def test_a_new_member_is_told_its_id_first(world: GroupWorld) -> None:
    told = world.join(requires_known_id=True)
    assert told.error is MemberIdRequiredError
    joined = world.join(told.reply.member_id, requires_known_id=True)
    world.advance(3_000)
    assert joined.reply.member_id == told.reply.member_id
    assert world.group.pending == {}


def test_an_id_that_never_joins_is_forgotten_and_holds_up_nobody_for_ever(world: GroupWorld) -> None:
    # A14
    (one,) = world.stable()
    world.join(requires_known_id=True)
    again = world.join(one.member_id, protocols=(("range", subscription("t", "u")),))
    assert not again.is_there
    world.advance(10_000)
    assert again.reply.generation == 2
    assert world.group.pending == {}


def test_a_member_that_falls_silent_is_out_after_its_session(world: GroupWorld) -> None:
    one, two = world.stable(2)
    for _ in range(3):
        world.advance(4_000)
        error = world.heartbeat(one)
    assert error is RebalanceInProgressError
    assert two.member_id not in world.group.members
    again = world.join(one.member_id)
    assert again.reply.generation == one.generation + 1
    assert len(again.reply.members) == 1


def test_members_that_do_not_join_again_in_time_are_out(world: GroupWorld) -> None:
    one, two = world.stable(2, session_timeout_ms=100_000)
    world.join()
    again = world.join(one.member_id)
    world.advance(59_999)
    assert not again.is_there
    world.advance(1)
    assert again.reply.generation == 2
    assert two.member_id not in world.group.members


def test_members_that_do_not_sync_in_time_are_out(world: GroupWorld) -> None:
    waits = [world.join(session_timeout_ms=100_000) for _ in range(2)]
    world.advance(6_000)
    leader, follower = (wait.reply for wait in waits)
    world.sync(leader, {})
    world.advance(60_000)
    assert list(world.group.members) == [leader.member_id]
    assert world.group.state is State.PREPARING
    assert world.heartbeat(follower) is UnknownMemberIdError


def test_a_leader_that_joins_again_starts_a_rebalance_a_follower_does_not(world: GroupWorld) -> None:
    leader, follower = world.stable(2)
    assert world.join(follower.member_id).reply.generation == 1
    again = world.join(leader.member_id)
    assert not again.is_there
    assert world.heartbeat(follower) is RebalanceInProgressError
    assert world.join(follower.member_id).reply.generation == 2
    assert again.reply.generation == 2


def test_a_lost_join_answer_is_given_again(world: GroupWorld) -> None:
    joined = world.join()
    world.advance(3_000)
    assert world.join(joined.reply.member_id).reply == joined.reply


def test_a_rebalance_before_the_assignment_sends_those_who_sync_back_to_join(world: GroupWorld) -> None:
    waits = [world.join(), world.join()]
    world.advance(6_000)
    leader, follower = (wait.reply for wait in waits)
    synced = world.sync(follower)
    world.join()
    assert synced.error is RebalanceInProgressError
    assert world.sync(leader, {}).error is RebalanceInProgressError


def test_the_protocol_is_one_that_all_support_and_most_want(world: GroupWorld) -> None:
    def offer(*names: str) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, b"") for name in names)

    waits = [world.join(protocols=offer("a", "b", "c")), world.join(protocols=offer("c", "b"))]
    waits.append(world.join(protocols=offer("d", "b", "c")))
    refused = world.join(protocols=offer("a"))
    assert refused.error is InconsistentGroupProtocolError
    assert world.join(protocol_type="connect").error is InconsistentGroupProtocolError
    world.advance(12_000)
    assert {wait.reply.protocol for wait in waits} == {"b"}


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(world: GroupWorld, timeout_ms: int) -> None:
    assert world.join(session_timeout_ms=timeout_ms).error is InvalidSessionTimeoutError
    assert world.shard.groups == {}


def test_a_group_has_a_greatest_size() -> None:
    # A14
    world = GroupWorld(members_max=2)
    world.stable(2)
    assert world.join().error is GroupMaxSizeReachedError


def test_groups_that_nobody_ever_joins_are_gone_after_a_while(world: GroupWorld) -> None:
    # A14
    for number in range(200):
        world.join(group_id=f"g{number}", requires_known_id=True)
    assert len(world.shard.groups) == 200
    world.advance(11_000)
    world.expire_offsets()
    assert world.shard.groups == {}


def test_a_group_above_a_lowered_size_loses_those_who_come_last() -> None:
    world = GroupWorld()
    members = world.stable(3)
    world.settings = GroupSettings(members_max=2)
    world.reload()
    assert world.group.state is State.PREPARING
    waits = [world.join(one.member_id) for one in members]
    assert waits[2].error is GroupMaxSizeReachedError
    assert waits[2].reply.member_id == ""
    world.advance(60_000)
    assert [wait.error for wait in waits[:2]] == [None, None]
    assert world.group.members.keys() == {one.member_id for one in members[:2]}


def test_a_new_member_waits_five_minutes_for_the_others_and_no_longer(world: GroupWorld) -> None:
    (one,) = world.stable(rebalance_timeout_ms=600_000)
    waiting = world.join(rebalance_timeout_ms=600_000)
    for _ in range(37):
        world.advance(8_000)
        world.heartbeat(one)  # it lives, and does not join
    assert not waiting.is_there
    world.advance(4_000)
    assert waiting.error is UnknownMemberIdError
    assert list(world.group.members) == [one.member_id]


def test_unknown_members_and_other_generations_are_refused(world: GroupWorld) -> None:
    (one,) = world.stable()
    assert world.join("nobody").error is UnknownMemberIdError
    assert world.heartbeat(one._replace(generation=7)) is IllegalGenerationError
    assert world.sync(one._replace(member_id="nobody")).error is UnknownMemberIdError
    assert world.sync(one, protocol="other").error is InconsistentGroupProtocolError


def test_the_last_member_that_leaves_leaves_an_empty_group(world: GroupWorld) -> None:
    (one,) = world.stable()
    assert world.leave(Leaving(one.member_id, None), Leaving("x", None))[1].error is not None
    assert world.group.state is State.EMPTY
    assert world.group.generation == 2
    _, value = world.records[-1]
    assert isinstance(value, GroupValue)
    assert (value.members, value.protocol, value.leader) == ((), None, None)
    assert world.heartbeat(one) is UnknownMemberIdError


def test_a_member_that_leaves_while_it_waits_is_answered(world: GroupWorld) -> None:
    joining = world.join()
    (member_id,) = world.group.members
    world.leave(Leaving(member_id, None))
    assert joining.error is UnknownMemberIdError
    assert world.group.state is State.EMPTY


def test_a_returning_static_member_disturbs_nobody(world: GroupWorld) -> None:
    leader, follower = world.stable(2, instance_id=None)
    world.leave(Leaving(follower.member_id, None))
    static = world.join(instance_id="i")
    leader = world.join(leader.member_id).reply
    world.sync(leader, {static.reply.member_id: b"mine", leader.member_id: b"its"})
    back = world.join(instance_id="i")
    assert back.reply.generation == leader.generation
    assert back.reply.member_id != static.reply.member_id
    assert world.heartbeat(leader) is None
    assert world.sync(back.reply, instance_id="i").reply.assignment == b"mine"
    assert world.heartbeat(static.reply, "i") is FencedInstanceIdError
    _, value = world.records[-1]
    assert isinstance(value, GroupValue)
    assert back.reply.member_id in {member.member_id for member in value.members}


@pytest.mark.parametrize("skips", [True, False])
def test_a_returning_static_leader_does_not_assign_again(world: GroupWorld, skips: bool) -> None:
    (leader,) = world.stable(instance_id="i")
    back = world.join(instance_id="i", may_skip_assignment=skips).reply
    assert (back.leader == back.member_id, back.skip_assignment) == (skips, skips)
    assert (back.leader == leader.member_id) is not skips


def test_a_static_member_with_another_subscription_starts_a_rebalance_only_if_the_protocol_changes(
    world: GroupWorld,
) -> None:
    world.stable(instance_id="i", protocols=(("a", b""), ("b", b"")))
    assert world.join(instance_id="i", protocols=(("a", b""),)).reply.generation == 1
    assert world.join(instance_id="i", protocols=(("b", b""),)).error is InconsistentGroupProtocolError


def test_a_static_member_leaves_by_its_instance(world: GroupWorld) -> None:
    world.stable(instance_id="i")
    (left,) = world.leave(Leaving("", "i"))
    assert left.error is None
    assert world.group.static == {}
    assert world.group.state is State.EMPTY


def test_static_members_that_are_away_keep_their_place_during_a_rebalance(world: GroupWorld) -> None:
    (leader,) = world.stable(instance_id="i", session_timeout_ms=1_000_000)
    joining = world.join()
    world.advance(60_000)
    assert joining.reply.generation == 2
    assert leader.member_id in {member.member_id for member in joining.reply.members}
    assert joining.reply.leader == joining.reply.member_id


def test_an_assignment_that_cannot_be_written_sends_all_back_to_join(world: GroupWorld) -> None:
    waits = [world.join(), world.join()]
    world.advance(6_000)
    leader, follower = (wait.reply for wait in waits)
    synced = world.sync(follower)
    world.failure = MessageTooLargeError("too large")
    assert world.sync(leader, {}).error is MessageTooLargeError
    assert synced.error is MessageTooLargeError
    assert world.group.state is State.PREPARING


def test_a_static_member_whose_return_cannot_be_written_is_not_back(world: GroupWorld) -> None:
    (leader,) = world.stable(instance_id="i")
    world.failure = MessageTooLargeError("too large")
    assert world.join(instance_id="i").error is MessageTooLargeError
    assert world.heartbeat(leader, "i") is None


def test_a_group_comes_back_from_its_records(world: GroupWorld) -> None:
    one, two = world.stable(2)
    world.reload()
    assert world.group.state is State.STABLE
    assert world.heartbeat(one) is None
    assert world.sync(two).reply.assignment == two.member_id.encode()
    assert world.group.leader == one.member_id
    world.advance(9_000)
    assert world.heartbeat(one) is None
    world.advance(9_000)
    assert list(world.group.members) == [one.member_id]


def test_those_who_wait_are_sent_away_when_the_coordinator_moves(world: GroupWorld) -> None:
    joining = world.join()
    world.run(world.shard.resign())
    assert joining.reply.error is not None
    assert world.shard.groups == {}
