"""Topics: made, found, listed, removed; in every version."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.failing_files import FailingFiles
from tests.unit.handlers.test_produce_and_fetch import batch, produce
from tests.unit.handlers.world import Answer, World, shape

from penstock.base.ids import TopicPartition
from penstock.handlers.authoriser import Action


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def metadata(world: World, names: list[str] | None, *, version: int = 12, create: bool = True) -> Answer:
    make = shape(3, version)
    topics = None
    if names is not None:
        topics = tuple(make.topics.make(name=name, topic_id=uuid.UUID(int=0)) for name in names)
    elif version == 0:
        topics = ()
    return world.send(
        3,
        version,
        topics=topics,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def create(world: World, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> Answer:
    make = shape(19, version).topics
    return world.send(
        19,
        version,
        topics=tuple(
            make.make(
                name=topic["name"],
                num_partitions=topic.get("partitions", 1),
                replication_factor=topic.get("factor", 1),
                assignments=tuple(
                    make.assignments.make(partition_index=number, broker_ids=brokers)
                    for number, brokers in topic.get("assignments", {}).items()
                ),
                configs=tuple(
                    make.configs.make(name=name, value=value) for name, value in topic.get("configs", {}).items()
                ),
            )
            for topic in topics
        ),
        timeout=datetime.timedelta(seconds=1),
        validate_only=validate_only,
    )


def outcomes(world: World, answer: Answer) -> dict[str, ErrorCode]:
    world.loop.turn()
    return {topic.name: topic.error_code for topic in answer.read().topics}


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_any_version_names_the_leader_of_a_topic_it_just_made(world: World, version: int) -> None:
    answer = metadata(world, ["fresh"], version=version)
    assert not answer.is_there
    world.loop.turn()
    entity = answer.read()
    assert [(broker.node_id, broker.host, broker.port) for broker in entity.brokers] == [(1, "h", 9)]
    (topic,) = entity.topics
    assert (topic.name, topic.error_code) == ("fresh", ErrorCode.none)
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in topic.partitions] == [(0, 1, (1,))]
    every = metadata(world, None, version=version).read()
    assert [topic.name for topic in every.topics] == ["fresh"]


def test_a_topic_is_not_made_where_client_or_broker_say_no(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    assert outcomes(world, metadata(world, ["t"], create=False)) == {"t": ErrorCode.unknown_topic_or_partition}
    world = World(tmp_path / "b", auto_create_topics_enable="false")
    assert outcomes(world, metadata(world, ["t"])) == {"t": ErrorCode.unknown_topic_or_partition}
    assert world.image.topics == {}


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/b", "a\x00b", "", "ä", "x" * 250])
def test_a_name_that_cannot_be_a_path_is_no_topic(world: World, name: str) -> None:
    # KAFKA-495
    # A13
    assert outcomes(world, metadata(world, [name])) == {name: ErrorCode.invalid_topic_exception}
    assert outcomes(world, create(world, {"name": name})) == {name: ErrorCode.invalid_topic_exception}
    assert world.image.topics == {}


def test_topics_are_found_by_id(world: World) -> None:
    world.create_topic("t")
    make = shape(3, 12)
    topic_id = world.image.topics["t"].topic_id
    answer = world.send(
        3,
        12,
        topics=(
            make.topics.make(name=None, topic_id=topic_id),
            make.topics.make(name=None, topic_id=uuid.UUID(int=5)),
        ),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    ).read()
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("t", ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]


def test_topics_one_may_not_see_are_not_there(world: World) -> None:
    # A12
    world.create_topic("t")
    world.create_topic("secret")
    world.authoriser.denied.add((Action.DESCRIBE, "secret"))
    assert [topic.name for topic in metadata(world, None).read().topics] == ["t"]
    assert outcomes(world, metadata(world, ["secret"])) == {"secret": ErrorCode.topic_authorization_failed}


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_any_version(world: World, version: int) -> None:
    answer = create(world, {"name": "t", "partitions": 3, "configs": {"segment.bytes": "1000000"}}, version=version)
    assert outcomes(world, answer) == {"t": ErrorCode.none}
    assert len(world.partitions.of_topic("t")) == 3
    assert world.partitions.get("t", 2).log.config.segment_bytes == 1_000_000
    if version >= 5:
        (topic,) = answer.read().topics
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert {c.name: (c.value, c.config_source) for c in topic.configs}["segment.bytes"] == ("1000000", 1)


def test_what_cannot_be_created(world: World) -> None:
    # A13, A14
    world.create_topic("there.is")
    answer = create(
        world,
        {"name": "there.is"},
        {"name": "there_is"},
        {"name": "none", "partitions": 0},
        {"name": "many", "factor": 2},
        {"name": "config", "configs": {"segment.bytes": "x"}},
        {"name": "unknown", "configs": {"nonsense": "1"}},
        {"name": "null", "configs": {"segment.bytes": None}},
        {"name": "both", "assignments": {0: (1,)}},
        {"name": "gap", "partitions": -1, "factor": -1, "assignments": {1: (1,)}},
        {"name": "stranger", "partitions": -1, "factor": -1, "assignments": {0: (7,)}},
        {"name": "twice"},
        {"name": "twice"},
        {"name": "good"},
    )
    assert outcomes(world, answer) == {
        "there.is": ErrorCode.topic_already_exists,
        "there_is": ErrorCode.invalid_topic_exception,
        "none": ErrorCode.invalid_partitions,
        "many": ErrorCode.invalid_replication_factor,
        "config": ErrorCode.invalid_config,
        "unknown": ErrorCode.invalid_config,
        "null": ErrorCode.invalid_config,
        "both": ErrorCode.invalid_request,
        "gap": ErrorCode.invalid_replica_assignment,
        "stranger": ErrorCode.invalid_replica_assignment,
        "twice": ErrorCode.invalid_request,
        "good": ErrorCode.none,
    }
    assert set(world.image.topics) == {"there.is", "good"}


def test_two_clients_that_create_the_same_topic_at_once_make_it_once(world: World) -> None:
    first, second = create(world, {"name": "t"}), create(world, {"name": "t"})
    assert outcomes(world, first) == {"t": ErrorCode.none}
    assert outcomes(world, second) == {"t": ErrorCode.topic_already_exists}
    assert len(world.partitions) == 1


def test_validate_only_creates_nothing(world: World) -> None:
    assert outcomes(world, create(world, {"name": "t"}, validate_only=True)) == {"t": ErrorCode.none}
    assert world.image.topics == {}


def delete(world: World, *names: str, version: int = 5) -> Answer:
    values: dict[str, Any] = {"timeout": datetime.timedelta(seconds=1), "topic_names": names}
    if version >= 6:
        values["topics"] = tuple(shape(20, version).topics.make(name=name, topic_id=None) for name in names)
    return world.send(20, version, **values)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_deleted_topic_is_gone_in_any_version(world: World, version: int, tmp_path: Path) -> None:
    world.create_topic("t", 2)
    produce(world, {("t", 0): batch(b"a")})
    answer = delete(world, "t", "nowhere", version=version)
    world.loop.turn()
    assert [topic.error_code for topic in answer.read().responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert world.image.topics == {}
    assert len(world.partitions) == 0
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_topic_of_the_same_name_begins_anew(world: World) -> None:
    world.create_topic("t")
    first_id = world.image.topics["t"].topic_id
    produce(world, {("t", 0): batch(b"a")})
    delete(world, "t")
    world.loop.turn()
    world.create_topic("t")
    assert world.image.topics["t"].topic_id != first_id
    assert world.partitions.get("t", 0).log.end_offset == 0


def test_topics_are_deleted_by_id(world: World) -> None:
    world.create_topic("t")
    make = shape(20, 6)
    answer = world.send(
        20,
        6,
        topics=(make.topics.make(name=None, topic_id=world.image.topics["t"].topic_id),),
        timeout=datetime.timedelta(seconds=1),
    )
    world.loop.turn()
    assert answer.read().responses[0].error_code == ErrorCode.none
    assert world.image.topics == {}


def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", 2, segment_bytes="12345")
    topics = dict(world.image.topics)
    world.directories.close()
    world.store.close()
    again = World(tmp_path)
    assert {name: topic.topic_id for name, topic in again.image.topics.items()} == {
        name: topic.topic_id for name, topic in topics.items()
    }
    assert [state.leader_epoch for state in again.image.topics["t"].partitions.values()] == [1, 1]
    assert again.image.topic_configs == {"t": {"segment.bytes": "12345"}}
    assert set(again.directories.logs) == {TopicPartition("t", 0), TopicPartition("t", 1)}


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_stay_where_deletion_is_disabled(tmp_path: Path, version: int) -> None:
    world = World(tmp_path, delete_topic_enable="false")
    world.create_topic("t")
    answer = delete(world, "t", version=version)
    expected = ErrorCode.topic_deletion_disabled if version >= 3 else ErrorCode.invalid_request
    assert [topic.error_code for topic in answer.read().responses] == [expected]
    world.loop.turn()
    assert "t" in world.image.topics


@pytest.mark.parametrize("version", range(14))
def test_a_kept_answer_changes_with_its_topic_and_with_the_brokers(world: World, version: int) -> None:
    world.create_topic("t", 2)
    world.create_topic("u")
    first = metadata(world, None, version=version).read()
    assert metadata(world, None, version=version).read() == first
    kept = dict(world.services.kept_topics)
    world.services.topics.submit(
        world.services.topics.decide_grow(world.image.topics["t"], 3, None), lambda error: None
    )
    world.loop.turn()
    grown = metadata(world, None, version=version).read()
    assert [len(topic.partitions) for topic in grown.topics] == [3, 1]
    assert world.services.kept_topics[version, "u"] is kept[version, "u"]
    world.image.set_offline([("u", 0)], 1)
    failed = metadata(world, None, version=version).read()
    if version >= 5:
        assert failed.topics[1].partitions[0].offline_replicas == (1,)


def test_what_is_kept_of_topics_that_are_gone_does_not_pile_up(world: World) -> None:
    # A14
    for number in range(20):
        world.create_topic(f"t{number}")
        metadata(world, None).read()
        world.services.topics.delete(world.image.topics[f"t{number}"], lambda error: None)
        world.loop.turn()
    assert len(world.services.kept_topics) <= 2


def test_a_topic_deleted_while_its_directory_is_offline_does_not_come_back_with_it(tmp_path: Path) -> None:
    files = FailingFiles()
    world = World(tmp_path / "a", tmp_path / "b", files=files)
    world.create_topic("t", 2)
    lost = next(key for key in world.directories.logs if world.directories.home(key).path == str(tmp_path / "b"))
    world.failures.directory_failed(world.directories.home(lost), OSError("the disk is gone"))
    world.loop.turn()
    files.broken.add(str(tmp_path / "b"))
    assert outcomes_of_deletion(world, "t") == [ErrorCode.none]
    assert world.image.topics == {}
    assert outcomes(world, create(world, {"name": "t"})) == {"t": ErrorCode.topic_already_exists}
    files.broken.clear()
    world.directories.close()
    world.store.close()
    assert (tmp_path / "b" / f"t-{lost.partition}").exists()
    again = World(tmp_path / "a", tmp_path / "b")
    assert (again.image.topics, again.image.deleting) == ({}, set())
    assert [path for path in tmp_path.glob("*/t-*") if not path.name.endswith("-delete")] == []
    assert outcomes(again, create(again, {"name": "t"})) == {"t": ErrorCode.none}


def outcomes_of_deletion(world: World, name: str) -> list[ErrorCode]:
    answer = delete(world, name)
    world.loop.turn()
    return [one.error_code for one in answer.read().responses]
