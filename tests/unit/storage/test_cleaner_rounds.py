"""Rounds of compaction that meet other changes, or fail (row S19, pitfalls 5)."""

from __future__ import annotations

import pytest
from tests.support.log_checks import check_log
from tests.unit.storage.disk import (
    batch_at,
    fail_when,
    listing,
    open_log,
    small_config,
)
from tests.unit.storage.test_cleaner import MAP_BYTES, Compacted

from penstock.base.errors import CorruptFileError
from penstock.base.files import File
from penstock.records.batch import Codec, scan
from penstock.storage import names
from penstock.storage.cleaner import CompactionJob
from penstock.storage.upkeep import (
    apply_compaction,
    compact,
    compaction_job,
    compaction_range,
    remove_files,
    retain,
)


# Rounds that meet other changes.
def test_a_result_is_dropped_when_segments_changed_meanwhile() -> None:
    # KAFKA-7322, 6568, 12840: retention and truncation do not wait for the cleaner, nor it for them.
    world = Compacted(segment_bytes=200)
    for number in range(10):
        world.put((b"a", b"%d" % number * 40))
    result = world.job_result()
    world.log.delete_records(5)
    assert retain(world.log, world.clock) > 0
    assert not apply_compaction(world.log, world.files, result)
    remove_files(world.files, world.log.removals.take_due(everything=True))
    assert not [name for name in listing(world.files) if names.CLEANED in name]
    check_log(world.log, world.files)


def test_a_policy_that_changes_to_delete_lets_retention_go_on_while_a_round_runs() -> None:
    # KAFKA-7322
    world = Compacted(segment_bytes=200)
    for number in range(10):
        world.put((b"a%d" % number, b"%d" % number * 40))
    result = world.job_result()
    world.log.update_config(small_config(cleanup_policy="delete", retention_ms=1, segment_bytes=200))
    world.clock.advance(10_000)
    assert retain(world.log, world.clock) > 0
    assert not apply_compaction(world.log, world.files, result)
    assert world.contents() == []


def test_a_round_that_failed_half_way_leaves_nothing_that_the_next_one_takes_for_its_own() -> None:
    world = Compacted()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    result = world.job_result()
    assert [name for name in listing(world.files) if names.CLEANED in name], "its files are there"
    world.clean_offset = None
    again = world.job_result()
    assert again.groups == result.groups
    assert apply_compaction(world.log, world.files, again)
    remove_files(world.files, world.log.removals.take_due(everything=True))
    check_log(world.log, world.files)
    assert world.contents() == [(1, b"a", b"2")]


def test_a_round_that_cannot_write_changes_nothing() -> None:
    world = Compacted()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.log.roll()
    world.log.flush()
    fail_when(world.files, lambda what: what.startswith("write") and ".cleaned" in what)
    with pytest.raises(OSError, match="Input/output"):
        compact(world.log, world.files, world.clock, map_bytes=MAP_BYTES)
    assert world.contents() == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_a_topic_made_again_under_a_running_round_keeps_its_own_files() -> None:
    # KAFKA-1819
    world = Compacted()
    world.put((b"a", b"old 1"))
    world.put((b"a", b"old 2"))
    result = world.job_result()
    old = world.log
    old.epoch += 1  # as LogDirectories.delete does
    old.abandon()
    for name in listing(world.files):
        if names.CLEANED not in name:
            world.files.remove(f"/data/t-0/{name}")
    world.log, _ = open_log(world.files, config=world.config)
    world.put((b"a", b"new"))
    assert not apply_compaction(old, world.files, result)
    assert world.contents() == [(0, b"a", b"new")]
    check_log(world.log, world.files)


def test_records_below_the_log_start_are_cleaned_away_without_trouble() -> None:
    # KAFKA-7400, 6266
    world = Compacted(segment_bytes=300)
    for number in range(12):
        world.put((b"k%d" % (number % 4), b"%d" % number * 40))
    world.log.delete_records(5)
    retain(world.log, world.clock)
    world.round()
    assert [offset for offset, _, _ in world.contents()] == [8, 9, 10, 11]


def test_a_clean_offset_in_a_gap_does_not_make_the_cleaner_turn_for_ever() -> None:
    # KAFKA-8764, 9133
    world = Compacted(segment_bytes=200)
    for number in range(10):
        world.put((b"a", b"%d" % number * 50))
    world.round()
    world.clean_offset = 3  # compacted away
    assert world.round() == 10
    assert world.round() is None


def test_a_gap_at_the_end_of_the_last_sealed_segment_counts_as_cleaned() -> None:
    # KAFKA-8764: or every round would end where it began.
    world = Compacted(segment_bytes=150)
    world.log.append_as_follower(batch_at(0))
    world.log.append_as_follower(batch_at(20))
    world.log.set_high_watermark(21)
    assert [segment.base_offset for segment in world.log.log.segments] == [0, 20]
    assert world.round(roll=False) == 20
    assert world.round(roll=False) is None


def test_every_batch_that_compaction_writes_has_a_good_crc_and_the_wanted_codec() -> None:
    world = Compacted()
    world.put((b"a", b"1"), (b"b", b"2"), codec=Codec.ZSTD)
    world.put((b"a", b"3"), codec=Codec.NONE)
    world.round()
    data = world.files.read(world.log.log.sealed[0].path(names.LOG))
    assert [batch.codec for batch in scan(data).batches] == [Codec.ZSTD, Codec.NONE]


# What a round holds, and what it does when its segments go away.
def dirty(**config: object) -> Compacted:
    world = Compacted(**config)
    for number in range(40):
        world.put((b"k%d" % (number % 3), b"v" * 100))
    world.log.roll()
    world.log.flush()
    return world


def job_of(world: Compacted) -> CompactionJob:
    wanted = compaction_range(world.log, world.clock, None)
    assert wanted is not None
    return compaction_job(world.log, world.files, world.clock, wanted, map_bytes=MAP_BYTES, seed=bytes(16))


def test_a_round_over_many_segments_opens_one_of_them_at_a_time() -> None:
    world = dirty(segment_bytes=300)
    job = job_of(world)
    assert sum(len(group) for group in job.groups) > 15
    held: list[int] = []
    opened = 0
    inner = world.files.open_read

    def open_read(path: str) -> File:
        nonlocal opened
        file = inner(path)
        if path.endswith(names.LOG):
            opened += 1
            close = file.close

            def closed() -> None:
                nonlocal opened
                opened -= 1
                close()

            file.close = closed  # type: ignore[method-assign]
            held.append(opened)
        return file

    world.files.open_read = open_read  # type: ignore[method-assign]
    result = job.run()
    assert held
    assert max(held) == 1
    assert apply_compaction(world.log, world.files, result)


def test_a_round_whose_segments_were_deleted_meanwhile_counts_for_nothing() -> None:
    world = dirty(segment_bytes=300, cleanup_policy="compact,delete", retention_ms=1000)
    job = job_of(world)
    world.clock.advance(10_000)
    assert retain(world.log, world.clock)
    remove_files(world.files, world.log.removals.take_due(everything=True))
    result = job.run()
    assert result.missing.endswith(names.LOG)
    assert not apply_compaction(world.log, world.files, result)
    assert not [name for name in listing(world.files) if name.endswith(names.CLEANED)]


def test_a_segment_that_somebody_else_took_away_is_named() -> None:
    world = dirty(segment_bytes=300)
    job = job_of(world)
    for path in (source.path for group in job.groups for source in group[:1]):
        world.files.remove(path)
    with pytest.raises(CorruptFileError, match="nothing here removed it"):
        apply_compaction(world.log, world.files, job.run())
