"""Crashes that the model found once, kept as cases of their own."""

from __future__ import annotations

import pytest
from tests.support.log_checks import rows_of
from tests.support.log_world import LogWorld, strict_power_cut


def append(world: LogWorld, count: int = 1, *, producer_id: int = -1) -> None:
    for _ in range(count):
        world.clock.advance(10)
        world.append([(world.clock.wall_ms(), b"k", b"v" * 20, ())], producer_id=producer_id)


def test_a_segment_sealed_after_its_flush_is_whole_after_a_power_cut() -> None:
    """Sealing trims files and adds the final time entry: the flush that moves on must cover it."""
    world = LogWorld(segment_bytes=5000, preallocate="true")
    append(world, 3)
    world.flush()
    world.log.roll()
    append(world)
    world.flush()
    world.crash(strict_power_cut, keeps_cache=False)
    world.check()
    sealed = world.log.log.segments[0]
    assert sealed.size_bytes == len(world.files.read(sealed.path(".log")))


@pytest.mark.parametrize("count", [1, 3])
def test_segments_set_aside_by_recovery_do_not_come_back(count: int) -> None:
    """Their names are synced away, or a second crash shows them beside what was appended since."""
    world = LogWorld(segment_bytes=5000, cleanup_policy="compact")
    append(world, 2)
    world.flush()
    append(world, 2)
    world.log.roll()
    append(world, 2)
    first = world.log.log.segments[0]
    for name in world.files.list(world.log.directory):
        world.files.open(f"{world.log.directory}/{name}").sync()
    world.files.sync_directory(world.log.directory)
    world.files.truncate(first.path(".log"), first.size_bytes - 5)  # the tail of a sealed segment is lost
    world.files.open(first.path(".log")).sync()
    world.files.kill()
    world.open()
    assert world.log.end_offset == 3
    world.rows, world.sequences = rows_of(world.log), {}
    world.log.set_high_watermark(3)
    append(world, count)  # with 1 the log ends just where the segment began that was set aside
    world.files.open(world.log.log.active.path(".log")).sync()
    world.crash(strict_power_cut, keeps_cache=False)
    assert [row.offset for row in rows_of(world.log)] == list(range(3 + count))
    assert len(world.log.log.segments) == 1
    assert len([name for name in world.files.list(world.log.directory) if name.endswith(".log.cut")]) == 1


def test_what_was_deleted_does_not_come_back_with_its_segment() -> None:
    """The log start is remembered even where the first segment's name tells it: the rename may be lost."""
    world = LogWorld(segment_bytes=5000)
    append(world, 4)
    world.flush()
    world.log.roll()
    append(world, 2)
    world.flush()
    world.log.delete_records(4)
    world.retain()
    world.directories.checkpoint()
    world.crash(strict_power_cut, keeps_cache=False)
    assert world.log.log_start_offset == 4


def test_an_index_entry_is_due_only_when_more_than_the_interval_came_since() -> None:
    world = LogWorld(segment_bytes=100_000, index_interval_bytes=10**6)
    append(world)
    size = world.log.log.active.size_bytes
    exact = LogWorld(segment_bytes=100_000, index_interval_bytes=2 * size)
    append(exact, 3)
    assert exact.log.log.active.offset_index.entries == 0, "two batches are not more than the interval"
    append(exact)
    assert [tuple(exact.log.log.active.offset_index.entry(0))] == [(3, 3 * size)]
