"""Recompression runs off the loop, and a partition's appends keep their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_produce_and_fetch import batch, codes, fetch, produce
from tests.unit.handlers.world import World

from penstock.handlers.api import Peer
from penstock.records.batch import Codec, scan
from penstock.storage.config import log_config


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create_topic("t", 2, compression_type="zstd")
    return made


def base_offsets(answer: Any) -> list[int]:
    return [entry.base_offset for topic in answer.read().responses for entry in topic.partition_responses]


def test_a_batch_to_recompress_is_written_after_the_turn_that_brought_it(world: World) -> None:
    answer = produce(world, {("t", 0): batch(b"x" * 1000)})
    assert not answer.is_there
    assert world.partitions.get("t", 0).log.end_offset == 0
    world.loop.turn()
    assert codes(answer) == [ErrorCode.none]
    (found,) = scan(fetch(world, {("t", 0): 0}).read().responses[0].partitions[0].records).batches
    assert found.codec is Codec.ZSTD


def test_a_light_append_waits_behind_a_heavy_one_of_its_partition_only(world: World) -> None:
    heavy = produce(world, {("t", 0): batch(b"a")})
    light = produce(world, {("t", 0): batch(b"b", codec=Codec.ZSTD)})
    elsewhere = produce(world, {("t", 1): batch(b"c", codec=Codec.ZSTD)})
    assert [answer.is_there for answer in (heavy, light, elsewhere)] == [False, False, True]
    world.loop.turn()
    assert [base_offsets(answer) for answer in (heavy, light, elsewhere)] == [[0], [1], [0]]
    assert produce(world, {("t", 0): batch(b"d", codec=Codec.ZSTD)}).is_there


def test_a_plain_batch_does_not_overtake_one_on_a_thread_though_its_topic_needs_none_any_more(world: World) -> None:
    heavy = produce(world, {("t", 0): batch(b"a")})
    world.partitions.get("t", 0).log.update_config(log_config({}, world.config.log_values))
    light = produce(world, {("t", 0): batch(b"b")})
    assert not light.is_there
    world.loop.turn()
    assert [base_offsets(answer) for answer in (heavy, light)] == [[0], [1]]


def test_the_later_of_two_that_is_prepared_first_is_written_second(world: World) -> None:
    first, second = (produce(world, {("t", 0): batch(value)}) for value in (b"a", b"b"))
    world.loop._soon.reverse()
    world.loop.turn()
    assert [base_offsets(answer) for answer in (first, second)] == [[0], [1]]


def test_a_request_with_both_kinds_is_answered_when_all_are_written(world: World) -> None:
    answer = produce(world, {("t", 0): batch(b"a"), ("t", 1): batch(b"b", codec=Codec.ZSTD), ("none", 0): batch(b"c")})
    assert not answer.is_there
    assert world.partitions.get("t", 1).log.end_offset == 1
    world.loop.turn()
    assert codes(answer) == [ErrorCode.none, ErrorCode.none, ErrorCode.unknown_topic_or_partition]


def test_an_error_of_the_preparation_is_the_partitions_own(world: World) -> None:
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    answers = [produce(world, {("t", 0): bytes(broken)}), produce(world, {("t", 0): batch(b"b")})]
    world.loop.turn()
    assert [codes(answer) for answer in answers] == [[ErrorCode.corrupt_message], [ErrorCode.none]]


def test_a_topic_deleted_meanwhile_takes_nothing(world: World) -> None:
    answer = produce(world, {("t", 0): batch(b"a")})
    world.holdings.drop(world.partitions.get("t", 0))
    world.loop.turn()
    assert codes(answer) == [ErrorCode.not_leader_or_follower]


def test_acks_0_closes_the_connection_on_an_error_and_is_silent_otherwise(world: World) -> None:
    class Closable:
        reasons: list[str] = []

        def close(self, reason: str) -> None:
            self.reasons.append(reason)

    world._peer = Peer("PLAINTEXT", "127.0.0.1", Closable())
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    produce(world, {("t", 0): batch(b"a")}, acks=0)
    world.loop.turn()
    assert world.partitions.get("t", 0).log.end_offset == 1
    assert Closable.reasons == []
    produce(world, {("t", 0): bytes(broken)}, acks=0)
    world.loop.turn()
    assert Closable.reasons == ["a record without acknowledgement could not be written"]


def test_acks_all_of_a_recompressed_batch_waits_for_its_flush(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", compression_type="gzip", flush_messages="1")
    answer = produce(world, {("t", 0): batch(b"a")}, acks=-1)
    world.loop.turn()
    assert codes(answer) == [ErrorCode.none]
    assert world.partitions.get("t", 0).log.recovery_point == 1
