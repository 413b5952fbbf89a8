"""A log of segments: when it rolls, onto what, and what a read finds (rows S6, S12, S13, S20)."""

from __future__ import annotations

import struct

import pytest
from tests.support.log_checks import check_indexes, check_log, rows_of
from tests.unit.storage.disk import (
    T0,
    batch_at,
    listing,
    new_disk,
    open_log,
    path_of,
    produced,
    put_file,
    records,
    small_config,
)

from penstock.base.clock import ManualClock
from penstock.records.batch import scan
from penstock.records.build import build_batch
from penstock.storage import names
from penstock.storage.answers import Bound
from penstock.storage.partition_log import PartitionLog

SIZE = len(batch_at(0))
WEEK_MS = 7 * 24 * 3_600_000


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.log.segments]


def append(log: PartitionLog, *, timestamp: int = T0, count: int = 1) -> int:
    return log.append_as_leader(produced(records(count, timestamp=timestamp)), leader_epoch=0).base_offset


# Rolling.
def test_a_set_that_does_not_fit_begins_a_new_segment() -> None:
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=3 * SIZE))
    for _ in range(7):
        append(log)
    assert bases(log) == [0, 3, 6], "a full segment is as large as it may be"


def test_a_segment_rolls_by_the_time_between_its_first_batch_and_the_incoming_one() -> None:
    config = small_config(segment_ms=1000, segment_bytes=10**6, message_timestamp_after_max_ms=10**9)
    log, _ = open_log(new_disk(), config=config)
    append(log, timestamp=T0)
    append(log, timestamp=T0 + 1000)
    append(log, timestamp=T0 - 10**6)
    assert bases(log) == [0]
    append(log, timestamp=T0 + 1001)
    assert bases(log) == [0, 3]
    append(log, timestamp=T0 + 2001)
    assert bases(log) == [0, 3], "counted from the new segment's first batch"


def test_the_wall_clock_counts_only_where_there_are_no_timestamps() -> None:
    clock = ManualClock()
    log, _ = open_log(new_disk(), config=small_config(segment_ms=1000), clock=clock)
    append(log, timestamp=T0)
    clock.advance(10**6)
    append(log, timestamp=T0 + 1)
    assert bases(log) == [0]
    log, _ = open_log(new_disk(), config=small_config(segment_ms=1000), clock=clock)
    append(log, timestamp=-1)
    clock.advance(1001)
    append(log, timestamp=-1)
    assert bases(log) == [0, 1]


def test_a_clock_that_goes_back_rolls_nothing_and_breaks_nothing() -> None:
    clock = ManualClock()
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_ms=1000), clock=clock)
    append(log, timestamp=-1)
    clock.set_wall(T0 - 10**9)
    append(log, timestamp=-1)
    append(log, timestamp=T0 - 10**9)
    assert bases(log) == [0]
    clock.set_wall(T0 + 10**9)
    append(log, timestamp=-1)
    assert len(bases(log)) == 2
    check_log(log, files)


def test_an_empty_segment_is_not_rolled_however_old_it_is() -> None:
    clock = ManualClock()
    log, _ = open_log(new_disk(), config=small_config(segment_ms=1), clock=clock)
    clock.advance(WEEK_MS)
    active = log.log.active
    append(log, timestamp=clock.wall_ms())
    assert bases(log) == [0]
    assert log.log.active is active, "not even replaced by another of the same name"
    assert not open_log(new_disk())[0].roll()


def test_jitter_is_taken_off_and_drawn_anew_for_each_segment() -> None:
    config = small_config(segment_ms=1000, segment_bytes=10**6, message_timestamp_after_max_ms=10**9)
    log, _ = open_log(new_disk(), config=config)
    draws = iter([900, 0])
    log._jitter_ms, log._jitter_for = 300, lambda _config: next(draws)
    append(log, timestamp=T0)
    append(log, timestamp=T0 + 700)
    assert bases(log) == [0]
    append(log, timestamp=T0 + 701)
    append(log, timestamp=T0 + 802)
    assert bases(log) == [0, 2, 3]
    append(log, timestamp=T0 + 1802)
    assert bases(log) == [0, 2, 3]


def test_a_full_offset_index_or_time_index_rolls() -> None:
    log, _ = open_log(
        new_disk(), config=small_config(segment_bytes=10**6, segment_index_bytes=32, index_interval_bytes=0)
    )
    for number in range(9):
        append(log, timestamp=T0 + number)
    assert bases(log) == [0, 2, 4, 6, 8], "two slots of time, one kept for the end"
    log, _ = open_log(
        new_disk(), config=small_config(segment_bytes=10**6, segment_index_bytes=40, index_interval_bytes=0)
    )
    for _ in range(12):
        append(log, timestamp=T0)
    assert bases(log) == [0, 6], "five slots of offsets; the time does not grow"


def test_an_offset_too_far_above_the_base_rolls_and_the_new_base_is_the_offset_that_came() -> None:
    # KAFKA-4451, 6530: sparse offsets of a compacted topic, replicated.
    files = new_disk()
    log, _ = open_log(files)
    log.append_as_follower(batch_at(0))
    log.append_as_follower(batch_at(2**31 - 1))
    log.append_as_follower(batch_at(2**31))
    log.append_as_follower(batch_at(10**10))
    assert bases(log) == [0, 2**31, 10**10]
    assert [row.offset for row in rows_of(log)] == [0, 2**31 - 1, 2**31, 10**10]
    check_indexes(log)


def test_an_empty_active_segment_that_is_too_far_below_is_replaced() -> None:
    # KAFKA-6388
    files = new_disk()
    log, _ = open_log(files)
    log.append_as_follower(batch_at(10**10))
    assert bases(log) == [10**10]
    assert [name for name in listing(files) if name.endswith(".log")] == ["00000000010000000000.log"]


def test_rolling_onto_an_empty_segment_of_the_same_base_replaces_it() -> None:
    # KAFKA-6388, 654: a truncation to its base left it there.
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_bytes=3 * SIZE))
    for _ in range(4):
        append(log)
    assert bases(log) == [0, 3]
    log.truncate(3)
    assert bases(log) == [0, 3]
    assert log.log.roll(3, T0) is None
    assert bases(log) == [0, 3]
    append(log)
    check_log(log, files)


def test_leftovers_of_the_new_name_are_removed() -> None:
    files = new_disk()
    log, _ = open_log(files)
    append(log)
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        put_file(files, path_of(1, kind), b"left over" * 12)
    log.roll()
    append(log)
    assert files.size(path_of(1)) == SIZE
    assert not files.exists(path_of(1, ".txnindex"))
    check_indexes(log)


def test_a_segment_is_preallocated_and_trimmed_when_it_is_sealed_or_closed() -> None:
    # KAFKA-5431
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_bytes=500, preallocate="true"))
    assert files.size(path_of(0)) == 500
    append(log)
    assert files.size(path_of(0)) == 500
    log.roll()
    assert (files.size(path_of(0)), files.size(path_of(1))) == (SIZE, 500)
    append(log)
    log.close()
    assert files.size(path_of(1)) == SIZE


def test_a_log_that_is_closed_has_its_newest_timestamp_in_the_time_index() -> None:
    files = new_disk()
    log, _ = open_log(files, config=small_config(index_interval_bytes=10**6))
    append(log, timestamp=T0 + 5)
    append(log, timestamp=T0)
    assert log.log.active.time_index.entries == 0, "too few bytes for an entry of their own"
    log.close()
    assert files.read(path_of(0, names.TIME_INDEX)) == struct.pack(">qi", T0 + 5, 0)


def test_a_segment_near_two_gigabytes_is_full_in_time() -> None:
    # KAFKA-5584, 6292: sizes were added as int32.
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=2**31 - 1))
    append(log)
    log.log.active.size_bytes = 2**31 - 1 - SIZE
    assert not log.log.should_roll(SIZE, T0, 1, 0, T0)
    assert log.log.should_roll(SIZE + 1, T0, 1, 0, T0)


def test_the_end_is_one_value_that_moves_after_the_bytes_are_there() -> None:
    # KAFKA-698, 2477: a reader sees the old triple or the new one.
    files = new_disk()
    log, _ = open_log(files)
    before = log.log.end
    append(log, count=3)
    assert log.log.end == (3, 0, log.log.active.size_bytes)
    assert before == (0, 0, 0), "the old one is still whole"
    log.roll()
    assert log.log.end == (3, 3, 0)


# Reading.
def read_offsets(log: PartitionLog, offset: int, bytes_max: int, bound: Bound = Bound.LOG_END) -> list[int]:
    result = log.read(offset, bytes_max=bytes_max, bound=bound)
    return [] if result.slice is None else [batch.base_offset for batch in scan(result.slice.read()).batches]


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=10**6))
    for _ in range(20):
        append(log, count=3)
    for offset in range(60):
        assert read_offsets(log, offset, 1)[0] == offset // 3 * 3


def test_the_first_batch_is_given_whole_unless_the_reader_wants_no_more_than_it_asked_for() -> None:
    log, _ = open_log(new_disk())
    append(log)
    append(log)
    assert read_offsets(log, 0, 1) == [0]
    few = log.read(0, bytes_max=10, bound=Bound.LOG_END, minimum_one=False)
    assert few.slice is not None
    assert few.slice.length == 10


def test_a_read_stays_within_its_segment_and_the_next_one_follows() -> None:
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=2 * SIZE))
    for _ in range(4):
        append(log)
    assert read_offsets(log, 0, 10**6) == [0, 1]
    assert read_offsets(log, 2, 10**6) == [2, 3]


def test_offsets_that_were_compacted_away_lead_to_what_comes_next_even_in_the_next_segment() -> None:
    log, _ = open_log(new_disk())
    log.append_as_follower(batch_at(0) + batch_at(5))
    log.roll()
    log.append_as_follower(batch_at(20))
    log.set_high_watermark(21)
    assert read_offsets(log, 3, 10**6) == [5]
    for offset in range(6, 21):
        assert read_offsets(log, offset, 10**6) == [20]


def test_nothing_is_read_at_or_above_the_bound_even_when_it_lies_within_a_segment() -> None:
    # KAFKA-9835, 2477
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=10**6))
    for _ in range(6):
        append(log)
    log.set_high_watermark(3)
    assert read_offsets(log, 0, 10**6, Bound.HIGH_WATERMARK) == [0, 1, 2]
    assert read_offsets(log, 3, 10**6, Bound.HIGH_WATERMARK) == []
    assert read_offsets(log, 5, 10**6, Bound.HIGH_WATERMARK) == []


def test_a_roll_at_the_bound_shows_nothing_of_the_next_segment() -> None:
    # KAFKA-9196
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=10**6))
    for _ in range(3):
        append(log)
    log.set_high_watermark(3)
    assert log.roll()
    for _ in range(2):
        append(log)
    assert [segment.base_offset for segment in log.log.segments] == [0, 3]
    assert read_offsets(log, 0, 10**6, Bound.HIGH_WATERMARK) == [0, 1, 2]
    assert read_offsets(log, 3, 10**6, Bound.HIGH_WATERMARK) == []
    log.set_high_watermark(4)
    assert read_offsets(log, 0, 10**6, Bound.HIGH_WATERMARK) == [0, 1, 2]
    assert read_offsets(log, 3, 10**6, Bound.HIGH_WATERMARK) == [3]


def test_a_slice_is_not_changed_by_what_is_appended_after_it_was_taken() -> None:
    # KAFKA-9835: the limit is fixed when the slice is made.
    log, _ = open_log(new_disk())
    append(log)
    taken = log.read(0, bytes_max=10**6, bound=Bound.LOG_END).slice
    assert taken is not None
    append(log)
    assert len(taken.read()) == SIZE


# Truncating.
@pytest.mark.parametrize("offset", range(12))
def test_a_cut_at_any_offset_leaves_a_log_that_continues_there(offset: int) -> None:
    # KAFKA-654, 6492, 6388
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_bytes=3 * SIZE))
    for _ in range(12):
        append(log)
    log.set_high_watermark(12)
    log.truncate(offset)
    assert [row.offset for row in rows_of(log)] == list(range(offset))
    assert append(log) == offset
    check_log(log, files)


def test_a_cut_to_an_empty_segment_resizes_its_indexes_and_rolls_nothing() -> None:
    # KAFKA-6492
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_bytes=3 * SIZE))
    for _ in range(8):
        append(log)
    log.truncate(3)
    assert bases(log) == [0, 3]
    assert (files.size(path_of(3)), files.size(path_of(3, ".index"))) == (0, 1000)
    append(log)
    assert bases(log) == [0, 3]


def test_a_cut_in_a_gap_ends_the_log_at_the_offset_asked_for() -> None:
    log, _ = open_log(new_disk())
    log.append_as_follower(batch_at(0) + batch_at(10))
    log.truncate(5)
    assert log.end_offset == 5


def test_a_cut_beyond_the_end_changes_nothing() -> None:
    log, _ = open_log(new_disk())
    append(log)
    log.truncate(1)
    log.truncate(100)
    assert log.end_offset == 1


def test_emptying_a_log_leaves_one_segment_at_the_offset_and_nothing_else() -> None:
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_bytes=3 * SIZE))
    for number in range(8):
        log.append_as_leader(produced(producer_id=1, sequence=number), leader_epoch=number)
    log.truncate_fully(100)
    assert (bases(log), log.log_start_offset, log.end_offset, log.high_watermark) == ([100], 100, 100, 100)
    segment = [f"{100:020d}{kind}" for kind in (".index", ".log", ".timeindex")]
    assert sorted(listing(files)) == [*segment, "leader-epoch-checkpoint"], "the epochs' file says that there are none"
    assert log.leader_epochs.entries == ()
    assert list(log.producers.values()) == []


def test_a_cut_below_the_first_segment_starts_over_there() -> None:
    log, _ = open_log(new_disk())
    log.append_as_follower(build_batch(records(), base_offset=10**10, leader_epoch=0))
    log.truncate(50)
    assert (log.log_start_offset, log.end_offset, bases(log)) == (50, 50, [50])
