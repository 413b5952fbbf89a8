"""Brokers' configurations, changed while they run: stored as Kafka stores them, in force at once, told with their source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_admin import describe
from tests.unit.handlers.world import World, shape

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, log_segment_bytes="2000000")
    made.create_topic("t", segment_ms="100000")
    return made


def alter(world: World, broker: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> ErrorCode:
    make = shape(44, 1).resources
    resource = make.make(
        resource_type=4,
        resource_name=broker,
        configs=tuple(make.configs.make(name=n, config_operation=o, value=v) for n, o, v in changes),
    )
    answer = world.send(44, 1, resources=(resource,), validate_only=validate_only)
    world.loop.turn()
    code: ErrorCode = answer.read().responses[0].error_code
    return code


def entry(world: World, resource: tuple[int, str], name: str) -> tuple[str | None, int, list[tuple[str, str, int]]]:
    (found,) = [config for config in describe(world, resource).configs if config.name == name]
    return found.value, found.config_source, [(one.name, one.value, one.source) for one in found.synonyms]


def test_a_brokers_own_value_beats_the_clusters_and_that_the_files(world: World) -> None:
    log = world.partitions.get("t", 0).log
    assert log.config.segment_bytes == 2_000_000
    assert alter(world, "", ("log.segment.bytes", SET, "3000000")) == ErrorCode.none
    assert log.config.segment_bytes == 3_000_000
    assert alter(world, "1", ("log.segment.bytes", SET, "4000000")) == ErrorCode.none
    assert log.config.segment_bytes == 4_000_000
    layers = [
        ("log.segment.bytes", "4000000", 2),
        ("log.segment.bytes", "3000000", 3),
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    assert entry(world, (4, "1"), "log.segment.bytes") == ("4000000", 2, layers)
    assert entry(world, (2, "t"), "segment.bytes") == ("4000000", 2, layers)
    assert entry(world, (4, ""), "log.segment.bytes") == ("3000000", 3, layers[1:2])
    assert alter(world, "1", ("log.segment.bytes", DELETE, None)) == ErrorCode.none
    assert alter(world, "", ("log.segment.bytes", DELETE, None)) == ErrorCode.none
    assert log.config.segment_bytes == 2_000_000


def test_it_is_stored_in_kafkas_layout_and_in_force_after_a_start(world: World, tmp_path: Path) -> None:
    alter(world, "", ("log.retention.ms", SET, "5000"))
    alter(world, "1", ("log.cleaner.threads", SET, "2"))
    nodes = {node.path: node.data for node in world.store.nodes()}
    assert nodes["/config/brokers/<default>"] == b'{"version":1,"config":{"log.retention.ms":"5000"}}'
    assert nodes["/config/brokers/1"] == b'{"version":1,"config":{"log.cleaner.threads":"2"}}'
    assert world.config["log.cleaner.threads"] == 2
    assert world.partitions.get("t", 0).log.config.retention_ms == 5000


def test_a_topics_own_value_stays_when_the_brokers_changes(world: World) -> None:
    alter(world, "", ("log.roll.ms", SET, "7000"))
    assert world.partitions.get("t", 0).log.config.segment_ms == 100_000
    world.create_topic("u")
    assert world.partitions.get("u", 0).log.config.segment_ms == 7_000


@pytest.mark.parametrize(
    "change",
    [
        ("log.segment.bytes", SET, "x"),
        ("log.retention.ms", SET, "0"),
        ("num.partitions", SET, "3"),
        ("nonsense", SET, "1"),
        ("log.segment.bytes", SET, None),
        ("log.segment.bytes", APPEND, "1"),
        ("log.segment.bytes", 9, "1"),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(world: World, change: tuple[str, int, str | None]) -> None:
    # A15
    assert alter(world, "1", change) == ErrorCode.invalid_request
    assert world.image.broker_configs == {}


def test_another_broker_is_not_configured_here(world: World) -> None:
    assert alter(world, "7", ("log.segment.bytes", SET, "3000000")) == ErrorCode.invalid_request
    assert alter(world, "1", ("log.segment.bytes", SET, "3000000"), validate_only=True) == ErrorCode.none
    assert world.image.broker_configs == {}


def test_lists_are_added_to_and_taken_from(world: World) -> None:
    assert alter(world, "", ("log.cleanup.policy", APPEND, "compact")) == ErrorCode.none
    config = world.partitions.get("t", 0).log.config
    assert (config.compact, config.delete) == (True, True)
    assert alter(world, "", ("log.cleanup.policy", SUBTRACT, "delete")) == ErrorCode.none
    config = world.partitions.get("t", 0).log.config
    assert (config.compact, config.delete) == (True, False)


def test_a_resource_that_stands_twice_is_refused_twice(world: World) -> None:
    make = shape(44, 1).resources
    change = make.configs.make(name="retention.ms", config_operation=SET, value="5")
    twice: Any = tuple(make.make(resource_type=2, resource_name="t", configs=(change,)) for _ in range(2))
    answer = world.send(44, 1, resources=twice, validate_only=False).read()
    assert [one.error_code for one in answer.responses] == [ErrorCode.invalid_request] * 2


def test_a_stored_value_that_is_no_longer_valid_is_left_out_and_named(world: World) -> None:
    complaints = world.config.use_dynamic({"gone.key": "1", "log.segment.bytes": "3000000"}, {})
    assert len(complaints) == 1
    assert "gone.key" in complaints[0]
    assert world.config.log_values["segment.bytes"] == 3_000_000
