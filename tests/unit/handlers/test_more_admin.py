"""Elections, reassignments, features, listings, SASL without it; in every version."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.world import World, shape

from penstock.handlers import features
from penstock.handlers.authoriser import CLUSTER_NAME, Action
from penstock.handlers.features import Feature

SECOND = datetime.timedelta(seconds=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create_topic("a", 3)
    made.create_topic("b", 2)
    return made


def elect(world: World, asked: dict[str, tuple[int, ...]] | None, version: int, kind: int = 0) -> Any:
    make = shape(43, version).topic_partitions
    topics = None
    if asked is not None:
        topics = tuple(make.make(topic=topic, partitions=numbers) for topic, numbers in asked.items())
    answer = world.send(43, version, election_type=kind, topic_partitions=topics, timeout=SECOND)
    world.loop.turn()
    return answer.read()


def elected(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_who_leads_already_is_not_elected(world: World, version: int) -> None:
    assert elected(elect(world, {"a": (0, 9), "c": (0,)}, version)) == {
        ("a", 0): ErrorCode.election_not_needed,
        ("a", 9): ErrorCode.unknown_topic_or_partition,
        ("c", 0): ErrorCode.unknown_topic_or_partition,
    }
    assert elected(elect(world, None, version)) == {}


def test_an_election_brings_back_a_leader_where_the_replica_is_there(world: World) -> None:
    from penstock.base.ids import TopicPartition
    from penstock.controller.leaders import decide_offline

    world.services.topics.submit(decide_offline(world.image, [TopicPartition("a", 0)]), lambda error: None)
    world.loop.turn()
    assert world.image.topics["a"].partitions[0].leader == -1
    assert elected(elect(world, None, 2)) == {("a", 0): ErrorCode.none}
    assert world.image.topics["a"].partitions[0].leader == 1
    assert world.partitions.get("a", 0).is_leader
    world.services.topics.submit(decide_offline(world.image, [TopicPartition("a", 0)]), lambda error: None)
    world.loop.turn()
    assert elected(elect(world, {"a": (0, 1)}, 1, kind=1)) == {
        ("a", 0): ErrorCode.none,
        ("a", 1): ErrorCode.election_not_needed,
    }


def test_a_replica_in_a_failed_directory_is_not_elected(world: World) -> None:
    from penstock.base.ids import TopicPartition
    from penstock.controller.leaders import decide_offline

    world.image.set_offline([("a", 0)], 1)
    world.services.topics.submit(decide_offline(world.image, [TopicPartition("a", 0)]), lambda error: None)
    world.loop.turn()
    assert elected(elect(world, {"a": (0,)}, 2)) == {("a", 0): ErrorCode.preferred_leader_not_available}
    assert elected(elect(world, {"a": (0,)}, 2, kind=1)) == {("a", 0): ErrorCode.eligible_leaders_not_available}
    assert elect(world, {"a": (0,)}, 2, kind=7).error_code == ErrorCode.invalid_request


def reassign(world: World, replicas: tuple[int, ...] | None, version: int, number: int = 0) -> ErrorCode:
    make = shape(45, version).topics
    entry = make.partitions.make(partition_index=number, replicas=replicas)
    answer = world.send(
        45,
        version,
        timeout=SECOND,
        allow_replication_factor_change=False,
        topics=(make.make(name="a", partitions=(entry,)),),
    )
    world.loop.turn()
    code: ErrorCode = answer.read().responses[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", range(2))
def test_reassignments_on_one_node(world: World, version: int) -> None:
    assert reassign(world, (1,), version) == ErrorCode.none
    assert reassign(world, (2,), version) == ErrorCode.invalid_replica_assignment
    assert reassign(world, (1, 1), version) == ErrorCode.invalid_replica_assignment
    assert reassign(world, (), version) == ErrorCode.invalid_replica_assignment
    assert reassign(world, None, version) == ErrorCode.no_reassignment_in_progress
    assert reassign(world, (1,), version, number=9) == ErrorCode.unknown_topic_or_partition
    listed = world.send(46, 0, timeout=SECOND, topics=None).read()
    assert (listed.error_code, listed.topics) == (ErrorCode.none, ())


@pytest.mark.parametrize("version", range(3))
def test_features_have_the_level_that_comes_with_the_version(
    world: World, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "FEATURES", {"x.version": Feature(0, 2, 2)})

    def update(name: str, level: int) -> ErrorCode:
        make = shape(57, version).feature_updates
        one = make.make(feature=name, max_version_level=level, allow_downgrade=False, upgrade_type=1)
        answer = world.send(57, version, timeout=SECOND, feature_updates=(one,), validate_only=False).read()
        code: ErrorCode = answer.error_code
        return code

    assert update("x.version", 2) == ErrorCode.none
    assert update("x.version", 1) == ErrorCode.invalid_update_version
    assert update("nothing", 1) == ErrorCode.invalid_update_version
    world.authoriser.denied.add((Action.ALTER, CLUSTER_NAME))
    assert update("x.version", 2) == ErrorCode.cluster_authorization_failed


def test_configuration_resources_are_listed_by_kind(world: World) -> None:
    def listed(*kinds: int) -> list[tuple[int, str]]:
        answer = world.send(74, 1, resource_types=kinds).read()
        assert answer.error_code == ErrorCode.none
        return [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert listed(2) == [(2, "a"), (2, "b")]
    assert listed(4) == [(4, "1")]
    assert set(listed()) >= {(2, "a"), (4, "1")}
    assert world.send(74, 1, resource_types=(99,)).read().error_code == ErrorCode.unsupported_version
    assert world.send(74, 0).read().config_resources == ()


def pages(world: World, names: tuple[str, ...], limit: int) -> list[list[tuple[str, int]]]:
    make = shape(75, 0)
    found, cursor = [], None
    while True:
        answer = world.send(
            75,
            0,
            topics=tuple(make.topics.make(name=name) for name in names),
            response_partition_limit=limit,
            cursor=cursor,
        ).read()
        found.append([(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions])
        if answer.next_cursor is None:
            return found
        cursor = make.cursor.make(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_partitions_come_in_pages_that_are_all_of_them(world: World, limit: int) -> None:
    every = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    for names in ((), ("a", "b")):
        found = pages(world, names, limit)
        assert [one for page in found for one in page] == every
        assert all(len(page) == limit for page in found[:-1])


def test_partitions_of_what_is_not_there(world: World) -> None:
    make = shape(75, 0)
    names = ("a", "nothing", "a/b")
    answer = world.send(
        75, 0, topics=tuple(make.topics.make(name=name) for name in names), response_partition_limit=99, cursor=None
    ).read()
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "a": ErrorCode.none,
        "nothing": ErrorCode.unknown_topic_or_partition,
        "a/b": ErrorCode.invalid_topic_exception,
    }
    cursor = make.cursor.make(topic_name="b", partition_index=0)
    refused = world.send(75, 0, topics=(make.topics.make(name="a"),), response_partition_limit=9, cursor=cursor).read()
    assert [topic.error_code for topic in refused.topics] == [ErrorCode.invalid_request]


@pytest.mark.parametrize("version", range(2))
def test_nobody_authenticates_on_a_plain_listener(world: World, version: int) -> None:
    # A6
    assert world.send(17, version, mechanism="PLAIN").read().error_code == ErrorCode.illegal_sasl_state
    assert world.send(36, version, auth_bytes=b"\0u\0p").read().error_code == ErrorCode.illegal_sasl_state


def test_operations_are_told_where_they_are_asked_for(world: World) -> None:
    world.authoriser.denied.add((Action.WRITE, "a"))

    def operations(wanted: bool) -> tuple[int, int]:
        make = shape(3, 10)
        answer = world.send(
            3,
            10,
            topics=(make.topics.make(name="a", topic_id=None),),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=wanted,
            include_topic_authorized_operations=wanted,
        ).read()
        return answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations

    every_topic = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    assert operations(True) == (sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12)), every_topic - (1 << 4))
    assert operations(False) == (-(2**31), -(2**31))
