"""Offsets: who may commit them, how long they live, and who may delete them."""

from __future__ import annotations

import struct

import pytest
from tests.unit.coordinator.group_world import OUTSIDER, GroupWorld, subscription

from penstock.coordinator.groups.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from penstock.coordinator.groups.messages import Asker, Commit, Joined, Leaving
from penstock.coordinator.groups.model import State
from penstock.coordinator.places import partition_of
from penstock.protocol.group_records import GroupKey, OffsetKey, OffsetValue, decode_offset_value

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def commit_of(topic: str = "t", offset: int = 5) -> Commit:
    return Commit(topic, 0, offset, 1, "note")


def asker_of(joined: Joined) -> Asker:
    return Asker(joined.member_id, None, joined.generation)


def beat(world: GroupWorld, joined: Joined, ms: int) -> None:
    for _ in range(0, ms, 1_700_000):
        world.advance(1_700_000)
        assert world.heartbeat(joined) is None


def test_java_s_hash_chooses_the_partition() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE.
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("", 50) == 0
    assert partition_of("my-group", 50) == abs(hash_of("my-group")) % 50
    assert partition_of("grüße-😀", 50) == abs(hash_of("grüße-😀")) % 50


def hash_of(text: str) -> int:
    code = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        code = (code * 31 + unit) % 2**32
    return code - 2**32 if code >= 2**31 else code


def test_a_client_outside_of_any_group_commits_to_an_empty_one(world: GroupWorld) -> None:
    (outcome,) = world.commit(OUTSIDER, commit_of())
    assert outcome.error is None
    assert world.group.offsets["t", 0].offset == 5
    world.reload()
    assert world.group.offsets["t", 0] == OffsetValue(5, 1, "note", world.clock.wall_ms())


def test_members_commit_in_their_generation_and_nobody_else_does(world: GroupWorld) -> None:
    (one,) = world.stable()
    assert world.commit(asker_of(one), commit_of())[0].error is None
    with pytest.raises(UnknownMemberIdError):
        world.commit(OUTSIDER, commit_of())
    with pytest.raises(IllegalGenerationError):
        world.commit(Asker(one.member_id, None, 7), commit_of())
    with pytest.raises(IllegalGenerationError):
        world.commit(asker_of(one), commit_of(), group_id="other")


def test_nobody_commits_while_the_assignment_is_on_its_way(world: GroupWorld) -> None:
    joined = world.join()
    world.advance(3_000)
    with pytest.raises(RebalanceInProgressError):
        world.commit(asker_of(joined.reply), commit_of())


def test_a_commit_is_a_sign_of_life(world: GroupWorld) -> None:
    (one,) = world.stable()
    for _ in range(5):
        world.advance(9_000)
        world.commit(asker_of(one), commit_of())
    assert world.heartbeat(one) is None


def test_a_note_that_is_too_long_concerns_its_partition_only(world: GroupWorld) -> None:
    outcomes = world.commit(OUTSIDER, Commit("t", 0, 1, -1, "x" * 4_097), commit_of("u"))
    assert [type(outcome.error) for outcome in outcomes] == [OffsetMetadataTooLargeError, type(None)]
    assert list(world.group.offsets) == [("u", 0)]


def test_offsets_of_a_simple_group_live_from_their_commit(world: GroupWorld) -> None:
    world.commit(OUTSIDER, commit_of("old"))
    world.advance(4 * DAY_MS)
    world.commit(OUTSIDER, commit_of("new"))
    world.advance(3 * DAY_MS)
    world.expire_offsets()
    assert list(world.group.offsets) == [("new", 0)]
    world.advance(4 * DAY_MS)
    world.expire_offsets()
    assert world.shard.groups == {}
    assert world.records[-1] == (GroupKey("g"), None)
    world.reload()
    assert world.shard.groups == {}


def test_offsets_of_a_living_group_do_not_expire_and_then_live_from_its_end(world: GroupWorld) -> None:
    # KAFKA-4682
    (one,) = world.stable(session_timeout_ms=1_800_000)
    world.commit(asker_of(one), commit_of())
    beat(world, one, 8 * DAY_MS)
    world.expire_offsets()
    assert ("t", 0) in world.group.offsets
    world.leave(Leaving(one.member_id, None))
    world.advance(WEEK_MS - 1)
    world.expire_offsets()
    assert ("t", 0) in world.group.offsets
    world.reload()
    world.expire_offsets()
    assert ("t", 0) in world.group.offsets, "the time of its end is in the record"
    world.advance(1)
    world.expire_offsets()
    assert world.shard.groups == {}


def test_a_stable_group_loses_offsets_of_topics_it_left(world: GroupWorld) -> None:
    (one,) = world.stable(session_timeout_ms=1_800_000, protocols=(("range", subscription("t")),))
    world.commit(asker_of(one), commit_of("t"), commit_of("left"))
    beat(world, one, 8 * DAY_MS)
    world.expire_offsets()
    assert list(world.group.offsets) == [("t", 0)]


def test_a_group_between_generations_loses_nothing(world: GroupWorld) -> None:
    # KAFKA-13636
    (one,) = world.stable(session_timeout_ms=1_800_000)
    world.commit(asker_of(one), commit_of("left"))
    beat(world, one, 8 * DAY_MS)
    world.join()
    assert world.group.state is State.PREPARING
    world.expire_offsets()
    assert ("left", 0) in world.group.offsets


def test_what_a_transaction_is_about_to_write_does_not_expire_before_it_ends(world: GroupWorld) -> None:
    world.commit(OUTSIDER, commit_of("held"), commit_of("free"))
    world.shard.hold(7, OffsetKey("g", "held", 0), OffsetValue(9, -1, "", 0))
    world.advance(WEEK_MS)
    world.expire_offsets()
    assert list(world.group.offsets) == [("held", 0)]
    world.shard.end_transaction(7, commit=False)
    world.expire_offsets()
    assert world.shard.groups == {}


def test_an_offset_that_an_older_broker_wrote_without_an_expiry_has_none(world: GroupWorld) -> None:
    # KAFKA-8069: its format has a place for one, and -1 there
    written = struct.pack(">hqh", 1, 5, 0) + struct.pack(">qq", world.clock.wall_ms(), -1)
    value = decode_offset_value(written)
    assert (value.offset, value.version) == (5, 1)
    world.shard.replay(OffsetKey("g", "t", 0), value)
    world.run(world.shard.loaded())
    world.advance(WEEK_MS - 1)
    world.expire_offsets()
    assert ("t", 0) in world.group.offsets
    world.advance(1)
    world.expire_offsets()
    assert world.shard.groups == {}


def test_an_expiry_of_the_clients_choice_counts_also_after_a_reload(world: GroupWorld) -> None:
    world.commit(OUTSIDER, commit_of(), retention_ms=1_000)
    world.reload()
    world.advance(999)
    world.expire_offsets()
    assert ("t", 0) in world.group.offsets
    world.advance(1)
    world.expire_offsets()
    assert world.shard.groups == {}


def test_a_deleted_group_is_gone_and_its_id_can_be_used_again(world: GroupWorld) -> None:
    # KAFKA-4704
    (one,) = world.stable()
    world.commit(asker_of(one), commit_of())
    with pytest.raises(NonEmptyGroupError):
        world.shard.delete("g")
    world.leave(Leaving(one.member_id, None))
    world.run(world.shard.delete("g"))
    with pytest.raises(GroupIdNotFoundError):
        world.shard.delete("g")
    world.reload()
    assert world.shard.groups == {}
    world.commit(OUTSIDER, commit_of("u"))
    world.reload()
    assert list(world.group.offsets) == [("u", 0)]
    assert world.group.protocol_type is None


def test_offsets_are_deleted_where_no_member_lives_by_them(world: GroupWorld) -> None:
    (one,) = world.stable()
    world.commit(asker_of(one), commit_of("t"), commit_of("u"))
    decision, outcomes = world.shard.delete_offsets("g", [("t", 0), ("u", 0), ("u", 9)])
    world.run(decision)
    assert [type(one.error) for one in outcomes] == [GroupSubscribedToTopicError, type(None), type(None)]
    assert list(world.group.offsets) == [("t", 0)]
    assert world.records[-1] == (OffsetKey("g", "u", 0), None)
    with pytest.raises(GroupIdNotFoundError):
        world.shard.delete_offsets("other", [])


def test_offsets_of_a_deleted_topic_go_with_it(world: GroupWorld) -> None:
    world.commit(OUTSIDER, commit_of("t"), commit_of("u"))
    world.run(world.shard.forget_topics(["u"]))
    assert list(world.group.offsets) == [("t", 0)]


def test_a_group_that_went_between_two_turns_takes_no_other_of_its_name_along(world: GroupWorld) -> None:
    for group in ("a", "g"):
        world.run(world.shard.commit(group, OUTSIDER, [commit_of("t")])[0])
    steps = world.shard.expire_offsets()
    world.run(next(steps))
    world.run(world.shard.forget_topics(["t"]))
    world.run(world.shard.commit("g", OUTSIDER, [commit_of("u")])[0])
    for decision in steps:
        world.run(decision)
    assert list(world.shard.groups["g"].offsets) == [("u", 0)]
