"""The cleaner compacts what is dirty enough, sets aside what fails, and drops what changed meanwhile."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from tests.unit.drivers.test_housekeeping import start as start_housekeeping
from tests.unit.handlers.failing_files import FailingFiles
from tests.unit.handlers.test_produce_and_fetch import fetch, produce
from tests.unit.handlers.world import World

from penstock.base.errors import CorruptRecordError
from penstock.base.ids import TopicPartition
from penstock.drivers.cleaner import Cleaner
from penstock.records.batch import scan
from penstock.records.build import build_batch
from penstock.storage.checkpoints import read_offsets
from penstock.storage.cleaner import CompactionJob, CompactionResult

COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "400", "min_cleanable_dirty_ratio": "0.01"}


def start(world: World) -> Cleaner:
    names = (
        "log.cleaner.backoff.ms",
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.enable",
    )
    made = Cleaner(
        loop=world.loop,
        clock=world.clock,
        files=world.files,
        directories=world.directories,
        failures=world.failures,
        values={name: world.config[name] for name in names},
        new_seed=lambda: bytes(16),
    )
    made.start()
    return made


def fill(world: World, topic: str, rounds: int = 8) -> None:
    """Writes the keys a and b again and again, and has all of it flushed."""
    for number in range(rounds):
        entries = [(1_700_000_000_000, key, str(number).encode() * 50, ()) for key in (b"a", b"b")]
        produce(world, {(topic, 0): build_batch(entries)})
    world.services.flushes.ask(world.partitions.get(topic, 0))
    world.loop.turn()


def records(world: World, topic: str) -> int:
    """How many records the log holds."""
    log = world.partitions.get(topic, 0).log
    return sum(
        batch.record_count for segment in log.log.segments for batch in scan(segment.file.pread(1 << 20, 0)).batches
    )


def offset(world: World, topic: str) -> int | None:
    key = TopicPartition(topic, 0)
    return world.directories.home(key).cleaner_offsets.get(key)


def test_a_dirty_log_is_compacted_after_the_backoff_and_its_offset_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", 1, **COMPACTED)
    start(world)
    fill(world, "t")
    assert records(world, "t") == 16
    world.loop.advance(14_999)
    assert records(world, "t") == 16
    world.loop.advance(1)
    assert records(world, "t") < 10
    checkpoint = read_offsets(world.files, str(tmp_path / "cleaner-offset-checkpoint"))
    assert checkpoint == {TopicPartition("t", 0): offset(world, "t")}
    assert checkpoint[TopicPartition("t", 0)] > 0


def test_what_compaction_replaced_is_unlinked_after_its_delay(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", 1, file_delete_delay_ms="5000", **COMPACTED)
    start_housekeeping(world)
    start(world)
    fill(world, "t")
    world.loop.advance(15_000)
    assert list((tmp_path / "t-0").glob("*.deleted"))
    world.loop.advance(6_000)
    assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_a_log_that_is_clean_enough_or_not_compacted_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("plain", segment_bytes="400")
    world.create_topic("clean", 1, **{**COMPACTED, "min_cleanable_dirty_ratio": "1.0"})
    start(world)
    for topic in ("plain", "clean"):
        fill(world, topic)
    world.loop.advance(60_000)
    assert [records(world, topic) for topic in ("plain", "clean")] == [16, 16]


@pytest.mark.parametrize("setting", [{"log_cleaner_enable": "false"}, {"log_cleaner_threads": "0"}])
def test_it_can_be_switched_off(tmp_path: Path, setting: dict[str, str]) -> None:
    world = World(tmp_path, files=None, **setting)
    world.create_topic("t", 1, **COMPACTED)
    start(world)
    fill(world, "t")
    world.loop.advance(60_000)
    assert records(world, "t") == 16


def test_a_partition_that_fails_is_set_aside_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    for topic in ("bad", "good"):
        world.create_topic(topic, 1, **COMPACTED)
    cleaner = start(world)
    for topic in ("bad", "good"):
        fill(world, topic)
    run = CompactionJob.run
    tries: list[str] = []

    def fail(job: CompactionJob) -> CompactionResult:
        if "bad-0" in job.directory:
            tries.append(job.directory)
            raise CorruptRecordError("a batch cannot be read")
        return run(job)

    monkeypatch.setattr(CompactionJob, "run", fail)
    world.loop.advance(60_000)
    assert records(world, "good") < 10
    assert records(world, "bad") == 16
    assert cleaner.set_aside == {TopicPartition("bad", 0): "a batch cannot be read"}
    assert len(tries) == 1
    assert all(state.health.failure is None for state in world.directories.directories)


def test_a_disk_that_fails_takes_the_directory_offline(tmp_path: Path) -> None:
    files = FailingFiles()
    world = World(tmp_path, files=files)
    world.create_topic("t", 1, **COMPACTED)
    start(world)
    fill(world, "t")
    files.broken.add(str(tmp_path))
    world.loop.advance(15_000)
    assert world.failed


def test_a_result_of_a_topic_deleted_meanwhile_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.create_topic("t", 1, **COMPACTED)
    cleaner = start(world)
    fill(world, "t")
    run = CompactionJob.run

    def delete_meanwhile(job: CompactionJob) -> CompactionResult:
        result = run(job)
        world.holdings.drop(world.partitions.get("t", 0))
        return result

    monkeypatch.setattr(CompactionJob, "run", delete_meanwhile)
    world.loop.advance(15_000)
    assert cleaner.set_aside == {}
    assert not (tmp_path / "cleaner-offset-checkpoint").exists()
    assert all(state.health.failure is None for state in world.directories.directories)


def test_a_result_of_a_log_cut_meanwhile_is_dropped_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.create_topic("t", 1, **COMPACTED)
    start(world)
    fill(world, "t")
    log = world.partitions.get("t", 0).log
    run = CompactionJob.run
    cuts: list[int] = []

    def cut_meanwhile(job: CompactionJob) -> CompactionResult:
        result = run(job)
        if not cuts:
            cuts.append(14)
            log.truncate(14)
        return result

    monkeypatch.setattr(CompactionJob, "run", cut_meanwhile)
    world.loop.advance(15_000)
    assert log.end_offset == 14
    assert records(world, "t") < 10
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_nothing_keeps_the_log_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    """Neither timers nor waits nor counters, whatever was done with it before."""
    # KAFKA-8448, 9265
    world = World(tmp_path)
    start_housekeeping(world)
    start(world)
    kept: list[weakref.ref[object]] = []
    for round_number in range(3):
        world.create_topic(
            "t", 2, **({**COMPACTED, "segment_bytes": "200"} if round_number else {"segment_bytes": "200"})
        )
        for number in range(6):
            records = [(1_700_000_000_000, b"k", b"v" * 90, ())]
            data = build_batch(records, producer_id=9, base_sequence=number)
            produce(world, {("t", 0): data}, acks=-1)
        world.loop.advance(400_000)
        waiting = fetch(world, {("t", 0): 6, ("t", 1): 0}, wait_ms=60_000, session=(0, 0))
        kept += [weakref.ref(partition.log) for partition in world.partitions.of_topic("t")]
        world.services.topics.delete(world.image.topics["t"], lambda error: None)
        world.loop.turn()
        assert waiting.is_there
    world.loop.advance(400_000)
    gc.collect()
    assert len(kept) == 6
    assert [found for found in kept if found() is not None] == []


def test_after_its_stop_nothing_is_compacted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", 1, **COMPACTED)
    start(world).stop()
    fill(world, "t")
    world.loop.advance(60_000)
    assert records(world, "t") == 16
