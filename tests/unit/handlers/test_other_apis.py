"""ApiVersions, ListOffsets, InitProducerId, and what holds for every API."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader
from tests.unit.handlers.test_produce_and_fetch import produce
from tests.unit.handlers.world import World, shape

import penstock
from penstock.base.errors import PenstockError
from penstock.handlers.error_map import CODES, code_of
from penstock.protocol.errors import MalformedMessageError
from penstock.records.build import build_batch


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create_topic("t")
    return made


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(world: World, version: int) -> None:
    answer = world.send(18, version, client_software_name="a-b.c", client_software_version="1.0").read()
    assert answer.error_code == ErrorCode.none
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert set(listed) == set(world.apis)
    assert listed[0] == (0, 13), "clients test for Produce 0"
    assert listed[1] == (4, 18)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(world: World) -> None:
    # A7
    outcome = world.send_frame(b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x01c\x00???")
    assert isinstance(outcome, bytes)
    read: Any = entity_reader(load_response_schema(18, 0))
    answer, size = read(outcome[8:], 0)
    assert (outcome[4:8], size) == (b"\x00\x00\x00\x07", len(outcome) - 8)
    assert answer.error_code == ErrorCode.unsupported_version
    assert 18 in {entry.api_key for entry in answer.api_keys}


def test_a_client_with_a_strange_name_is_refused(world: World) -> None:
    # A7, A14
    answer = world.send(18, 3, client_software_name="-x\n", client_software_version="1").read()
    assert answer.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (3, 14), (3, -1), (999, 0), (-1, 0)])
def test_an_unknown_key_or_version_closes_the_connection(world: World, key: int, version: int) -> None:
    # A7
    header = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    with pytest.raises(MalformedMessageError):
        world.send_frame(header + b"\x00\x00\x00\x07\x00\x01c\x00" + bytes(50))


def test_the_registry_and_the_schemas_agree_on_what_is_flexible(world: World) -> None:
    for api in world.apis.values():
        for version in range(api.low, api.high + 1):
            assert load_response_schema(api.key, version).__flexible__ == (version >= api.flexible_from), api.name


def test_every_version_of_the_registry_has_a_schema(world: World) -> None:
    for api in world.apis.values():
        versions = schema_name_map[api_key_map[api.key]]
        assert api.low == min(versions)
        assert api.high <= max(versions)


def test_every_api_refuses_a_body_of_noise(world: World) -> None:
    # A2, A3
    for api in world.apis.values():
        for version in range(api.low, api.high + 1):
            header = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\x00\x01c\x00"
            for body in (b"\xff" * 40, b"\x7f" * 40):
                try:
                    world.send_frame(header + body)
                except MalformedMessageError:
                    continue


def every_error_class(root: type[PenstockError]) -> set[type[PenstockError]]:
    return {root}.union(*(every_error_class(child) for child in root.__subclasses__()))


def test_every_error_has_a_code() -> None:
    # The other end of the wire has errors of its own, which no handler meets; other tests may have imported them.
    elsewhere = (
        "penstock.app.",
        "penstock.client.",
        "penstock.cli.",
        "penstock.console.",
        "penstock.testing.",
        "penstock.storage.inspect.",
        "penstock.storage.live.",
    )
    ours = {
        error
        for error in every_error_class(PenstockError)
        if error.__module__.startswith(f"{penstock.__name__}.") and not error.__module__.startswith(elsewhere)
    }
    outside_the_wire = {"FrameLimitError", "CloseConnectionError", "NoZooKeeperError", "_Replaced"}
    assert {error.__name__ for error in ours - set(CODES)} <= outside_the_wire
    assert code_of(type("Mine", (PenstockError,), {})("x")) == ErrorCode.unknown_server_error


def offsets(world: World, timestamp: int, *, version: int = 7, isolation: int = 0) -> Any:
    make = shape(2, version)
    wanted = make.topics.partitions.make(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    answer = world.send(
        2,
        version,
        replica_id=-1,
        isolation_level=isolation,
        topics=(make.topics.make(name="t", partitions=(wanted,)),),
        timeout=datetime.timedelta(seconds=1),
    ).read()
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_found_in_any_version(world: World, version: int) -> None:
    base = world.clock.wall_ms()
    for number in range(3):
        produce(world, {("t", 0): build_batch([(base + number * 10, None, b"x", ())])})
    assert offsets(world, -1, version=version).offset == 3
    assert offsets(world, -2, version=version).offset == 0
    found = offsets(world, base + 5, version=version)
    assert (found.offset, found.timestamp) == (1, base + 10)
    assert offsets(world, base + 21, version=version).offset == -1
    if version >= 7:
        assert offsets(world, -3, version=version).offset == 2
    if version >= 8:
        assert offsets(world, -4, version=version).offset == 0
    if version >= 9:
        assert offsets(world, -5, version=version).offset == -1


def test_offsets_of_a_partition_that_is_not_there(world: World) -> None:
    make = shape(2, 7)
    wanted = make.topics.partitions.make(partition_index=8, current_leader_epoch=-1, timestamp=-1)
    answer = world.send(
        2, 7, replica_id=-1, isolation_level=0, topics=(make.topics.make(name="t", partitions=(wanted,)),)
    ).read()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_never_given_twice_even_after_a_crash(tmp_path: Path, version: int) -> None:
    world = World(tmp_path)

    def take() -> int:
        answer = world.send(
            22,
            version,
            transactional_id=None,
            transaction_timeout=datetime.timedelta(seconds=1),
            producer_id=-1,
            producer_epoch=-1,
        )
        world.loop.turn()
        entity = answer.read()
        assert (entity.error_code, entity.producer_epoch) == (ErrorCode.none, 0)
        return int(entity.producer_id)

    taken = [take() for _ in range(1_005)]
    assert taken == list(range(1_005))
