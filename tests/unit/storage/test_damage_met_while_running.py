"""Damage that a log meets while it runs, and what it does about it: rebuild, refuse, or hold back."""

from __future__ import annotations

import struct

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import check_indexes, rows_of
from tests.unit.storage.disk import (
    T0,
    batch_at,
    new_disk,
    open_log,
    path_of,
    produced,
    put_file,
    records,
    small_config,
)
from tests.unit.storage.test_producer_state import accept, data

from penstock.base.clock import ManualClock
from penstock.base.errors import CorruptFileError
from penstock.storage.answers import Bound
from penstock.storage.producer_state import Producers
from penstock.storage.timestamps import offset_for_timestamp
from penstock.storage.upkeep import retain


def test_an_open_transaction_that_began_below_the_start_still_holds_the_stable_offset() -> None:
    producers = Producers()
    accept(producers, data(0, 0, transactional=True))
    accept(producers, data(1, 1, transactional=True))
    producers.forget_below(1)
    assert producers.first_unstable_offset is not None, "its records above the start are undecided"


def test_delete_records_within_an_open_transaction_does_not_show_its_other_records() -> None:
    log, _ = open_log(new_disk())
    for number in range(3):
        log.append_as_leader(produced(producer_id=7, sequence=number, transactional=True), leader_epoch=0)
    log.set_high_watermark(3)
    log.delete_records(1)
    assert log.last_stable_offset == 1
    assert log.read(1, bytes_max=1000, bound=Bound.LAST_STABLE).slice is None


def test_a_fetched_set_that_spans_more_than_an_int32_of_offsets_is_taken_in_parts() -> None:
    # KAFKA-4451, 6264: one fetch of a sparse topic may hold batches that no one segment can.
    log, _ = open_log(new_disk(), config=small_config(index_interval_bytes=0))
    fetched = batch_at(0) + batch_at(5) + batch_at(3 * 2**31) + batch_at(3 * 2**31 + 1)
    end = -1
    while end != log.end_offset:
        end = log.end_offset
        log.append_as_follower(fetched[log.log.size_bytes :])
    assert [row.offset for row in rows_of(log)] == [0, 5, 3 * 2**31, 3 * 2**31 + 1]
    check_indexes(log)


def sealed_log(files: ForgetfulFiles, count: int = 12) -> None:
    log, _ = open_log(files, config=small_config(segment_bytes=100_000, index_interval_bytes=100))
    for number in range(count):
        log.append_as_leader(produced(records(timestamp=T0 + number)), leader_epoch=0)
    log.roll()
    log.append_as_leader(produced(records(timestamp=T0 + 50)), leader_epoch=0)
    log.close()


@pytest.mark.parametrize("position", [10**6, 33])
def test_an_index_that_points_past_the_file_or_into_a_batch_is_rebuilt_not_believed(position: int) -> None:
    # KAFKA-7283: what a bad one says must not hide records.
    files = new_disk()
    sealed_log(files)
    good = files.read(path_of(0, ".index"))
    put_file(files, path_of(0, ".index"), good[:-8] + struct.pack(">ii", struct.unpack(">ii", good[-8:])[0], position))
    log, _ = open_log(files, clean=True, high_watermark=13)
    assert [row.offset for row in rows_of(log, from_offset=11)] == [11, 12]


def test_an_emptied_time_index_of_a_sealed_segment_is_rebuilt() -> None:
    # KAFKA-593
    files = new_disk()
    sealed_log(files)
    put_file(files, path_of(0, ".timeindex"), b"")
    log, _ = open_log(files, clean=True, high_watermark=13)
    found = offset_for_timestamp(log, T0 + 3)
    assert found is not None
    assert found.offset == 3


def test_a_batch_that_the_file_cuts_off_is_an_error_not_a_piece_of_one() -> None:
    files = new_disk()
    sealed_log(files)
    files.truncate(path_of(0), files.size(path_of(0)) - 5)
    log, _ = open_log(files, clean=True, high_watermark=13)
    with pytest.raises(CorruptFileError):
        log.read(11, bytes_max=1000, bound=Bound.LOG_END)


def test_a_snapshot_of_an_earlier_clean_end_goes_when_the_log_start_passes_it() -> None:
    # KAFKA-9105
    files = new_disk()
    config = small_config(segment_bytes=10**6, retention_ms=-1, file_delete_delay_ms=0)
    log, _ = open_log(files, config=config)
    log.append_as_leader(produced(producer_id=7), leader_epoch=0)
    log.close()
    log, _ = open_log(files, config=config, clean=True)
    for number in range(1, 5):
        log.append_as_leader(produced(producer_id=7, sequence=number), leader_epoch=0)
    log.roll()
    log.append_as_leader(produced(producer_id=7, sequence=5), leader_epoch=0)
    log.set_high_watermark(6)
    log.delete_records(6)
    retain(log, ManualClock())
    assert [offset for offset in log.snapshots.offsets if offset < log.log.segments[0].base_offset] == []


def test_old_record_formats_are_named_when_they_are_met_by_a_reader() -> None:
    files = new_disk()
    sealed_log(files)
    files.open(path_of(0)).pwrite(b"\x01", 16)
    log, _ = open_log(files, clean=True, high_watermark=13)
    with pytest.raises(Exception, match="format 0 or 1"):
        log.read(0, bytes_max=1000, bound=Bound.LOG_END)


def test_the_snapshot_of_a_clean_end_is_synced_though_nothing_came_since_the_last_flush() -> None:
    # KAFKA-9892
    files = new_disk()
    log, _ = open_log(files)
    log.append_as_leader(produced(producer_id=7), leader_epoch=0)
    log.flush()
    log.close()
    files.forget_everything_unsynced()
    assert files.exists(path_of(1, ".snapshot"))
    assert files.size(path_of(1, ".snapshot")) > 0
