"""What log directories remember of their logs in checkpoints, through cuts, deletions and crashes (row S17, pitfalls 1)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support.forgetful_files import Cut
from tests.support.log_checks import check_log
from tests.support.log_world import kill, strict_power_cut
from tests.unit.storage.disk import put_file, small_config
from tests.unit.storage.test_log_directories import A, T, U, directories, fill, offsets_of, opened

from penstock.base.clock import ManualClock
from penstock.base.files import SystemFiles
from penstock.storage import checkpoints, names
from penstock.storage.upkeep import compact


# Checkpoints.
@pytest.mark.parametrize(
    "name", [names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS, names.CLEANER_OFFSETS]
)
@pytest.mark.parametrize("data", [b"rubbish", b"0\n5\nt 0 1\n", b"\xff\xfe"])
def test_a_checkpoint_that_cannot_be_read_is_the_same_as_none(name: str, data: bytes) -> None:
    files, made = opened()
    fill(made.create(T, small_config()))
    made.checkpoint()
    kill(files)
    put_file(files, f"{A}/{name}", data)
    made = directories(files)
    (report,) = made.open()
    assert offsets_of(made.logs[T]) == list(range(20))
    if name == names.RECOVERY_POINTS:
        assert report.recovered[0].base_offset == 0, "from the very beginning"


def test_what_a_crash_leaves_behind_is_recovered_from_the_checkpoint_on() -> None:
    files, made = opened()
    log = made.create(T, small_config())
    fill(log, 10)
    log.flush()
    made.checkpoint()
    fill(log, 10)
    kill(files)
    made = directories(files)
    (report,) = made.open()
    assert report.recovered[0].base_offset > 0
    assert offsets_of(made.logs[T]) == list(range(20))
    assert made.logs[T].recovery_point == 10


@pytest.mark.parametrize("step", range(6))
def test_a_raised_start_does_not_hide_unflushed_data_when_its_checkpoint_is_cut(step: int) -> None:
    """The start raises the recovery point with it, over data that was never flushed: the start must be on disk first."""
    files, made = opened(None, segment_bytes=200)
    log = made.create(T, small_config(segment_bytes=200))
    fill(log, 8)
    for name in files.list(log.directory):
        files.open(f"{log.directory}/{name}").sync()
    files.sync_directory(log.directory)
    made.checkpoint()
    second = log.log.segments[1]
    files.truncate(second.path(names.LOG), 10)  # what a power cut leaves of an unflushed segment
    files.open(second.path(names.LOG)).sync()
    log.delete_records(8)
    files.fail_at = files.steps + step * 5
    try:
        made.checkpoint()
    except Cut:
        strict_power_cut(files)
    else:
        strict_power_cut(files)
    made = directories(files, segment_bytes=200)
    made.open()
    log = made.logs[T]
    log.set_high_watermark(log.end_offset)
    check_log(log, files)
    assert offsets_of(log) == list(range(log.log_start_offset, log.end_offset))


@pytest.mark.parametrize("when", ["at once", "after the job", "before the job"])
def test_a_topic_made_again_does_not_find_the_offsets_of_the_old_one_after_a_crash(when: str) -> None:
    # KAFKA-1819's kin: its recovery point hid torn segments, its start emptied the new log.
    files, made = opened()
    log = made.create(T, small_config())
    fill(log, 30)
    log.flush()
    log.delete_records(25)
    made.directories[0].cleaner_offsets[T] = 20
    made.checkpoint()
    job = made.delete(T)
    if when == "after the job":
        job()
    fill(made.create(T, small_config()), 5)
    if when == "before the job":
        job()
    kill(files)
    made = directories(files)
    (report,) = made.open()
    assert offsets_of(made.logs[T]) == list(range(5))
    assert (made.logs[T].log_start_offset, made.logs[T].recovery_point) == (0, 0)
    assert made.directories[0].cleaner_offsets == {}
    assert report.recovered


def test_a_truncation_takes_the_clean_offset_back_with_it() -> None:
    # KAFKA-8724, 6266: what is written above the cut is dirty.
    files, made = opened(None, cleanup_policy="compact", segment_bytes=200)
    log = made.create(T, small_config(cleanup_policy="compact", segment_bytes=200))
    fill(log, 12)
    log.roll()
    log.flush()
    state = made.directories[0]
    clean = compact(log, files, ManualClock(), map_bytes=4096)
    assert clean == 12
    state.cleaner_offsets[T] = clean
    made.truncate(T, 5)
    assert state.cleaner_offsets[T] <= 5
    assert checkpoints.read_offsets(files, f"{A}/{names.CLEANER_OFFSETS}") == state.cleaner_offsets


@pytest.mark.parametrize("fully", [True, False])
def test_the_recovery_point_is_lowered_on_disk_before_a_byte_is_cut(fully: bool) -> None:
    # KAFKA-10101, 12153
    files, made = opened(None, segment_bytes=200)
    log = made.create(T, small_config(segment_bytes=200))
    fill(log, 12)
    log.flush()
    made.checkpoint()
    if fully:
        made.truncate_fully(T, 4)
    else:
        made.truncate(T, 4)
    assert (log.end_offset, log.recovery_point) == (4, 4) if fully else (log.end_offset <= 4, True)
    stored = checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}")[T]
    assert stored == (0 if fully else 4)
    fill(log, 9)
    bases = [segment.base_offset for segment in log.log.segments if segment.base_offset >= log.log_start_offset]
    kill(files)
    made = directories(files, segment_bytes=200)
    (report,) = made.open()
    recovered = {segment.base_offset for segment in report.recovered}
    assert {base for base in bases if base >= 4} <= recovered, "everything written since the cut"


def test_a_checkpoint_that_was_frozen_before_a_cut_does_not_raise_the_recovery_point_after_it() -> None:
    """A thread has had it since before: a crash after the cut would recover nothing of what is half cut."""
    files, made = opened(None, segment_bytes=200)
    log = made.create(T, small_config(segment_bytes=200))
    fill(log, 12)
    log.flush()
    (state,) = made.directories
    late = made.freeze(state, names.RECOVERY_POINTS)
    job = made.before_cut(T, 4)
    assert job is not None
    job()
    assert made.before_cut(T, 4) is None
    late.write()
    assert checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}")[T] == 4
    made.truncate(T, 4)
    made.freeze(state, names.RECOVERY_POINTS).write()
    assert checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}")[T] == log.recovery_point


def test_a_checkpoint_that_was_frozen_before_a_deletion_says_nothing_of_what_is_deleted() -> None:
    """A topic made again under the name would be taken for flushed up to the old one's recovery point."""
    files, made = opened()
    fill(made.create(T, small_config()), 12)
    fill(made.create(U, small_config()), 3)
    for log in made.logs.values():
        log.flush()
    (state,) = made.directories
    late = made.freeze(state, names.RECOVERY_POINTS)
    made.delete(T)()
    late.write()
    assert checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}") == {U: 3}
    made.create(T, small_config())
    made.freeze(state, names.RECOVERY_POINTS).write()
    assert checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}") == {T: 0, U: 3}


def test_a_cut_waits_for_the_disk_again_where_a_flush_ended_meanwhile() -> None:
    files, made = opened(None, segment_bytes=200)
    log = made.create(T, small_config(segment_bytes=200))
    fill(log, 12)
    log.flush()
    made.checkpoint()
    flush = log.flush_job()
    job = made.before_cut(T, 4)
    assert job is not None
    assert made.before_cut(T, 4) is not None, "lowered in memory is not on disk"
    flush.run()
    log.flushed(flush)
    made.checkpoint()
    assert checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}")[T] == 12
    job()
    again = made.before_cut(T, 4)
    assert again is not None
    again()
    assert made.before_cut(T, 4) is None
    assert checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}")[T] == 4


def test_a_stray_log_is_kept_under_another_name_and_forgotten() -> None:
    files, made = opened()
    fill(made.create(T, small_config()), 5)
    fill(made.create(U, small_config()), 3)
    made.checkpoint()
    made.set_aside(T)()
    assert list(made.logs) == [U]
    (stray,) = [name for name in files.list(A) if name.endswith("-stray")]
    assert stray.startswith("t-0.")
    assert files.size(f"{A}/{stray}/00000000000000000000.log") > 0
    assert list(checkpoints.read_offsets(files, f"{A}/{names.RECOVERY_POINTS}")) == [U]
    kill(files)
    made = directories(files)
    made.open()
    assert list(made.logs) == [U]


def test_two_writers_of_a_checkpoint_do_not_trip_over_each_other(tmp_path: Path) -> None:
    files = SystemFiles()
    path = f"{tmp_path}/{names.RECOVERY_POINTS}"
    failures: list[OSError] = []

    def write(number: int) -> None:
        try:
            for _ in range(10):
                checkpoints.write_offsets(files, path, {T: number})
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert checkpoints.read_offsets(files, path)[T] in range(4)
