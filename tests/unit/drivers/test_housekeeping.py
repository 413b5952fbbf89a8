"""Housekeeping writes checkpoints on schedule, flushes what was rolled, and removes what retention dropped."""

from __future__ import annotations

from pathlib import Path

from tests.unit.handlers.test_produce_and_fetch import batch, produce
from tests.unit.handlers.world import World

from penstock.base.ids import TopicPartition
from penstock.drivers.housekeeping import Housekeeping
from penstock.storage.checkpoints import read_offsets


def start(world: World) -> Housekeeping:
    names = (
        "replica.high.watermark.checkpoint.interval.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.retention.check.interval.ms",
        "producer.id.expiration.ms",
    )
    made = Housekeeping(
        loop=world.loop,
        clock=world.clock,
        files=world.files,
        directories=world.directories,
        partitions=world.partitions,
        flushes=world.services.flushes,
        failures=world.failures,
        values={name: world.config[name] for name in names},
    )
    made.start()
    return made


def test_high_watermarks_are_written_every_five_seconds(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t")
    start(world)
    produce(world, {("t", 0): batch(b"a", b"b")})
    checkpoint = str(tmp_path / "replication-offset-checkpoint")
    world.loop.advance(4_999)
    assert not Path(checkpoint).exists()
    world.loop.advance(1)
    assert read_offsets(world.files, checkpoint) == {TopicPartition("t", 0): 2}


def test_a_rolled_segment_is_flushed_and_its_recovery_point_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", segment_bytes="200")
    start(world)
    for _ in range(4):
        produce(world, {("t", 0): batch(b"x" * 100)})
    log = world.partitions.get("t", 0).log
    assert log.recovery_point == 0
    world.loop.advance(1_000)
    assert log.recovery_point == 4
    world.loop.advance(60_000)
    checkpoint = str(tmp_path / "recovery-point-offset-checkpoint")
    assert read_offsets(world.files, checkpoint) == {TopicPartition("t", 0): 4}


def test_what_retention_drops_is_unlinked_after_its_delay(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", segment_bytes="200", retention_bytes="200", file_delete_delay_ms="10000")
    start(world)
    for _ in range(6):
        produce(world, {("t", 0): batch(b"x" * 100)})
    world.loop.advance(300_000)
    assert world.partitions.get("t", 0).log.log_start_offset > 0
    assert list((tmp_path / "t-0").glob("*.deleted"))
    world.loop.advance(11_000)
    assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_after_its_stop_nothing_is_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t")
    start(world).stop()
    world.loop.advance(100_000)
    assert not (tmp_path / "replication-offset-checkpoint").exists()
