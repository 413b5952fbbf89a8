"""Log directories: locks, the clean marker, directories that fail, partitions that come and go (row S17, pitfalls 1)."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from tests.support.forgetful_files import Cut, ForgetfulFiles
from tests.support.log_checks import rows_of
from tests.support.log_world import kill, strict_power_cut
from tests.unit.storage.disk import fail_when, produced, put_file, records, small_config

from penstock.base.clock import ManualClock
from penstock.base.errors import DirectoryLockedError, LogDirectoryError, StorageError
from penstock.base.files import SystemFiles
from penstock.base.ids import InvalidTopicError, TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.storage import checkpoints, names
from penstock.storage.log_directories import LogDirectories, Remaining
from penstock.storage.partition_log import PartitionLog
from penstock.storage.recovery import SegmentReport

A, B = "/a", "/b"
T = TopicPartition("t", 0)
U = TopicPartition("u", 1)
MARKER = ".kafka_cleanshutdown"


def directories(files: ForgetfulFiles, *paths: str, **config: object) -> LogDirectories:
    return LogDirectories(
        paths or (A,), files, ManualClock(), config_for=lambda _partition: small_config(**config), jobs=None
    )


def opened(files: ForgetfulFiles | None = None, *paths: str, **config: object) -> tuple[ForgetfulFiles, LogDirectories]:
    disk = files or ForgetfulFiles()
    made = directories(disk, *paths, **config)
    made.open()
    disk.sync_directory("")
    return disk, made


def fill(log: PartitionLog, count: int = 20) -> None:
    for _ in range(count):
        log.append_as_leader(produced(records(size=40)), leader_epoch=0)
    log.set_high_watermark(log.end_offset)


def offsets_of(log: PartitionLog) -> list[int]:
    return [row.offset for row in rows_of(log)]


# The clean marker.
def test_recovery_runs_only_without_the_clean_marker() -> None:
    # KAFKA-673
    files, made = opened()
    fill(made.create(T, small_config()))
    made.close()
    assert files.exists(f"{A}/{MARKER}")
    made = directories(files)
    assert [report.recovered for report in made.open()] == [[]]
    assert made.directories[0].was_clean
    kill(files)
    made = directories(files)
    assert [len(report.recovered) > 0 for report in made.open()] == [True]
    assert not made.directories[0].was_clean


def test_the_marker_goes_before_anything_is_loaded_so_that_a_crash_while_loading_is_unclean() -> None:
    # KAFKA-10471
    step = 0
    while True:
        twin, other = opened()
        fill(other.create(T, small_config()))
        other.close()
        twin.fail_at = twin.steps + step
        try:
            directories(twin).open()
            break
        except Cut:
            gone = not twin.exists(f"{A}/{MARKER}")
            started = step > 0
        assert gone == started, "the marker is the first thing to go"
        strict_power_cut(twin)
        again = directories(twin)
        again.open()
        assert again.directories[0].was_clean == (step <= 1), "and its removal is synced before the next step"
        assert offsets_of(again.logs[T]) == list(range(20))
        step += 1
    assert step >= 3


def test_a_marker_that_cannot_be_removed_takes_the_directory_offline() -> None:
    # KAFKA-10101: with it there, the next crash would pass for a clean stop.
    files, made = opened(None, A, B)
    made.create(T, small_config())
    made.create(U, small_config())
    made.close()
    fail_when(files, lambda what: what == f"remove {A}/{MARKER}")
    made = directories(files, A, B)
    made.open()
    assert list(made.logs) == [U]
    assert A in made.offline
    assert [state.path for state in made.directories] == [B]
    made.close()
    kill(files)
    assert files.exists(f"{A}/{MARKER}"), "nothing was done to it"


def test_a_directory_gets_its_marker_only_if_every_log_closed_well() -> None:
    # KAFKA-10101, 673
    files, made = opened(None, A, B)
    fill(made.create(T, small_config()))
    fill(made.create(U, small_config()))
    fail_when(files, lambda what: what.startswith(f"write {A}/t-0") and what.endswith(".snapshot"))
    complaints = made.close()
    assert len(complaints) == 1
    assert A in complaints[0]
    assert not files.exists(f"{A}/{MARKER}")
    assert files.exists(f"{B}/{MARKER}")


# Failing directories.
@pytest.mark.parametrize(
    "what",
    [
        f"create {A}/.lock",
        f"sync directory {A}",
        f"truncate {A}/t-0/00000000000000000000.index",
        f"grow {A}/t-0/",
        f"remove {A}/t-0/",
    ],
)
def test_a_directory_that_fails_at_the_start_leaves_the_others_in_service(what: str) -> None:
    # KAFKA-4763
    files, made = opened(None, A, B)
    fill(made.create(T, small_config()))
    fill(made.create(U, small_config()))
    fill(made.create(TopicPartition("t", 1), small_config()))
    assert [made.home(partition).path for partition in made.logs] == [A, B, A]
    made.checkpoint()
    kill(files)
    put_file(files, f"{A}/t-0/00000000000000000003.log.deleted", b"")
    if ".lock" in what:
        files.remove(f"{A}/.lock")
    if what.startswith("sync"):
        put_file(files, f"{A}/{MARKER}", b"{}")
    fail_when(files, lambda step: step.startswith(what))
    made = directories(files, A, B)
    made.open()
    assert list(made.logs) == [U], "no log of the failed directory is served, not even one that was loaded"
    assert "Input/output error" in made.offline[A]
    assert offsets_of(made.logs[U]) == list(range(20))
    assert made.remaining() == {B: Remaining(0, 0)}
    for number in range(2):
        assert made.home(made.create(TopicPartition("v", number), small_config()).partition).path == B
    assert made.close() == []
    assert not files.exists(f"{A}/{MARKER}") or what.startswith("create")


def test_with_no_directory_left_the_start_fails_and_says_why() -> None:
    files = ForgetfulFiles()
    fail_when(files, lambda step: step.startswith("mkdir"))
    with pytest.raises(LogDirectoryError, match=r"/a cannot be used: .*; log directory /b cannot be used"):
        directories(files, A, B).open()


def test_a_directory_that_fails_later_takes_its_partitions_with_it_and_no_others() -> None:
    # KAFKA-4763, 10778
    files, made = opened(None, A, B)
    first, second = made.create(T, small_config()), made.create(U, small_config())
    sibling = made.create(TopicPartition("t", 1), small_config())
    fail_when(files, lambda step: step.startswith(f"write {A}/t-0"))
    with pytest.raises(StorageError, match="/a is offline"):
        fill(first)
    for log in (first, sibling):
        with pytest.raises(StorageError):
            fill(log)
        with pytest.raises(StorageError):
            log.read(0, bytes_max=100)
    fill(second)
    made.checkpoint()
    assert made.home(made.create(TopicPartition("v", 0), small_config()).partition).path == B
    complaints = made.close()
    assert len(complaints) == 1
    assert not files.exists(f"{A}/{MARKER}")
    assert files.exists(f"{B}/{MARKER}")


@pytest.mark.parametrize("cleanly", [True, False])
def test_watermarks_are_remembered_over_starts_also_of_logs_that_nobody_asked_for_yet(cleanly: bool) -> None:
    # KAFKA-769, 851, 858, 8333: the file is written by the clock, and before anybody has a role.
    files, made = opened()
    wanted = {}
    for partition, watermark in ((T, 4), (U, 6)):
        log = made.create(partition, small_config())
        for _ in range(6):
            log.append_as_leader(produced(records(size=40)), leader_epoch=0)
        log.set_high_watermark(watermark)
        log.flush()
        wanted[partition] = watermark
    made.checkpoint()
    for _ in range(3):
        if cleanly:
            assert made.close() == []
        else:
            kill(files)
        made = directories(files)
        made.open()
        assert {partition: log.high_watermark for partition, log in made.logs.items()} == wanted
        made.checkpoint()
        assert checkpoints.read_offsets(files, f"{A}/{names.HIGH_WATERMARKS}") == wanted


@pytest.mark.parametrize(("remembered", "watermark"), [(b"-1", 0), (b"99", 6)])
def test_a_watermark_is_never_negative_nor_beyond_the_end(remembered: bytes, watermark: int) -> None:
    # KAFKA-3978
    files, made = opened()
    log = made.create(T, small_config())
    fill(log, 6)
    made.close()
    put_file(files, f"{A}/{names.HIGH_WATERMARKS}", b"0\n1\nt 0 %s\n" % remembered)
    made = directories(files)
    made.open()
    assert made.logs[T].high_watermark == watermark


def test_a_topic_made_again_while_a_disk_is_away_is_noticed_when_it_returns() -> None:
    # KAFKA-16157: two directories for one partition are named, neither is guessed to be right.
    files, made = opened(None, A, B)
    made.create(T, small_config())
    made.close()
    fail_when(files, lambda step: step == f"remove {A}/{MARKER}")
    made = directories(files, A, B)
    made.open()
    fill(made.create(T, small_config()))
    made.close()
    fail_when(files, lambda _step: False)
    made = directories(files, A, B)
    with pytest.raises(LogDirectoryError, match="t-0 lies in /a and in /b"):
        made.open()
    assert files._locks == set(), "a start that was refused holds no lock"


# What may be opened at all.
def test_a_directory_that_holds_something_else_is_refused_and_left_alone() -> None:
    files = ForgetfulFiles()
    for path in ("/a", "/a/holiday pictures", "/a/t-0.0123456789abcdef0123456789abcdef-delete"):
        files.make_directory(path)
    before = files.list(A)
    with pytest.raises(LogDirectoryError, match="'holiday pictures'"):
        directories(files).open()
    assert files.list(A) == before, "not even a lock file"


def test_a_file_in_the_place_of_a_directory_is_refused() -> None:
    files = ForgetfulFiles()
    put_file(files, A, b"")
    with pytest.raises(LogDirectoryError, match="/a is not a directory"):
        directories(files).open()


def test_a_directory_named_twice_is_refused_by_name() -> None:
    with pytest.raises(LogDirectoryError, match="named twice: /a, /b, /a/"):
        directories(ForgetfulFiles(), A, B, "/a/").open()


def test_a_link_to_a_directory_is_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    made = LogDirectories([str(tmp_path / "link")], SystemFiles(), ManualClock())
    made.open()
    made.create(T, small_config())
    assert made.close() == []
    assert (tmp_path / "disk" / "t-0").is_dir()


def test_partitions_on_the_move_and_kafkas_own_directories_are_passed_over() -> None:
    files = ForgetfulFiles()
    unique = uuid.uuid4().hex
    for name in ("", "/__cluster_metadata-0", "/lost+found", f"/t-0.{unique}-future", f"/t-0.{unique}-stray"):
        files.make_directory(A + name)
    _, made = opened(files)
    assert made.logs == {}
    assert f"t-0.{unique}-future" in files.list(A)


def test_a_topic_whose_name_is_no_name_gets_no_directory() -> None:
    # A13
    files, made = opened()
    for name in ("../../etc", "..", "a/b", "x" * 250, "a\0b"):
        with pytest.raises(InvalidTopicError):
            made.create(TopicPartition(name, 0), small_config())
    assert files.list("") == ["a"]


# Locks.
def test_a_directory_is_opened_once_in_a_process(tmp_path: Path) -> None:
    made = LogDirectories([str(tmp_path)], SystemFiles(), ManualClock())
    made.open()
    with pytest.raises(DirectoryLockedError, match="in use by another process"):
        LogDirectories([str(tmp_path)], SystemFiles(), ManualClock()).open()
    made.close()
    made = LogDirectories([str(tmp_path)], SystemFiles(), ManualClock())
    made.open()
    made.close()


def test_another_process_is_kept_out_by_kafkas_lock(tmp_path: Path) -> None:
    """`fcntl.lockf` on `.lock`; in a process of its own, since such locks belong to a process."""
    made = LogDirectories([str(tmp_path)], SystemFiles(), ManualClock())
    made.open()
    script = (
        "import sys\n"
        "from penstock.base.clock import ManualClock\n"
        "from penstock.base.errors import DirectoryLockedError\n"
        "from penstock.base.files import SystemFiles\n"
        "from penstock.storage.log_directories import LogDirectories\n"
        "try:\n"
        "    LogDirectories([sys.argv[1]], SystemFiles(), ManualClock()).open()\n"
        "except DirectoryLockedError:\n"
        "    sys.exit(3)\n"
    )

    def other() -> int:
        command = [sys.executable, "-c", script, str(tmp_path)]
        return subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": "src"}).returncode

    assert other() == 3
    made.close()
    assert other() == 0


def test_a_locked_directory_is_not_touched(tmp_path: Path) -> None:
    files = SystemFiles()
    made = LogDirectories([str(tmp_path)], files, ManualClock())
    made.open()
    removed = tmp_path / f"t-0.{uuid.uuid4().hex}-delete"
    removed.mkdir()
    with pytest.raises(DirectoryLockedError):
        LogDirectories([str(tmp_path)], files, ManualClock()).open()
    assert removed.exists()
    made.close()


# Partitions come and go.
def test_a_new_partitions_directory_survives_a_power_cut() -> None:
    # KAFKA-3968
    files, made = opened()
    topic_id = uuid.uuid4()
    log = made.create(T, small_config(), topic_id)
    fill(log, 3)
    log.flush()
    strict_power_cut(files)
    _, made = opened(files)
    assert made.logs[T].topic_id == topic_id
    assert offsets_of(made.logs[T]) == [0, 1, 2]


def test_a_new_partition_goes_where_the_fewest_are() -> None:
    _, made = opened(None, A, B)
    homes = [made.home(made.create(TopicPartition("t", n), small_config()).partition).path for n in range(4)]
    assert sorted(homes) == [A, A, B, B]


def test_a_deleted_partition_is_renamed_at_once_and_removed_by_the_job_or_the_next_start() -> None:
    files, made = opened()
    made.create(T, small_config())
    job = made.delete(T)
    (renamed,) = [name for name in files.list(A) if name.endswith("-delete")]
    assert made.get(T) is None
    sync_names = made.sync_names()
    assert sync_names is not None
    sync_names()
    assert made.sync_names() is None, "nothing more to do"
    strict_power_cut(files)
    assert renamed in files.list(A), "the rename is on disk"
    _, made = opened(files)
    assert not [name for name in files.list(A) if name.endswith("-delete")]
    made.create(T, small_config())
    job = made.delete(T)
    job()
    assert not [name for name in files.list(A) if name.startswith("t-0")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_flush_that_meets_a_deleted_partition_does_not_take_the_directory_offline(when: str) -> None:
    # KAFKA-15391, 15572
    files, made = opened()
    log = made.create(T, small_config())
    fill(log)
    flush = log.flush_job()
    remove = made.delete(T)
    if when == "after":
        remove()
    flush.run()
    assert not log.flushed(flush)
    assert made.directories[0].health.failure is None
    made.create(U, small_config())
    assert made.close() == []
    assert files.exists(f"{A}/{MARKER}")


# Many at once.
def test_logs_and_segments_left_are_counted_down_while_a_directory_is_opened() -> None:
    # Row S16: gauges.
    files, made = opened()
    for number in range(3):
        fill(made.create(TopicPartition("t", number), small_config()))
    segments = sum(len(log.log.segments) for log in made.logs.values())
    kill(files)
    made = directories(files)
    seen: list[Remaining] = []

    def progress(_partition: TopicPartition, _report: SegmentReport) -> None:
        seen.append(made.remaining()[A])

    assert made.remaining() == {}
    made.open(progress)
    assert len(seen) == segments
    assert [left.logs for left in seen] == sorted((left.logs for left in seen), reverse=True)
    assert (seen[0].logs, seen[-1].logs) == (3, 1)
    assert seen[0].segments == segments // 3 - 1
    assert seen[-1].segments == 0
    assert made.remaining() == {A: Remaining(0, 0)}


@pytest.mark.parametrize("partitions", [1, 7])
def test_threads_load_the_same_as_one_after_the_other(partitions: int) -> None:
    files, made = opened()
    for number in range(partitions):
        fill(made.create(TopicPartition("t", number), small_config()), 20 + number)
    kill(files)
    made = LogDirectories([A], files, ManualClock(), config_for=lambda _partition: small_config(), jobs=ThreadJobs(3))
    reports = made.open()
    assert [report.partition.partition for report in reports] == list(range(partitions))
    assert [len(offsets_of(made.logs[report.partition])) for report in reports] == [
        20 + number for number in range(partitions)
    ]


def test_retention_in_the_middle_of_a_shutdown_leaves_it_clean() -> None:
    # KAFKA-13315, 16588
    files, made = opened(None, retention_ms=1, file_delete_delay_ms=0)
    log = made.create(T, small_config(retention_ms=1, file_delete_delay_ms=0))
    fill(log)
    log.delete_records(log.end_offset)
    log.remove_segments([segment.base_offset for segment in log.log.sealed])
    files.remove(log.removals.pending[0][1][0])  # by the removal that was under way
    assert made.close() == []
    assert files.exists(f"{A}/{MARKER}")
    assert not [name for name in files.list(f"{A}/t-0") if name.endswith(".deleted")]
