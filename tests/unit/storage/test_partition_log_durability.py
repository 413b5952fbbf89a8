"""One partition's log: failures, durability, its head (rows S14, S18, S21, pitfalls 1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.log_checks import check_log, rows_of
from tests.support.log_world import kill, strict_power_cut
from tests.unit.storage.disk import (
    T0,
    batch_at,
    fail_when,
    new_disk,
    open_log,
    path_of,
    produced,
    records,
    small_config,
)
from tests.unit.storage.test_partition_log import a_log, put

from penstock.base.clock import ManualClock
from penstock.base.errors import (
    OffsetOutOfRangeError,
    StorageError,
)
from penstock.storage.upkeep import retain


# Failures (S21).
def test_after_an_io_error_no_append_and_no_read_succeeds() -> None:
    # KAFKA-10778
    files = new_disk()
    log = a_log(files)
    put(log)
    fail_when(files, lambda what: what.startswith("write"))
    with pytest.raises(StorageError, match=r"log directory /data is offline: .*Input/output error"):
        put(log)
    fail_when(files, lambda _what: False)
    attempts: list[Callable[[], object]] = [
        lambda: put(log),
        lambda: log.append_as_follower(batch_at(1)),
        lambda: log.read(0, bytes_max=1),
        lambda: log.delete_records(1),
        lambda: log.truncate(0),
        lambda: log.truncate_fully(0),
        log.close,
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()
    assert log.end_offset == 1
    kill(files)
    log, _ = open_log(files)
    assert [row.offset for row in rows_of(log)] == [0]


def test_a_full_disk_takes_the_directory_offline_and_loses_nothing_that_was_acknowledged() -> None:
    files = new_disk()
    log = a_log(files, segment_bytes=10**6, index_interval_bytes=10**6)
    put(log, 3)
    files.space_left = 150
    put(log)
    with pytest.raises(StorageError, match="No space left"):
        put(log)
    acknowledged = log.end_offset
    files.space_left = None
    kill(files)
    log, _ = open_log(files)
    assert log.end_offset >= acknowledged
    check_log(log, files)


@pytest.mark.parametrize("what", ["create", "grow", "truncate", "write"])
def test_a_roll_that_fails_takes_the_directory_offline_and_a_start_mends_it(what: str) -> None:
    files = new_disk()
    log = a_log(files)
    put(log, 3, producer_id=7)
    fail_when(files, lambda step: step.startswith(what))
    with pytest.raises(StorageError):
        log.roll()
    kill(files)
    fail_when(files, lambda _step: False)
    log, _ = open_log(files)
    assert [row.offset for row in rows_of(log)] == [0, 1, 2]
    check_log(log, files)


@pytest.mark.parametrize("what", ["sync", "rename", "create"])
def test_a_flush_that_fails_does_not_move_the_recovery_point(what: str) -> None:
    files = new_disk()
    log = a_log(files)
    put(log, 3)
    fail_when(files, lambda step: step.startswith(what))
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0


# Durability (S14).
def test_the_recovery_point_moves_only_when_the_flush_is_handed_back() -> None:
    log = a_log()
    put(log, 3)
    job = log.flush_job()
    job.run()
    assert log.recovery_point == 0
    put(log, 2)
    assert log.flushed(job)
    assert log.recovery_point == 3, "what was appended since is not covered"


@pytest.mark.parametrize(("already", "due"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_flush_is_due_when_so_many_records_wait_for_one(already: int, due: bool) -> None:
    log = a_log(flush_messages=3)
    if already:
        put(log, already)
    assert log.append_as_leader(produced(), leader_epoch=0).flush_due == due
    log.flush()
    assert not log.append_as_leader(produced(), leader_epoch=0).flush_due
    assert log.append_as_follower(batch_at(log.end_offset, 2)).flush_due


def test_flush_ms_asks_for_a_flush_behind_the_writes() -> None:
    clock = ManualClock()
    log, _ = open_log(new_disk(), config=small_config(flush_ms=500), clock=clock)
    clock.advance(1000)
    assert not log.flush_interval_passed(), "nothing to flush"
    put(log)
    assert log.flush_interval_passed()
    log.flush()
    put(log)
    clock.advance(499)
    assert not log.flush_interval_passed()
    clock.set_wall(T0 - 10**9)
    clock.advance(1)
    assert log.flush_interval_passed(), "monotonic time counts"


@pytest.mark.parametrize("change", ["truncate", "truncate fully", "retention"])
def test_a_flush_that_a_cut_overtook_counts_for_nothing(change: str) -> None:
    log = a_log(segment_bytes=200, retention_ms=-1)
    for _ in range(6):
        put(log)
    job = log.flush_job()
    if change == "truncate":
        log.truncate(2)
    elif change == "truncate fully":
        log.truncate_fully(2)
    else:
        log.delete_records(4)
        retain(log, ManualClock())
    before = log.recovery_point
    job.run()
    assert not log.flushed(job)
    assert log.recovery_point == before
    assert log.flush_job().sync_names, "what it would have synced is still to be synced"


def test_flushed_records_survive_a_power_cut_with_their_epochs_and_producers() -> None:
    # KAFKA-3968, 9892, 16541: directory, snapshot and leader epochs are synced with the data.
    files = new_disk()
    log = a_log(files, segment_bytes=200)
    for number in range(6):
        log.append_as_leader(produced(producer_id=7, sequence=number), leader_epoch=number)
    log.flush()
    epochs, state = log.leader_epochs.entries, [producer.state() for producer in log.producers.values()]
    snapshots = log.snapshots.offsets[:]
    strict_power_cut(files)
    assert [offset for offset in snapshots if files.exists(path_of(offset, ".snapshot"))] == snapshots
    log, _ = open_log(files, recovery_point=6)
    assert [row.offset for row in rows_of(log)] == list(range(6))
    assert log.leader_epochs.entries == epochs
    assert [producer.state() for producer in log.producers.values()] == state


def test_a_clean_end_leaves_everything_on_disk_and_nothing_to_recover() -> None:
    files = new_disk()
    log = a_log(files)
    for number in range(20):
        put(log, producer_id=7, sequence=number)
    log.close()
    strict_power_cut(files)
    log, report = open_log(files, clean=True, high_watermark=20)
    assert report.recovered == []
    assert [row.offset for row in rows_of(log)] == list(range(20))
    check_log(log, files)


# The log's head (S18).
def test_delete_records_raises_the_start_to_the_offset_and_not_past_the_watermark() -> None:
    log = a_log()
    put(log, 5)
    put(log, 5, commit=False)
    assert log.delete_records(3) == 3
    assert log.delete_records(1) == 3
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(6)
    assert log.delete_records(5) == 5
    with pytest.raises(OffsetOutOfRangeError):
        log.read(4, bytes_max=1)


def test_the_epochs_start_with_the_log() -> None:
    log = a_log()
    for epoch in range(4):
        log.append_as_leader(produced(records(2)), leader_epoch=epoch)
    log.set_high_watermark(8)
    log.delete_records(5)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(2, 5), (3, 6)]


def test_a_new_leader_writes_its_epoch_at_once() -> None:
    # KAFKA-7415's log side.
    log = a_log()
    put(log, 2)
    log.assign_epoch(7)
    log.assign_epoch(3)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (7, 2)]
