"""The last flushes of a clean stop: on several threads, before the marker, and with disks that fail (rows S14, S17)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import rows_of
from tests.support.log_world import strict_power_cut
from tests.unit.storage.disk import fail_when, small_config
from tests.unit.storage.test_clean_stop import lived, write
from tests.unit.storage.test_log_directories import MARKER, A, B, T, U, directories, fill, opened

from penstock.base.clock import ManualClock
from penstock.base.errors import StorageError
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.storage.log_directories import LogDirectories

V = TypeVar("V")


class Late:
    """Runs jobs when all are known, the last first, and looks whether the marker is there."""

    def __init__(self, files: ForgetfulFiles) -> None:
        self._files = files
        self.ran = 0

    def run(self, jobs: Iterable[Callable[[], V]]) -> Iterator[V]:
        for job in reversed(list(jobs)):
            assert not self._files.exists(f"{A}/{MARKER}")
            self.ran += 1
            yield job()


def test_the_marker_comes_when_every_log_of_its_directory_is_flushed() -> None:
    files = ForgetfulFiles()
    late = Late(files)
    made = LogDirectories([A], files, ManualClock(), closing_jobs=late)
    made.open()
    files.sync_directory("")
    for partition in (T, U):
        fill(made.create(partition, small_config()))
    assert made.close() == []
    assert late.ran == 2
    strict_power_cut(files)
    made = directories(files)
    assert [report.recovered for report in made.open()] == [[], []]
    assert {partition: len(rows_of(log)) for partition, log in made.logs.items()} == {T: 20, U: 20}


def test_a_directory_that_failed_gets_no_marker_though_no_log_is_left_in_it_and_the_other_gets_one() -> None:
    files, made = opened(None, A, B)
    fill(made.create(T, small_config()))
    fill(made.create(U, small_config()))
    failed = next(state for state in made.directories if state is made.home(T))
    (other,) = (state for state in made.directories if state is not failed)
    made.delete(T)()
    failed.health.fail(OSError(5, "Input/output error"))
    (complaint,) = made.close()
    assert "is offline" in complaint
    assert not files.exists(f"{failed.path}/{MARKER}")
    assert files.exists(f"{other.path}/{MARKER}")


def test_a_disk_that_fails_while_logs_are_closed_leaves_no_marker_and_the_other_is_closed_well() -> None:
    files, made = opened(None, A, B)
    for number in range(4):
        fill(made.create(TopicPartition("t", number), small_config()))
    victim = made.home(TopicPartition("t", 2)).path
    (other,) = {A, B} - {victim}
    fail_when(files, lambda what: what.startswith(f"sync {victim}/t-2/"))
    (complaint,) = made.close()
    assert complaint.startswith(f"log directory {victim} is offline: ")
    assert (files.exists(f"{victim}/{MARKER}"), files.exists(f"{other}/{MARKER}")) == (False, True)


def test_who_comes_late_is_refused_while_the_logs_are_closed() -> None:
    files, made = lived()
    log = made.logs[T]
    close = made.close_job()
    attempts: list[Callable[[], object]] = [
        lambda: write(log, 1),
        lambda: log.begin_short(0),
        lambda: log.read(0, bytes_max=1),
        lambda: log.truncate(0),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError, match="log directory /a is closed"):
            attempt()
    assert close() == []
    assert files.exists(f"{A}/{MARKER}")


class MeetingFiles(SystemFiles):
    """A log's directory is synced only when another is being synced too."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(2)
        self.is_meeting = False

    def sync_directory(self, path: str) -> None:
        if self.is_meeting and "/t-" in path:
            self.meeting.wait(10)
        super().sync_directory(path)


def test_several_logs_are_synced_at_a_time(tmp_path: Path) -> None:
    files = MeetingFiles()
    made = LogDirectories([str(tmp_path)], files, ManualClock(), jobs=ThreadJobs(2))
    made.open()
    for number in range(4):
        fill(made.create(TopicPartition("t", number), small_config()))
    files.is_meeting = True
    assert made.close() == []
    files.is_meeting = False
    made = LogDirectories([str(tmp_path)], files, ManualClock())
    assert [report.recovered for report in made.open()] == [[]] * 4
    assert [len(rows_of(log)) for log in made.logs.values()] == [20] * 4
    made.close()
