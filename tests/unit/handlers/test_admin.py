"""Configurations, more partitions, deleted records, epochs, the cluster; in every version."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_produce_and_fetch import batch, codes, fetch, produce
from tests.unit.handlers.world import Answer, World, shape

SECOND = datetime.timedelta(seconds=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, log_segment_bytes="2000000")
    made.create_topic("t", segment_ms="100000")
    return made


def describe(world: World, resource: tuple[int, str], *, version: int = 4, keys: tuple[str, ...] | None = None) -> Any:
    make = shape(32, version)
    return (
        world.send(
            32,
            version,
            resources=(
                make.resources.make(resource_type=resource[0], resource_name=resource[1], configuration_keys=keys),
            ),
            include_synonyms=True,
            include_documentation=True,
        )
        .read()
        .results[0]
    )


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_configuration_says_where_each_value_came_from(world: World, version: int) -> None:
    found = {config.name: config for config in describe(world, (2, "t"), version=version).configs}
    assert next((s.name, s.value, s.source) for s in found["segment.ms"].synonyms) == ("segment.ms", "100000", 1)
    own, broker, default = found["segment.ms"], found["segment.bytes"], found["retention.bytes"]
    assert (own.value, own.config_source) == ("100000", 1)
    assert (broker.value, broker.config_source) == ("2000000", 4)
    assert (default.value, default.config_source) == ("-1", 5)
    if version >= 3:
        assert own.config_type == 5
        assert own.documentation


def test_only_the_keys_asked_for_are_described(world: World) -> None:
    found = describe(world, (2, "t"), keys=("segment.ms", "nonsense")).configs
    assert [config.name for config in found] == ["segment.ms"]


def test_the_brokers_own_configuration(world: World) -> None:
    found = {config.name: config for config in describe(world, (4, "1")).configs}
    assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("1", 5)
    assert found["listeners"].read_only
    assert describe(world, (4, "7")).error_code == ErrorCode.invalid_request
    assert describe(world, (2, "nowhere")).error_code == ErrorCode.unknown_topic_or_partition
    assert describe(world, (99, "x")).error_code == ErrorCode.invalid_request


def incremental(world: World, *changes: tuple[str, int, str | None], version: int = 1, topic: str = "t") -> ErrorCode:
    answer = begin_incremental(world, *changes, version=version, topic=topic)
    world.loop.turn()
    code: ErrorCode = answer.read().responses[0].error_code
    return code


def begin_incremental(
    world: World, *changes: tuple[str, int, str | None], version: int = 1, topic: str = "t"
) -> Answer:
    make = shape(44, version).resources
    return world.send(
        44,
        version,
        resources=(
            make.make(
                resource_type=2,
                resource_name=topic,
                configs=tuple(
                    make.configs.make(name=name, config_operation=operation, value=value)
                    for name, operation, value in changes
                ),
            ),
        ),
        validate_only=False,
    )


def test_changes_that_come_while_others_are_written_undo_none_of_them(world: World) -> None:
    world.create_topic("bare")
    answers = [
        begin_incremental(world, (key, 0, value), topic=topic)
        for topic in ("t", "bare")
        for key, value in (("retention.ms", "5"), ("retention.bytes", "6"), ("nonsense", "7"), ("flush.ms", "8"))
    ]
    assert not any(answer.is_there for answer in answers), "they are answered in the order in which they came"
    world.loop.turn()
    codes = [answer.read().responses[0].error_code for answer in answers]
    assert codes == [ErrorCode.none, ErrorCode.none, ErrorCode.invalid_config, ErrorCode.none] * 2
    own = {"retention.ms": "5", "retention.bytes": "6", "flush.ms": "8"}
    assert world.image.topic_configs["t"] == {"segment.ms": "100000", **own}
    assert world.image.topic_configs["bare"] == own


@pytest.mark.parametrize("version", [0, 1])
def test_configurations_are_changed_key_by_key_and_the_log_follows(world: World, version: int) -> None:
    log = world.partitions.get("t", 0).log
    assert incremental(world, ("retention.ms", 0, "5"), ("segment.ms", 1, None), version=version) == ErrorCode.none
    assert world.image.topic_configs["t"] == {"retention.ms": "5"}
    assert log.config.retention_ms == 5
    assert incremental(world, ("cleanup.policy", 2, "compact"), version=version) == ErrorCode.none
    assert (log.config.compact, log.config.delete) == (True, True)
    assert incremental(world, ("cleanup.policy", 3, "delete"), version=version) == ErrorCode.none
    assert (log.config.compact, log.config.delete) == (True, False)


def test_changes_that_cannot_be(world: World) -> None:
    # A15
    assert incremental(world, ("retention.ms", 0, "x")) == ErrorCode.invalid_config
    assert incremental(world, ("nonsense", 0, "1")) == ErrorCode.invalid_config
    assert incremental(world, ("retention.ms", 2, "1")) == ErrorCode.invalid_config
    assert incremental(world, ("retention.ms", 0, None)) == ErrorCode.invalid_request
    assert incremental(world, ("retention.ms", 9, "1")) == ErrorCode.invalid_request
    assert incremental(world, ("retention.ms", 0, "1"), ("retention.ms", 1, None)) == ErrorCode.invalid_request
    assert incremental(world, ("retention.ms", 0, "1"), topic="nowhere") == ErrorCode.unknown_topic_or_partition
    assert world.image.topic_configs["t"] == {"segment.ms": "100000"}


@pytest.mark.parametrize(
    "value",
    ["${file:/etc/passwd:root}", "${env:HOME}", "a\nb", '"}, "x": {"', "\x00\x1b[2J", "NaN", "0_1", "9" * 9000],
    ids=["file", "variable", "line", "JSON", "control", "no number", "Python's number", "long number"],
)
def test_no_configuration_takes_a_value_that_means_something_elsewhere(world: World, value: str) -> None:
    # A15, A20
    keys = [config.name for config in describe(world, (2, "t")).configs]
    assert len(keys) > 30
    before = dict(world.image.topic_configs["t"])
    assert {incremental(world, (key, 0, value)) for key in keys} == {ErrorCode.invalid_config}
    assert world.image.topic_configs["t"] == before


def test_no_secret_of_the_brokers_file_is_told(tmp_path: Path) -> None:
    # A15
    world = World(tmp_path, ssl_keystore_password="hunter2", sasl_jaas_config="hunter2", ssl_key_password="hunter2")
    told = describe(world, (4, "1")).configs
    assert len(told) > 100
    assert "hunter2" not in str(told)


@pytest.mark.parametrize("version", range(3))
def test_a_configuration_is_replaced_as_a_whole(world: World, version: int) -> None:
    make = shape(33, version).resources
    resource = make.make(
        resource_type=2, resource_name="t", configs=(make.configs.make(name="retention.ms", value="7"),)
    )
    answer = world.send(33, version, resources=(resource,), validate_only=False)
    world.loop.turn()
    assert answer.read().responses[0].error_code == ErrorCode.none
    assert world.image.topic_configs["t"] == {"retention.ms": "7"}


def grow(world: World, count: int, *, version: int = 3, topic: str = "t", brokers: Any = None) -> ErrorCode:
    make = shape(37, version).topics
    assignments = None
    if brokers is not None:
        assignments = tuple(make.assignments.make(broker_ids=one) for one in brokers)
    answer = world.send(
        37,
        version,
        topics=(make.make(name=topic, count=count, assignments=assignments),),
        timeout=SECOND,
        validate_only=False,
    )
    world.loop.turn()
    code: ErrorCode = answer.read().results[0].error_code
    return code


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(world: World, version: int) -> None:
    assert grow(world, 3, version=version) == ErrorCode.none
    assert len(world.partitions.of_topic("t")) == 3
    assert codes(produce(world, {("t", 2): batch(b"a")})) == [ErrorCode.none]
    assert grow(world, 4, version=version, brokers=((1,),)) == ErrorCode.none


def test_a_topic_never_shrinks(world: World) -> None:
    assert grow(world, 1) == ErrorCode.invalid_partitions
    assert grow(world, 0) == ErrorCode.invalid_partitions
    assert grow(world, 2, topic="nowhere") == ErrorCode.unknown_topic_or_partition
    assert grow(world, 2, brokers=((9,),)) == ErrorCode.invalid_replica_assignment
    assert grow(world, 3, brokers=((1,),)) == ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone(world: World, version: int) -> None:
    for _ in range(4):
        produce(world, {("t", 0): batch(b"a")})

    def delete(offset: int) -> tuple[ErrorCode, int]:
        make = shape(21, version).topics
        entry = make.partitions.make(partition_index=0, offset=offset)
        answer = world.send(21, version, topics=(make.make(name="t", partitions=(entry,)),), timeout=SECOND).read()
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert delete(2) == (ErrorCode.none, 2)
    assert codes(fetch(world, {("t", 0): 1})) == [ErrorCode.offset_out_of_range]
    assert delete(99) == (ErrorCode.offset_out_of_range, -1)
    assert delete(-1) == (ErrorCode.none, 4)


@pytest.mark.parametrize("version", range(2, 5))
def test_where_an_epoch_ended(world: World, version: int) -> None:
    partition = world.partitions.get("t", 0)
    produce(world, {("t", 0): batch(b"a", b"b")})
    partition.take_role(leader=1, leader_epoch=3, isr=(1,), replicas=(1,))
    produce(world, {("t", 0): batch(b"c")})

    def end_of(epoch: int, current: int = -1) -> tuple[ErrorCode, int, int]:
        make = shape(23, version).topics
        entry = make.partitions.make(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        found = (
            world.send(23, version, replica_id=-1, topics=(make.make(topic="t", partitions=(entry,)),))
            .read()
            .topics[0]
            .partitions[0]
        )
        return found.error_code, found.leader_epoch, found.end_offset

    assert end_of(0) == (ErrorCode.none, 0, 2)
    assert end_of(2) == (ErrorCode.none, 0, 2)
    assert end_of(3) == (ErrorCode.none, 3, 3)
    assert end_of(9) == (ErrorCode.none, -1, -1)
    assert end_of(0, current=2)[0] == ErrorCode.fenced_leader_epoch


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(world: World, version: int) -> None:
    answer = world.send(
        60,
        version,
        include_cluster_authorized_operations=False,
        endpoint_type=1,
        include_fenced_brokers=False,
    ).read()
    assert (answer.error_code, answer.controller_id) == (ErrorCode.none, 1)
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "h", 9)]
