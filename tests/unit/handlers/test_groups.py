"""The group APIs in every version: found, joined, synced, committed, fetched, described, listed, deleted."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.coordinator.group_world import subscription
from tests.unit.handlers.world import Answer, World, shape

from penstock.handlers.authoriser import Action
from penstock.metadata import layout
from penstock.metadata.store import Create, Transaction

COMMIT, FETCH, FIND, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, DELETE_OFFSETS = (
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    42,
    47,
)
SECOND = timedelta(seconds=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, offsets_topic_num_partitions="3", group_initial_rebalance_delay_ms="0")
    made.create_topic("t", 2)
    return made


def find(world: World, version: int = 6, key: str = "g", key_type: int = 0) -> Any:
    request = shape(FIND, version).make(key=key, key_type=key_type, coordinator_keys=(key,))
    answer = world.send_entity(FIND, version, request)
    world.loop.turn()
    read = answer.read()
    return read.coordinators[0] if version >= 4 else read


def send_join(world: World, version: int = 9, member_id: str = "", **values: Any) -> Answer:
    make = shape(JOIN, version)
    fields = {
        "group_id": "g",
        "session_timeout": 10 * SECOND,
        "rebalance_timeout": 60 * SECOND,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (make.protocols.make(name="range", metadata=subscription("t")),),
        "reason": None,
    }
    return world.send(JOIN, version, **{**fields, **values})


def join(world: World, version: int = 9, **values: Any) -> Any:
    """Joins as the version wants it: with an id that was given before, from 4 on."""
    answer = send_join(world, version, **values).read()
    if answer.error_code == ErrorCode.member_id_required:
        assert version >= 4
        answer = send_join(world, version, answer.member_id, **values).read()
    assert answer.error_code == ErrorCode.none
    return answer


def sync(world: World, version: int, joined: Any, **values: Any) -> Any:
    make = shape(SYNC, version)
    fields = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": (make.assignments.make(member_id=joined.member_id, assignment=b"mine"),),
    }
    return world.send(SYNC, version, **{**fields, **values}).read()


def beat(world: World, version: int, joined: Any) -> ErrorCode:
    fields = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    code: ErrorCode = world.send(BEAT, version, group_instance_id=None, **fields).read().error_code
    return code


def leave(world: World, version: int, member_id: str) -> Any:
    members: tuple[Any, ...] = ()
    if version >= 3:
        members = (shape(LEAVE, version).members.make(member_id=member_id, group_instance_id=None, reason=None),)
    return world.send(LEAVE, version, group_id="g", member_id=member_id, members=members).read()


def commit(world: World, version: int = 10, joined: Any = None, **values: Any) -> list[ErrorCode]:
    make = shape(COMMIT, version)
    partition = make.topics.partitions.make(
        partition_index=1, committed_offset=5, committed_leader_epoch=2, committed_metadata="note"
    )
    topic = make.topics.make(name="t", topic_id=world.image.topics["t"].topic_id, partitions=(partition,))
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1 if joined is None else joined.generation_id,
        "member_id": "" if joined is None else joined.member_id,
        "group_instance_id": None,
        "retention_time": timedelta(milliseconds=-1),
        "topics": (topic,),
    }
    answer = world.send(COMMIT, version, **{**fields, **values}).read()
    return [entry.error_code for topic in answer.topics for entry in topic.partitions]


def send_fetch(world: World, version: int = 10, group: str = "g", **values: Any) -> Answer:
    make = shape(FETCH, version)
    inner = make.groups if version >= 8 else make
    topics = (inner.topics.make(name="t", topic_id=world.image.topics["t"].topic_id, partition_indexes=(0, 1)),)
    fields = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics, **values}
    if version < 8:
        return world.send(FETCH, version, require_stable=True, **fields)
    return world.send(FETCH, version, require_stable=True, groups=(inner.make(**fields),))


def fetch(world: World, version: int = 10, group: str = "g", **values: Any) -> Any:
    """The group's part of the answer."""
    answer = send_fetch(world, version, group, **values).read()
    return answer.groups[0] if version >= 8 else answer


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_and_its_topic_made_first(world: World, version: int) -> None:
    found = find(world, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.none, 1, "h", 9)
    assert len(world.image.topics["__consumer_offsets"].partitions) == 3
    assert world.image.topic_configs["__consumer_offsets"]["cleanup.policy"] == "compact"


def test_a_topic_that_another_broker_makes_at_the_same_time_is_no_failure(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Two clients, or one, ask two brokers at once: each of these would make it, and the store takes the first."""
    path = layout.topic_config_path("__consumer_offsets")
    world.store.submit(Transaction(operations=(Create(path=path, data=layout.encode_config({})),)))
    assert find(world).error_code == ErrorCode.coordinator_not_available
    assert caplog.records == []


def test_there_are_no_other_coordinators_yet(world: World) -> None:
    assert find(world, key_type=2).error_code == ErrorCode.invalid_request


def test_before_the_topic_is_there_no_broker_coordinates(world: World) -> None:
    assert send_join(world).read().error_code == ErrorCode.coordinator_not_available
    assert commit(world) == [ErrorCode.coordinator_not_available]


@pytest.mark.parametrize("version", range(10))
def test_join(world: World, version: int) -> None:
    find(world)
    joined = join(world, version)
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert [member.metadata for member in joined.members] == [subscription("t")]
    refused = send_join(world, version, "nobody").read()
    assert refused.error_code == ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", range(6))
def test_sync_heartbeat_and_leave(world: World, version: int) -> None:
    find(world)
    joined = join(world)
    assert sync(world, version, joined).assignment == b"mine"
    assert beat(world, min(version, 4), joined) == ErrorCode.none
    left = leave(world, version, joined.member_id)
    assert left.error_code == ErrorCode.none
    assert beat(world, min(version, 4), joined) == ErrorCode.unknown_member_id
    again = leave(world, version, joined.member_id)
    code = again.members[0].error_code if version >= 3 else again.error_code
    assert code == ErrorCode.unknown_member_id


def test_of_an_assignment_that_no_record_can_hold_a_member_is_told_as_by_kafka(world: World) -> None:
    find(world)
    joined = join(world)
    large = shape(SYNC, 5).assignments.make(member_id=joined.member_id, assignment=bytes(2_000_000))
    synced = sync(world, 5, joined, assignments=(large,))
    assert synced.error_code == ErrorCode.unknown_server_error


def test_newer_members_name_their_protocol(world: World) -> None:
    find(world)
    joined = join(world)
    assert sync(world, 5, joined, protocol_name=None).error_code == ErrorCode.inconsistent_group_protocol
    assert sync(world, 5, joined, protocol_name="other").error_code == ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize("version", range(2, 11))
def test_commit(world: World, version: int) -> None:
    find(world)
    assert commit(world, version) == [ErrorCode.none]
    committed = fetch(world).topics[0].partitions
    epoch = 2 if version >= 6 else -1
    assert [(one.committed_offset, one.committed_leader_epoch, one.metadata) for one in committed] == [
        (-1, -1, ""),
        (5, epoch, "note"),
    ]
    joined = join(world)
    sync(world, 5, joined)
    assert commit(world, version) == [ErrorCode.unknown_member_id]
    assert commit(world, version, joined) == [ErrorCode.none]


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch(world: World, version: int) -> None:
    find(world)
    commit(world)
    (topic,) = fetch(world, version).topics
    assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(0, -1), (1, 5)]
    if version >= 2:
        (topic,) = fetch(world, version, topics=None).topics
        assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(1, 5)]
    (topic,) = fetch(world, version, "other").topics
    assert [one.committed_offset for one in topic.partitions] == [-1, -1]


def test_an_unknown_topic_is_named_and_the_others_are_committed(world: World) -> None:
    find(world)
    make = shape(COMMIT, 10)
    partition = make.topics.partitions.make(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=None
    )
    topics = tuple(
        make.topics.make(topic_id=topic_id, partitions=(partition,))
        for topic_id in (uuid.UUID(int=77), world.image.topics["t"].topic_id)
    )
    assert commit(world, topics=topics) == [ErrorCode.unknown_topic_id, ErrorCode.none]


@pytest.mark.parametrize("version", range(7))
def test_describe(world: World, version: int) -> None:
    find(world)
    joined = join(world)
    sync(world, 5, joined)
    answer = world.send(DESCRIBE, version, groups=("g", "other"), include_authorized_operations=False).read()
    found, other = answer.groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert [(one.client_host, one.member_assignment) for one in found.members] == [("/127.0.0.1", b"mine")]
    assert other.group_state == "Dead"
    assert other.error_code == (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@pytest.mark.parametrize("version", range(6))
def test_list(world: World, version: int) -> None:
    find(world)
    commit(world)
    sync(world, 5, join(world, group_id="g"))
    commit(world, group_id="simple")
    listed = world.send(LIST, version, states_filter=(), types_filter=()).read()
    assert sorted((one.group_id, one.protocol_type) for one in listed.groups) == [("g", "consumer"), ("simple", "")]
    if version >= 4:
        listed = world.send(LIST, version, states_filter=("stable",), types_filter=()).read()
        assert [(one.group_id, one.group_state) for one in listed.groups] == [("g", "Stable")]
    if version >= 5:
        assert world.send(LIST, version, states_filter=(), types_filter=("consumer",)).read().groups == ()


@pytest.mark.parametrize("version", range(3))
def test_delete(world: World, version: int) -> None:
    find(world)
    commit(world)
    join(world, group_id="busy")
    answer = world.send(DELETE, version, groups_names=("g", "busy", "other")).read()
    assert {one.group_id: one.error_code for one in answer.results} == {
        "g": ErrorCode.none,
        "busy": ErrorCode.non_empty_group,
        "other": ErrorCode.group_id_not_found,
    }
    assert fetch(world).topics[0].partitions[1].committed_offset == -1


def test_delete_offsets(world: World) -> None:
    find(world)
    commit(world)
    make = shape(DELETE_OFFSETS, 0)
    partition = make.topics.partitions.make(partition_index=1)
    topics = (make.topics.make(name="t", partitions=(partition,)), make.topics.make(name="x", partitions=(partition,)))
    answer = world.send(DELETE_OFFSETS, 0, group_id="g", topics=topics).read()
    assert answer.error_code == ErrorCode.none
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert fetch(world).topics[0].partitions[1].committed_offset == -1
    assert world.send(DELETE_OFFSETS, 0, group_id="no", topics=topics).read().error_code == ErrorCode.group_id_not_found


def test_a_member_that_falls_silent_frees_those_who_wait(world: World) -> None:
    find(world)
    first = join(world)
    sync(world, 5, first)
    waiting = send_join(world, 3)
    world.loop.advance(9_000)
    assert not waiting.is_there
    world.loop.advance(1_000)
    assert waiting.read().generation_id == 2


def test_groups_and_offsets_come_back_from_the_log_in_slices(world: World) -> None:
    find(world)
    joined = join(world)
    sync(world, 5, joined)
    for number in range(500):
        commit(world, group_id=f"g{number}")
    commit(world, joined=joined)
    for partition in world.partitions.of_topic("__consumer_offsets"):
        partition.leader_epoch += 1
    world.groups.follow(["__consumer_offsets"])
    assert beat(world, 4, joined) == ErrorCode.coordinator_load_in_progress
    assert world.send(LIST, 5, states_filter=(), types_filter=()).read().error_code == (
        ErrorCode.coordinator_load_in_progress
    )
    world.loop.turn()
    assert beat(world, 4, joined) == ErrorCode.none
    assert len(world.send(LIST, 5, states_filter=(), types_filter=()).read().groups) == 501
    assert fetch(world, group="g499").topics[0].partitions[1].committed_offset == 5


def test_a_group_whose_partition_is_led_elsewhere_is_not_coordinated_here(world: World) -> None:
    # KAFKA-4362
    find(world)
    first = join(world)
    sync(world, 5, first)
    waiting = send_join(world, 3)
    for partition in world.partitions.of_topic("__consumer_offsets"):
        partition.is_leader = False
    world.groups.follow(["__consumer_offsets"])
    assert waiting.read().error_code == ErrorCode.not_coordinator
    assert beat(world, 4, first) == ErrorCode.not_coordinator


def send_commit(world: World) -> Answer:
    make = shape(COMMIT, 2)
    partition = make.topics.partitions.make(partition_index=1, committed_offset=9, committed_metadata="")
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    topics = (make.topics.make(name="t", partitions=(partition,)),)
    return world.send(COMMIT, 2, retention_time=timedelta(milliseconds=-1), topics=topics, **fields)


def flush_each(world: World) -> None:
    """From now on a group's record is committed when it is flushed, in a later turn of the loop."""
    topic = world.image.topics["__consumer_offsets"]
    configs = {**world.image.topic_configs[topic.name], "flush.messages": "1"}
    world.services.topics.submit(world.services.topics.decide_config(topic, configs), lambda error: None)
    world.loop.turn()


def test_a_commit_is_answered_when_it_is_below_the_high_watermark(world: World) -> None:
    find(world)
    flush_each(world)
    waiting = send_commit(world)
    assert not waiting.is_there, "the record waits for its flush"
    world.loop.turn()
    assert waiting.read().topics[0].partitions[0].error_code == ErrorCode.none


@pytest.mark.parametrize("version", [1, 7, 10])
def test_offsets_are_told_when_they_are_below_the_high_watermark(world: World, version: int) -> None:
    find(world)
    flush_each(world)
    send_commit(world)
    waiting = send_fetch(world, version)
    assert not waiting.is_there, "what is not committed may be lost with its leader"
    world.loop.turn()
    answer = waiting.read()
    (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
    assert [one.committed_offset for one in topic.partitions] == [-1, 9]


@pytest.mark.parametrize("version", [1, 7, 10])
def test_offsets_that_are_not_committed_are_not_told_by_who_leads_no_longer(world: World, version: int) -> None:
    find(world)
    flush_each(world)
    send_commit(world)
    waiting = send_fetch(world, version)
    for partition in world.partitions.of_topic("__consumer_offsets"):
        partition.is_leader = False
        world.services.produce_waits.changed(partition.topic_partition)
    world.services.produce_waits.check()
    answer = waiting.read()
    if version >= 2:
        group = answer.groups[0] if version >= 8 else answer
        assert (group.error_code, group.topics) == (ErrorCode.not_coordinator, ())
    else:
        assert {one.error_code for one in answer.topics[0].partitions} == {ErrorCode.not_coordinator}


def test_a_commit_that_cannot_be_written_is_refused_and_changes_nothing(world: World) -> None:
    # KAFKA-4362
    find(world)
    commit(world)
    for partition in world.partitions.of_topic("__consumer_offsets"):
        partition.is_leader = False
    assert commit(world, 2) == [ErrorCode.not_coordinator]
    assert fetch(world).topics[0].partitions[1].committed_offset == 5


def test_offsets_of_a_deleted_topic_are_forgotten(world: World) -> None:
    find(world)
    commit(world)
    topic = world.image.topics["t"]
    world.services.topics.delete(topic, lambda error: None)
    world.loop.turn()
    assert world.groups.find("g").shard.groups == {}


def test_offsets_expire_on_schedule(tmp_path: Path) -> None:
    world = World(tmp_path, offsets_topic_num_partitions="1", offsets_retention_minutes="1")
    world.create_topic("t", 2)
    world.groups.start()
    find(world)
    commit(world)
    world.loop.advance(590_000)
    assert fetch(world).topics[0].partitions[1].committed_offset == 5
    world.loop.advance(11_000)
    assert fetch(world).topics[0].partitions[1].committed_offset == -1
    assert world.groups.find("g").shard.groups == {}


def test_every_group_api_asks_the_authoriser(world: World) -> None:
    # A12
    find(world)
    joined = join(world)
    sync(world, 5, joined)
    for action in (Action.READ, Action.DESCRIBE, Action.DELETE):
        world.authoriser.denied.add((action, "g"))
    refused = ErrorCode.group_authorization_failed
    assert find(world).error_code == refused
    assert send_join(world).read().error_code == refused
    assert sync(world, 5, joined).error_code == refused
    assert beat(world, 4, joined) == refused
    assert leave(world, 5, joined.member_id).error_code == refused
    assert commit(world, joined=joined) == [refused]
    assert fetch(world).error_code == refused
    assert world.send(DESCRIBE, 5, groups=("g",), include_authorized_operations=False).read().groups[0].error_code == (
        refused
    )
    assert world.send(DELETE, 2, groups_names=("g",)).read().results[0].error_code == refused
    assert world.send(DELETE_OFFSETS, 0, group_id="g", topics=()).read().error_code == refused
    world.authoriser.denied = {(Action.READ, "t"), (Action.DESCRIBE, "t")}
    assert commit(world, joined=joined) == [ErrorCode.topic_authorization_failed]
    assert fetch(world).topics[0].partitions[0].error_code == ErrorCode.topic_authorization_failed
    world.authoriser.denied = {(Action.DESCRIBE, "g"), (Action.DESCRIBE, "kafka-cluster")}
    assert world.send(LIST, 5, states_filter=(), types_filter=()).read().groups == ()
