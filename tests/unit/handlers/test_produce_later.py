"""A request with one partition to recompress: the others are written at once, and answered for when that one is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_produce_and_fetch import batch, codes, fetch, produce
from tests.unit.handlers.world import Answer, World

from penstock.replication.partition import Partition


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create_topic("light")
    made.create_topic("heavy", compression_type="zstd")
    return made


def hold_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Jobs for threads run when the test says so."""
    held: list[tuple[Any, Any]] = []
    run = world.loop.run_in_thread
    monkeypatch.setattr(world.loop, "run_in_thread", lambda job, done: held.append((job, done)))

    def let_go() -> None:
        for job, done in held:
            run(job, done)
        world.loop.turn()

    return let_go


def write_both(world: World, acks: int = -1) -> Answer:
    """The light partition is written at offset 1, the heavy one is on a thread."""
    partition = world.partitions.get("light", 0)
    partition.take_role(leader=1, leader_epoch=5, isr=(1, 2, 3), replicas=(1, 2, 3))
    produce(world, {("light", 0): batch(b"kept")})
    answer = produce(world, {("light", 0): batch(b"lost"), ("heavy", 0): batch(b"h")}, acks=acks)
    assert not answer.is_there
    assert partition.log.end_offset == 2
    return answer


def lose_to_another(world: World, partition: Partition) -> None:
    """Broker 2 leads and has only the first record: this one is cut, and takes what broker 2 wrote over the lost one."""
    partition.take_role(leader=2, leader_epoch=6, isr=(2, 3), replicas=(1, 2, 3))
    world.directories.truncate(partition.topic_partition, 1)
    partition.log.append_as_follower(batch(b"other", b"another", base_offset=1, leader_epoch=6))
    partition.follow(3, 0)


def test_what_was_lost_with_its_leader_while_another_partition_was_on_a_thread_is_not_acknowledged(
    world: World,
) -> None:
    answer = write_both(world)
    partition = world.partitions.get("light", 0)
    lose_to_another(world, partition)
    assert partition.log.high_watermark == 3, "beyond the lost record's end, though another record is there"
    world.loop.turn()
    assert codes(answer) == [ErrorCode.not_leader_or_follower, ErrorCode.none]


def test_a_leader_that_leads_again_by_then_does_not_take_anothers_record_for_its_own(world: World) -> None:
    answer = write_both(world)
    partition = world.partitions.get("light", 0)
    lose_to_another(world, partition)
    partition.take_role(leader=1, leader_epoch=7, isr=(1,), replicas=(1, 2, 3))
    assert partition.log.high_watermark == 3
    world.loop.turn()
    assert codes(answer) == [ErrorCode.not_leader_or_follower, ErrorCode.none]


def test_a_leader_that_leads_again_and_waits_for_its_followers_does_not_either(world: World) -> None:
    answer = write_both(world)
    partition = world.partitions.get("light", 0)
    partition.take_role(leader=2, leader_epoch=6, isr=(2, 3), replicas=(1, 2, 3))
    world.directories.truncate(partition.topic_partition, 1)
    partition.log.append_as_follower(batch(b"other", base_offset=1, leader_epoch=6))
    partition.take_role(leader=1, leader_epoch=7, isr=(1, 2), replicas=(1, 2, 3))
    assert partition.log.high_watermark < 2, "so that the request has to wait"
    world.loop.turn()
    assert codes(answer) == [ErrorCode.not_leader_or_follower, ErrorCode.none]


def test_a_new_epoch_of_the_same_leader_takes_nothing_back(world: World) -> None:
    answer = write_both(world)
    partition = world.partitions.get("light", 0)
    partition.take_role(leader=1, leader_epoch=6, isr=(1, 2), replicas=(1, 2, 3))
    assert partition.fetched_by(2, 1, 2, 0, world.clock.monotonic_ms()) is not None
    world.loop.turn()
    assert codes(answer) == [ErrorCode.none, ErrorCode.none]


def test_acks_1_is_answered_for_what_was_written_whoever_leads_by_then(world: World) -> None:
    answer = write_both(world, acks=1)
    lose_to_another(world, world.partitions.get("light", 0))
    world.loop.turn()
    assert codes(answer) == [ErrorCode.none, ErrorCode.none]


def test_who_left_before_the_thread_was_done_leaves_no_wait_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = hold_threads(world, monkeypatch)
    answer = write_both(world)
    answer.abandon()
    let_go()
    assert world.partitions.get("heavy", 0).log.end_offset == 1, "what was sent is written"
    assert world.services.produce_waits.purgatory.waiting == 0


def test_who_leaves_after_the_thread_was_done_leaves_no_wait_behind_either(world: World) -> None:
    answer = write_both(world)
    world.loop.turn()
    assert world.services.produce_waits.purgatory.waiting == 1
    answer.abandon()
    assert world.services.produce_waits.purgatory.waiting == 0


def test_too_few_in_sync_by_then_are_told(world: World) -> None:
    world.create_topic("careful", min_insync_replicas="2")
    partition = world.partitions.get("careful", 0)
    partition.take_role(leader=1, leader_epoch=5, isr=(1, 2), replicas=(1, 2))
    answer = produce(world, {("careful", 0): batch(b"a"), ("heavy", 0): batch(b"h")}, acks=-1)
    partition.fetched_by(2, 1, 1, 0, world.clock.monotonic_ms())
    partition.confirm_isr(5, (1,), 1)
    world.loop.turn()
    assert codes(answer) == [ErrorCode.not_enough_replicas_after_append, ErrorCode.none]


def test_whoever_waits_for_a_light_partition_does_not_wait_for_the_heavy_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = hold_threads(world, monkeypatch)
    consumer = fetch(world, {("light", 0): 0}, wait_ms=60_000)
    answer = produce(world, {("light", 0): batch(b"a"), ("heavy", 0): batch(b"h")}, acks=-1)
    world.loop.turn()
    assert (consumer.is_there, answer.is_there) == (True, False)
    assert consumer.read().responses[0].partitions[0].records
    let_go()
    assert codes(answer) == [ErrorCode.none, ErrorCode.none]
