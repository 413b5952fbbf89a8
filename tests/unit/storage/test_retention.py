"""Retention: which segments may go, and how they go (row S18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.log_world import LogWorld, kill, strict_power_cut
from tests.unit.storage.disk import T0, listing, produced, records

from penstock.storage.config import log_config
from penstock.storage.retention import RetentionPlan, SegmentFacts, plan_retention
from penstock.storage.upkeep import remove_files, retain

SEGMENTS = [SegmentFacts(0, 100, T0), SegmentFacts(10, 100, T0 + 10), SegmentFacts(20, 50, T0 + 20)]
END = 25


def plan(
    segments: list[SegmentFacts] = SEGMENTS,
    *,
    now_ms: int = T0 + 20,
    log_start_offset: int = 0,
    high_watermark: int = END,
    **config: object,
) -> RetentionPlan:
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    return plan_retention(
        segments,
        log_config(settings),
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        end_offset=END,
        now_ms=now_ms,
    )


# By time.
@pytest.mark.parametrize(
    ("now_ms", "bases", "rolls"),
    [(T0 + 100, [], False), (T0 + 101, [0], False), (T0 + 111, [0, 10], False), (T0 + 121, [0, 10, 20], True)],
)
def test_a_segment_goes_when_its_newest_record_is_too_old(now_ms: int, bases: list[int], rolls: bool) -> None:
    assert plan(now_ms=now_ms, retention_ms=100) == RetentionPlan(bases, rolls)


def test_a_young_segment_shields_the_older_ones_behind_it() -> None:
    segments = [SegmentFacts(0, 100, T0 + 500), SegmentFacts(10, 100, T0), SegmentFacts(20, 50, T0)]
    assert plan(segments, now_ms=T0 + 200, retention_ms=100).bases == []


@pytest.mark.parametrize("retention_ms", [-1, 2**63 - 1])
def test_unlimited_time_deletes_nothing(retention_ms: int) -> None:
    assert plan(now_ms=2**62, retention_ms=retention_ms).bases == []


def test_a_clock_that_went_back_deletes_nothing() -> None:
    assert plan(now_ms=T0 - 10**9, retention_ms=1).bases == []


def test_an_empty_active_segment_is_not_rolled_again() -> None:
    segments = [SegmentFacts(0, 100, T0), SegmentFacts(25, 0, T0)]
    assert plan(segments, now_ms=T0 + 1000, retention_ms=100) == RetentionPlan([0], False)


# By size.
@pytest.mark.parametrize(
    ("size", "bases"), [(-1, []), (250, []), (151, []), (150, [0]), (51, [0]), (50, [0, 10]), (0, [0, 10, 20])]
)
def test_segments_go_while_the_rest_still_has_the_size_to_keep(size: int, bases: list[int]) -> None:
    assert plan(retention_ms=-1, retention_bytes=size).bases == bases


def test_sizes_beyond_two_gigabytes_are_no_trouble() -> None:
    # KAFKA-6292, 985, 5584: sums of segments near 2^31 overflowed.
    huge = [SegmentFacts(0, 2**31 - 1, T0), SegmentFacts(10, 2**31 - 1, T0), SegmentFacts(20, 2**31 - 1, T0)]
    assert plan(huge, retention_ms=-1, retention_bytes=2**32 - 2).bases == [0]
    assert plan(huge, retention_ms=-1, retention_bytes=2**32 - 1).bases == []
    assert plan(huge, retention_ms=-1, retention_bytes=2**62).bases == []


# By the log's start.
@pytest.mark.parametrize(("start", "bases"), [(0, []), (9, []), (10, [0]), (19, [0]), (20, [0, 10]), (25, [0, 10])])
@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete"])
def test_segments_below_the_start_go_under_every_policy(policy: str, start: int, bases: list[int]) -> None:
    # KAFKA-7400
    found = plan(log_start_offset=start, cleanup_policy=policy, retention_ms=-1)
    assert found == RetentionPlan(bases, False)


def test_a_topic_that_is_only_compacted_keeps_its_old_segments() -> None:
    assert plan(now_ms=2**62, retention_ms=1, retention_bytes=0, cleanup_policy="compact").bases == []


@pytest.mark.parametrize(("high_watermark", "bases"), [(0, []), (9, []), (10, [0]), (24, [0, 10]), (25, [0, 10, 20])])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, bases: list[int]) -> None:
    # KAFKA-5634
    assert plan(now_ms=2**62, retention_ms=1, retention_bytes=0, high_watermark=high_watermark).bases == bases


# Doing it.
def filled_world(count: int = 30, **config: object) -> LogWorld:
    world = LogWorld(**config)
    for _ in range(count):
        world.clock.advance(1000)
        world.append([(world.clock.wall_ms(), b"k", b"v" * 40, ())], producer_id=3)
    return world


def test_what_is_removed_is_renamed_first_and_unlinked_after_the_delay() -> None:
    world = filled_world(retention_ms=5000, file_delete_delay_ms=60_000)
    first = world.log.log.segments[0].base_offset
    gone = retain(world.log, world.clock)
    assert gone > 1
    assert f"{first:020d}.log.deleted" in listing(world.files)
    assert world.log.log_start_offset == world.log.log.segments[0].base_offset
    world.clock.advance(59_999)
    assert world.log.removals.take_due() == []
    world.clock.advance(1)
    remove_files(world.files, world.log.removals.take_due())
    assert not [name for name in listing(world.files) if name.endswith(".deleted")]


def test_every_file_of_a_segment_is_renamed_with_it() -> None:
    # KAFKA-5752, 12964: log, index, timeindex, txnindex and snapshot.
    world = LogWorld(retention_ms=-1)
    world.append([(T0, b"k", b"v" * 500, ())], producer_id=3, transactional=True)
    world.end_transaction(3, commit=False)
    world.log.roll()
    world.append([(T0, b"k", b"v" * 500, ())], producer_id=3, transactional=True)
    world.end_transaction(3, commit=False)
    world.log.roll()
    second = world.log.log.segments[1].base_offset
    world.delete_records(world.log.end_offset)
    retain(world.log, world.clock)
    renamed = {name for name in listing(world.files) if name.endswith(".deleted")}
    for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        assert f"{second:020d}{kind}.deleted" in renamed


def test_a_file_made_again_under_the_old_name_outlives_the_delayed_removal() -> None:
    # KAFKA-12964: the snapshot of offset 3 was written anew while the removal of the old one was waiting.
    world = filled_world(6, retention_ms=-1, segment_bytes=200)
    base = world.log.log.segments[1].base_offset
    world.delete_records(world.log.end_offset)
    retain(world.log, world.clock)
    waiting = world.log.removals.take_due(everything=True)
    assert f"/data/t-0/{base:020d}.snapshot.deleted" in waiting
    world.log.snapshots.write(base, world.log.producers.values())
    remove_files(world.files, waiting)
    assert f"{base:020d}.snapshot" in listing(world.files)


def test_missing_indexes_do_not_stop_a_removal() -> None:
    # KAFKA-6324, 6194
    world = filled_world(retention_ms=1, file_delete_delay_ms=0)
    first = world.log.log.segments[0]
    first.close()
    for kind in (".index", ".timeindex"):
        world.files.remove(first.path(kind))
    world.log.delete_records(world.log.end_offset)
    world.log.remove_segments([first.base_offset])
    remove_files(world.files, world.log.removals.take_due())
    assert not [name for name in listing(world.files) if name.startswith("0" * 20)]


def test_a_file_that_is_gone_already_is_no_error() -> None:
    # KAFKA-7278, 13315: somebody else, or an earlier run, unlinked it.
    world = filled_world(retention_ms=1, file_delete_delay_ms=0)
    retain(world.log, world.clock)
    paths = world.log.removals.take_due()
    remove_files(world.files, paths)
    remove_files(world.files, paths)
    assert world.log.removals.take_due() == [], "handed out once"


def test_retention_twice_is_retention_once() -> None:
    # KAFKA-12177, 12955: the set is fixed before anything changes.
    world = filled_world(retention_ms=5000)
    assert retain(world.log, world.clock) > 0
    start = world.log.log_start_offset
    assert retain(world.log, world.clock) == 0
    assert world.log.log_start_offset == start


def test_a_log_that_expired_whole_continues_at_its_end() -> None:
    world = filled_world(retention_ms=5000)
    end = world.log.end_offset
    world.clock.advance(10**6)
    retain(world.log, world.clock)
    assert (world.log.log_start_offset, world.log.end_offset) == (end, end)
    assert len(world.log.log.segments) == 1
    assert (
        world.log.append_as_leader(produced(records(timestamp=world.clock.wall_ms())), leader_epoch=0).base_offset
        == end
    )


def test_a_segment_without_timestamps_ages_by_its_file() -> None:
    world = LogWorld(retention_ms=5000)
    world.log.append_as_leader(produced([(-1, b"k", b"v", ())]), leader_epoch=0)
    world.log.set_high_watermark(1)
    world.clock.set_wall(world.files.now_ms + 5000)
    assert retain(world.log, world.clock) == 0
    world.clock.set_wall(world.files.now_ms + 5001)
    assert retain(world.log, world.clock) == 1


def test_a_segment_that_cannot_be_read_goes_by_its_file_and_holds_nobody_up() -> None:
    world = filled_world(retention_ms=5000)
    world.close()
    files = world.files
    files.open("/data/t-0/00000000000000000000.log").pwrite(b"\7" * 61, 0)
    for kind in (".index", ".timeindex"):
        files.remove(f"/data/t-0/00000000000000000000{kind}")
    world.open()
    world.clock.set_wall(files.now_ms + 5001)
    assert retain(world.log, world.clock) >= 1
    assert world.log.log.segments[0].base_offset > 0


def test_a_clock_that_jumps_back_between_roll_and_retention_deletes_nothing_and_breaks_nothing() -> None:
    world = filled_world(retention_ms=5000)
    world.clock.set_wall(T0 - 10**9)
    assert retain(world.log, world.clock) == 0
    world.append([(world.clock.wall_ms(), b"k", b"v", ())])
    world.check()


def test_no_delay_at_all_does_not_hold_up_a_shutdown() -> None:
    # KAFKA-16588
    world = filled_world(retention_ms=5000, file_delete_delay_ms=0)
    retain(world.log, world.clock)
    world.close()
    assert not [name for name in listing(world.files) if name.endswith(".deleted")]


def test_a_shutdown_while_removals_wait_is_clean() -> None:
    # KAFKA-13315
    world = filled_world(retention_ms=5000, file_delete_delay_ms=60_000)
    retain(world.log, world.clock)
    assert world.log.removals.pending
    world.rows = [row for row in world.rows if row.offset >= world.log.log_start_offset]
    world.close()
    assert world.files.exists("/data/.kafka_cleanshutdown")
    world.open()
    world.check()


@pytest.mark.parametrize("how", [kill, strict_power_cut])
def test_records_that_were_deleted_stay_deleted_after_a_crash(how: Callable[..., None]) -> None:
    world = filled_world(retention_ms=-1)
    world.flush()
    world.delete_records(17)
    how(world.files)
    world.open()
    assert world.log.log_start_offset == 17
