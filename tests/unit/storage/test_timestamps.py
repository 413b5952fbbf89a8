"""Questions about time: the first record at or after a timestamp, and the newest one (row S8)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import PARTITION, PATH, T0, new_disk, open_log, produced, small_config

from penstock.base.errors import StorageError
from penstock.handlers.list_offsets import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP, find_offset
from penstock.records.batch import Codec, read_header
from penstock.records.build import Record, build_batch, rebuild
from penstock.replication.partition import Partition
from penstock.storage.answers import Bound
from penstock.storage.partition_log import PartitionLog
from penstock.storage.timestamps import FoundOffset, offset_for_timestamp, offset_of_max_timestamp


def log_with(*batches: list[int], codec: Codec = Codec.NONE, **config: object) -> PartitionLog:
    """One batch for each list of timestamps (relative to T0)."""
    log, _ = open_log(new_disk(), config=small_config(**config))
    for number, stamps in enumerate(batches):
        values: list[Record] = [(T0 + stamp, b"k", b"v" * 30, ()) for stamp in stamps]
        log.append_as_leader(produced(values, codec=codec), leader_epoch=number)
    log.set_high_watermark(log.end_offset)
    return log


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("stamp", "found"),
    [
        (-(10**9), (0, 0)),
        (0, (0, 0)),
        (1, (1, 5)),  # offset 1 has 5
        (6, (2, 9)),
        (9, (2, 9)),  # the first in offset order, though 7 comes later
        (10, (5, 30)),
        (31, None),
    ],
)
def test_the_first_record_at_or_after_a_timestamp_is_found_in_any_codec(
    codec: Codec, stamp: int, found: tuple[int, int] | None
) -> None:
    log = log_with([0, 5, 9], [7, 8], [30, 3], codec=codec)
    result = offset_for_timestamp(log, T0 + stamp)
    if found is None:
        assert result is None
    else:
        assert result is not None
        assert (result.offset, result.timestamp - T0) == found


def test_the_answer_names_the_leader_epoch_of_the_batch() -> None:
    log = log_with([0], [5], [9])
    assert offset_for_timestamp(log, T0 + 5) == FoundOffset(T0 + 5, 1, 1)
    assert offset_of_max_timestamp(log) == FoundOffset(T0 + 9, 2, 2)


def test_records_below_the_log_start_are_not_found() -> None:
    log = log_with([0, 5, 9], [1, 2])
    log.delete_records(2)
    assert offset_for_timestamp(log, T0 - 50) == FoundOffset(T0 + 9, 2, 0)
    log.delete_records(3)
    assert offset_for_timestamp(log, T0 - 50) == FoundOffset(T0 + 1, 3, 1)
    assert offset_for_timestamp(log, T0 + 9) is None


def test_the_newest_record_is_the_first_of_equals() -> None:
    assert offset_of_max_timestamp(log_with([0, 9, 9], [9])) == FoundOffset(T0 + 9, 1, 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_the_newest_record_in_a_compressed_batch_is_named_itself_not_its_batchs_end(codec: Codec) -> None:
    # KAFKA-16310, 16342, 5353
    assert offset_of_max_timestamp(log_with([0], [3, 50, 4, 2], [10], codec=codec)) == FoundOffset(T0 + 50, 2, 1)


def test_where_the_broker_stamps_the_first_record_of_the_newest_batch_is_the_newest() -> None:
    # KAFKA-16342: every record of such a batch has the same timestamp.
    log = log_with([1, 2, 3], [4, 5], message_timestamp_type="LogAppendTime")
    assert offset_of_max_timestamp(log) == FoundOffset(T0, 0, 0)
    assert offset_for_timestamp(log, T0) == FoundOffset(T0, 0, 0)


def test_a_newest_record_below_the_log_start_counts_no_more() -> None:
    log = log_with([0, 99, 7], [3, 5], [4])
    log.delete_records(2)
    assert offset_of_max_timestamp(log) == FoundOffset(T0 + 7, 2, 0)
    log.delete_records(3)
    assert offset_of_max_timestamp(log) == FoundOffset(T0 + 5, 4, 1)


def test_an_empty_shell_with_the_largest_timestamp_is_not_the_newest_record() -> None:
    log, _ = open_log(new_disk())
    log.append_as_follower(build_batch([(T0, b"k", b"v", ())], base_offset=0, leader_epoch=0))
    emptied = read_header(build_batch([(T0 + 90, b"k", b"v", ())], base_offset=1, leader_epoch=0))
    log.append_as_follower(rebuild(emptied, b"", record_count=0))
    assert offset_of_max_timestamp(log) == FoundOffset(T0, 0, 0)


def test_timestamps_are_found_across_many_segments_and_after_reopening() -> None:
    stamps = [[number * 10 + slot for slot in range(3)] for number in range(40)]
    log = log_with(*stamps)
    assert len(log.log.segments) > 5
    for number in range(0, 400, 7):
        result = offset_for_timestamp(log, T0 + number)
        flat = [stamp for batch in stamps for stamp in batch]
        wanted = next((offset for offset, stamp in enumerate(flat) if stamp >= number), None)
        assert (None if result is None else result.offset) == wanted


def test_records_without_a_timestamp_have_no_newest() -> None:
    # KAFKA-14991: -1 is no time.
    log, _ = open_log(new_disk())
    log.append_as_leader(build_batch([(-1, b"k", b"v", ())]), leader_epoch=0)
    assert offset_of_max_timestamp(log) is None
    assert offset_for_timestamp(log, 0) is None


def test_an_empty_log_has_no_timestamps() -> None:
    log, _ = open_log(new_disk())
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None


def test_a_question_across_a_roll_sees_both_segments() -> None:
    # KAFKA-2236: the new active segment is empty while the question is asked.
    log = log_with([0], [5])
    log.roll()
    assert offset_for_timestamp(log, T0 + 5) == FoundOffset(T0 + 5, 1, 1)
    assert offset_of_max_timestamp(log) == FoundOffset(T0 + 5, 1, 1)


def test_a_directory_that_is_offline_answers_no_question() -> None:
    log = log_with([0])
    log._health.fail(OSError(5, "I/O error", PATH))
    with pytest.raises(StorageError):
        offset_for_timestamp(log, 0)
    with pytest.raises(StorageError):
        offset_of_max_timestamp(log)


def test_a_committed_reader_is_told_of_no_offset_at_or_above_the_last_stable_one() -> None:
    # KAFKA-5522
    log = log_with([0], [5])
    log.append_as_leader(produced([(T0 + 9, b"k", b"v", ())], producer_id=7, transactional=True), leader_epoch=1)
    log.set_high_watermark(3)
    partition = Partition(PARTITION, bytes(16), 1, log)
    partition.take_role(leader=1, leader_epoch=1, isr=(1,), replicas=(1,))
    for bound, end, newest in ((Bound.HIGH_WATERMARK, 3, 2), (Bound.LAST_STABLE, 2, -1)):
        assert find_offset(partition, LATEST, bound).offset == end
        assert find_offset(partition, T0 + 9, bound).offset == newest
        assert find_offset(partition, MAX_TIMESTAMP, bound).offset == newest
        assert find_offset(partition, T0 + 5, bound).offset == 1
    assert find_offset(partition, EARLIEST_LOCAL, Bound.LAST_STABLE).offset == 0
    log.delete_records(1)
    assert find_offset(partition, EARLIEST_LOCAL, Bound.LAST_STABLE) == find_offset(
        partition, EARLIEST, Bound.LAST_STABLE
    )
    assert find_offset(partition, EARLIEST, Bound.LAST_STABLE) == FoundOffset(-1, 1, 1)
