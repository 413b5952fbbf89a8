import os
import shutil
from pathlib import Path

import pytest
from tests.unit.storage.inspection import (
    FILES,
    NOW_MS,
    PLAIN,
    PLAIN_RECORDS,
    content,
    directory_place,
    flip,
    logs_of,
    make_directory,
    make_old_directory,
    partition_place,
    problems_of,
)

from penstock.base.clock import ManualClock
from penstock.base.errors import UnsupportedForMessageFormatError
from penstock.base.files import File
from penstock.records.batch import read_header
from penstock.storage import checkpoints, names
from penstock.storage.inspect.mend import Mender
from penstock.storage.inspect.problems import Cure, Problem
from penstock.storage.inspect.reopen import reopen
from penstock.storage.log_directories import LogDirectories


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "logs")


@pytest.fixture
def plain(directory: Path) -> Path:
    return directory / "plain-0"


@pytest.fixture
def transactions(directory: Path) -> Path:
    return directory / "transactions-3"


def mender(home: Path, said: list[str], *, force: bool = False) -> Mender:
    def say(path: str, action: str) -> None:
        said.append(f"{Path(path).name}: {action}")

    return Mender(FILES, ManualClock(NOW_MS), str(home), say, force)


def mend(directory: Path, *, force: bool = False) -> tuple[list[Problem], list[str]]:
    said: list[str] = []
    left = mender(directory, said, force=force).mend(directory_place(directory))
    return left, said


def log_bytes(partition: Path) -> bytes:
    return b"".join(path.read_bytes() for path in logs_of(partition))


def end_offset(directory: Path) -> int:
    """As a start finds it, which must be a clean one."""
    directories = LogDirectories([str(directory)], FILES, ManualClock(NOW_MS))
    reports = directories.open()
    assert [report.recovered for report in reports] == [[] for _ in reports], (
        "the directory should have been left clean"
    )
    end = directories.logs[PLAIN].end_offset
    directories.close()
    return end


def test_what_is_whole_is_left_alone(directory: Path) -> None:
    before = content(directory)
    assert mend(directory) == ([], [])
    assert content(directory) == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "flipped", "torn", "zeroes"])
def test_an_index_is_rebuilt_and_the_log_is_not_touched(plain: Path, directory: Path, suffix: str, damage: str) -> None:
    data = log_bytes(plain)
    for log in logs_of(plain):
        index = log.with_suffix(suffix)
        if damage == "missing":
            index.unlink()
        elif damage == "flipped":
            flip(index, 3)
        else:
            index.write_bytes(index.read_bytes() + (b"x" if damage == "torn" else bytes(24)))
    assert problems_of(directory)
    left, said = mend(directory)
    assert left == []
    assert said
    assert problems_of(directory) == []
    assert log_bytes(plain) == data
    assert end_offset(directory) == PLAIN_RECORDS


def test_a_transaction_index_is_written_anew_as_it_was(transactions: Path, directory: Path) -> None:
    indexes = sorted(transactions.glob("*.txnindex"))
    assert len(indexes) > 1
    good = [index.read_bytes() for index in indexes]
    for index, damage in zip(indexes, ("missing", "flipped", "torn"), strict=False):
        if damage == "missing":
            index.unlink()
        elif damage == "flipped":
            flip(index, 9)
        else:
            index.write_bytes(index.read_bytes()[:-1])
    left, _ = mend(directory)
    assert left == []
    assert [index.read_bytes() for index in indexes] == good


def test_snapshots_orphans_and_leftovers_go(plain: Path, directory: Path) -> None:
    data = log_bytes(plain)
    snapshot = sorted(plain.glob("*.snapshot"))[0]
    flip(snapshot, -1)
    orphan, cleaned = plain / f"{77_777:020d}.timeindex", plain / f"{0:020d}.log.cleaned"
    deleted = plain / f"{5:020d}.log.deleted"
    for path in (orphan, cleaned, deleted):
        path.write_bytes(b"")
    left, said = mend(directory)
    assert left == []
    assert len(said) == 4
    assert not any(path.exists() for path in (snapshot, orphan, cleaned, deleted))
    assert log_bytes(plain) == data


def test_a_bad_swap_does_not_replace_good_segments(plain: Path, directory: Path) -> None:
    first = logs_of(plain)[0]
    swap = first.with_name(first.name + ".swap")
    shutil.copy(first, swap)
    flip(swap, 100)
    before = content(directory)
    left, _ = mend(directory)
    assert [problem.cure for problem in left] == [Cure.LEFTOVERS]
    assert content(directory) == before


def test_a_good_swap_is_completed(plain: Path, directory: Path) -> None:
    data = log_bytes(plain)
    first = logs_of(plain)[0]
    shutil.copy(first, first.with_name(first.name + ".swap"))
    assert mend(directory)[0] == []
    assert log_bytes(plain) == data
    assert problems_of(directory) == []


def test_a_torn_tail_is_cut_and_kept(plain: Path, directory: Path) -> None:
    log = logs_of(plain)[-1]
    good = log.read_bytes()
    log.write_bytes(good + b"torn tail")
    left, _ = mend(directory)
    assert left == []
    assert log.read_bytes() == good
    assert log.with_name(f"{log.name}.{len(good)}.cut").read_bytes() == b"torn tail"
    assert problems_of(directory) == []
    assert end_offset(directory) == PLAIN_RECORDS


def break_the_middle(plain: Path) -> tuple[Path, int]:
    """Spoils the second batch of the second segment; where it lies."""
    log = logs_of(plain)[1]
    position = read_header(log.read_bytes()).size_bytes
    flip(log, position + 65)
    return log, position


@pytest.mark.parametrize("log_start", [PLAIN_RECORDS, 1_000_000])
def test_whatever_a_checkpoint_says_of_a_logs_start_its_segments_stay(
    plain: Path, directory: Path, log_start: int
) -> None:
    before = log_bytes(plain)
    checkpoints.write_offsets(FILES, str(directory / names.LOG_STARTS), {PLAIN: log_start})
    with logs_of(plain)[-1].open("ab") as file:
        file.write(bytes(100))
    left, _ = mend(directory)
    assert (left, log_bytes(plain)) == ([], before)
    assert mend(directory) == ([], [])


def test_a_log_without_segments_begins_where_its_checkpoint_says(plain: Path, directory: Path) -> None:
    for path in plain.iterdir():
        if path.name != names.PARTITION_METADATA:
            path.unlink()
    for name in (names.LOG_STARTS, names.RECOVERY_POINTS):
        checkpoints.write_offsets(FILES, str(directory / name), {PLAIN: 700})
    report = reopen(FILES, ManualClock(NOW_MS), partition_place(plain), str(directory))
    assert report.end_offset == 700
    assert checkpoints.read_offsets(FILES, str(directory / names.LOG_STARTS))[PLAIN] == 700


def test_without_force_a_bad_batch_is_told_and_no_log_is_touched(plain: Path, directory: Path) -> None:
    log, position = break_the_middle(plain)
    last = logs_of(plain)[-1]
    last.write_bytes(last.read_bytes() + b"torn")
    data = log_bytes(plain)
    left, said = mend(directory)
    assert (str(log), position, Cure.CUT) in [(problem.path, problem.position, problem.cure) for problem in left]
    assert said == []
    assert log_bytes(plain) == data
    assert list(plain.glob("*.cut")) == []


def test_with_force_the_log_ends_before_the_bad_batch_and_every_cut_byte_is_kept(plain: Path, directory: Path) -> None:
    log, position = break_the_middle(plain)
    behind = {path.name: path.read_bytes() for path in logs_of(plain)[2:]}
    data = log.read_bytes()
    left, _ = mend(directory, force=True)
    assert left == []
    assert log.read_bytes() == data[:position]
    assert log.with_name(f"{log.name}.{position}.cut").read_bytes() == data[position:]
    assert {path.name.removesuffix(".cut"): path.read_bytes() for path in plain.glob("*.log.cut")} == behind
    assert problems_of(directory) == []
    kept = int(log.stem) + 5
    assert end_offset(directory) == kept
    assert checkpoints.read_offsets(FILES, str(directory / "recovery-point-offset-checkpoint"))[PLAIN] == kept


def test_force_cuts_a_batch_whose_crc_is_good_and_whose_records_are_not(plain: Path, directory: Path) -> None:
    from tests.unit.storage.test_inspect_verify import rewritten, with_payload

    log = logs_of(plain)[1]
    rewritten(log, lambda batch: with_payload(batch, batch[61:] + b"more"))
    assert mend(directory)[0] != []
    assert mend(directory, force=True)[0] == []
    assert end_offset(directory) == int(log.stem)


def test_an_epoch_history_is_written_anew_from_the_batches(plain: Path, directory: Path) -> None:
    path = plain / "leader-epoch-checkpoint"
    good = path.read_text()
    path.write_text("0\n5\n0 0\n")
    assert mend(directory)[0] == []
    assert path.read_text() == good


def test_checkpoints_are_set_aside_or_lowered(directory: Path) -> None:
    points, marks = directory / "recovery-point-offset-checkpoint", directory / "replication-offset-checkpoint"
    points.write_text("garbage")
    checkpoints.write_offsets(FILES, str(marks), {PLAIN: PLAIN_RECORDS + 7})
    left, said = mend(directory)
    assert left == []
    assert len(said) == 2
    assert (directory / f"{points.name}.cut").read_text() == "garbage"
    assert checkpoints.read_offsets(FILES, str(marks)) == {PLAIN: PLAIN_RECORDS}


def test_what_nobody_can_know_is_left(plain: Path, directory: Path) -> None:
    (plain / "partition.metadata").write_text("version: 9\n")
    left, said = mend(directory)
    assert [Path(problem.path).name for problem in left] == ["partition.metadata"]
    assert said == []


def test_a_partition_alone_is_mended_without_its_directory(plain: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(plain, tmp_path / "elsewhere" / "plain-0")
    log, position = break_the_middle(alone)
    said: list[str] = []
    lone = Mender(FILES, ManualClock(NOW_MS), None, lambda path, action: said.append(action), True)
    assert lone.mend(partition_place(alone)) == []
    assert log.stat().st_size == position
    assert os.listdir(alone.parent) == ["plain-0"]


def test_old_formats_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    directory = make_old_directory(tmp_path / "old")
    before = content(directory)
    for force in (False, True):
        with pytest.raises(UnsupportedForMessageFormatError, match="format 0 or 1"):
            mend(directory, force=force)
    assert content(directory) == before


def test_a_full_disk_loses_nothing_and_mending_goes_on_later(plain: Path, directory: Path) -> None:
    class Full(type(FILES)):  # type: ignore[misc]
        def create(self, path: str, *, preallocate_bytes: int = 0) -> File:
            raise OSError(28, "No space left on device", path)

        def reserve(self, path: str, position: int, length: int) -> None:
            raise OSError(28, "No space left on device", path)

    log, _ = break_the_middle(plain)
    logs_of(plain)[0].with_suffix(".index").unlink()
    data = {path.name: path.read_bytes() for path in plain.glob("*.log*")}
    said: list[str] = []
    for force in (False, True):
        full = mender(directory, said, force=force)._replace(files=Full())
        with pytest.raises(OSError, match="No space"):
            full.mend(directory_place(directory))
    assert {path.name: path.read_bytes() for path in plain.glob("*.log*")} == data
    assert mend(directory, force=True)[0] == []
    assert problems_of(directory) == []
    assert log.exists()


def test_segments_that_overlap_stay_until_force_sets_the_later_ones_aside(directory: Path, plain: Path) -> None:
    first, second, *_ = logs = logs_of(plain)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    before = {path.name: path.read_bytes() for path in logs}
    left, _ = mend(directory)
    assert next(problem.reason for problem in left if problem.cure is Cure.CUT).startswith(
        "the segment begins at offset"
    )
    assert {path.name: path.read_bytes() for path in logs_of(plain)} == before
    left, said = mend(directory, force=True)
    assert left == []
    assert any("set aside as" in line for line in said)
    assert logs_of(plain) == [first]
    for path in logs[1:]:
        assert path.with_name(f"{path.name}.cut").read_bytes() == before[path.name]
    assert mend(directory, force=True) == ([], [])


def test_a_broken_swap_is_set_aside_by_force_where_what_it_would_replace_is_there(directory: Path, plain: Path) -> None:
    second = logs_of(plain)[1]
    swap = second.with_name(f"{second.name}.swap")
    swap.write_bytes(second.read_bytes()[:-3])
    before = log_bytes(plain)
    left, _ = mend(directory)
    assert [problem.path for problem in left] == [str(swap)]
    left, _ = mend(directory, force=True)
    assert left == []
    assert log_bytes(plain) == before
    assert swap.with_name(f"{swap.name}.cut").exists()
    assert mend(directory, force=True) == ([], [])


def test_what_a_marker_decides_is_let_alone_where_markers_may_be_lost(directory: Path, transactions: Path) -> None:
    first, *_, last = logs_of(transactions)
    flip(first, 70)
    index = last.with_suffix(".txnindex")
    assert index.exists()
    before = index.read_bytes()
    for _ in range(2):
        left, said = mend(directory)
        assert not [line for line in said if ".txnindex" in line]
        assert [problem.path for problem in left] == [str(first)]
    assert index.read_bytes() == before
