"""A segment whose offsets do not fit its indexes is split when it is loaded, and a crash in any phase loses nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.support.forgetful_files import Cut, ForgetfulFiles
from tests.support.log_checks import check_log, rows_of
from tests.support.log_world import kill, power_cut, strict_power_cut
from tests.unit.storage.disk import PATH, T0, batch_at, listing, new_disk, open_log, path_of, put_file, records

from penstock.records.build import build_batch, build_end_marker
from penstock.storage.split import split_segment
from penstock.storage.transaction_index import AbortedTransaction, entry_bytes

FAR = 2**31
OFFSETS = [100, 101, 100 + FAR - 1, 100 + FAR, 101 + FAR, 200 + 2 * FAR, 300 + 2 * FAR]
BASES = [100, 100 + FAR, 200 + 2 * FAR]
"""Relative to 100 the largest offset is 100 + FAR - 1; the next segment's is 99 + 2 * FAR."""


ABORTED = [AbortedTransaction(7, 100, 101, 102), AbortedTransaction(8, 99 + FAR, 101 + FAR, 102 + FAR)]


def batch(offset: int) -> bytes:
    """Producers 7 and 8 each write once and abort; producer 8's transaction spans two parts."""
    for producer_id, first_offset, last_offset, _ in ABORTED:
        if offset == first_offset:
            return build_batch(
                records(), base_offset=offset, leader_epoch=0, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                transactional=True,
            )  # fmt: skip
        if offset == last_offset:
            return build_end_marker(False, producer_id, 0, 0, T0, base_offset=offset, leader_epoch=0)
    return batch_at(offset)


def overflowing(*, following: bool = False, tail: bytes = b"") -> ForgetfulFiles:
    files = new_disk()
    put_file(files, path_of(100), b"".join(map(batch, OFFSETS)) + tail)
    put_file(files, path_of(100, ".index"), b"")
    put_file(files, path_of(100, ".timeindex"), b"")
    put_file(files, path_of(100, ".txnindex"), b"".join(map(entry_bytes, ABORTED)))
    put_file(files, f"{PATH}/leader-epoch-checkpoint", b"0\n1\n0 100\n")
    if following:
        put_file(files, path_of(301 + 2 * FAR), batch_at(301 + 2 * FAR))
        put_file(files, path_of(301 + 2 * FAR, ".index"), b"")
        put_file(files, path_of(301 + 2 * FAR, ".timeindex"), struct.pack(">qi", T0, 0))
    return files


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("following", [True, False])
def test_every_batch_is_in_a_segment_that_can_name_its_offset(clean: bool, following: bool) -> None:
    # KAFKA-6264
    files = overflowing(following=following)
    log, report = open_log(files, clean=clean, gaps_are_holes=False)
    wanted = OFFSETS + ([301 + 2 * FAR] if following else [])
    assert [row.offset for row in rows_of(log)] == wanted
    assert [segment.base_offset for segment in log.log.segments] == BASES + ([301 + 2 * FAR] if following else [])
    assert log.end_offset == wanted[-1] + 1
    assert report.cut_segments == []
    check_log(log, files)


def test_a_flushed_segment_in_the_middle_is_split_too() -> None:
    files = overflowing(following=True)
    log, _ = open_log(files, recovery_point=302 + 2 * FAR, gaps_are_holes=True)
    assert [row.offset for row in rows_of(log)] == [*OFFSETS, 301 + 2 * FAR], "gaps in flushed data are no holes"


def test_a_wide_gap_behind_a_segment_alone_is_no_reason_to_split() -> None:
    files = new_disk()
    for base in (0, 3 * FAR):
        put_file(files, path_of(base), batch_at(base))
        put_file(files, path_of(base, ".index"), b"")
        put_file(files, path_of(base, ".timeindex"), struct.pack(">qi", T0, 0))
    before = files.steps
    log, report = open_log(files, clean=True)
    assert [segment.base_offset for segment in log.log.segments] == [0, 3 * FAR]
    assert report.recovered == []
    assert files.steps - before <= 2, "only the active segment's indexes grow"


def test_a_torn_tail_goes_with_the_last_part_and_is_cut_there() -> None:
    files = overflowing(tail=batch_at(301 + 2 * FAR)[:-5])
    log, _ = open_log(files, gaps_are_holes=False)
    assert [row.offset for row in rows_of(log)] == OFFSETS
    assert any(name.endswith(".cut") for name in listing(files))


def phases(step: str) -> str:
    """Which of the five phases a change to the disk belongs to."""
    if ".cleaned" in step and not step.startswith("rename"):
        return "write"
    if step.startswith("rename"):
        return "to swap" if step.endswith(".swap") else "to live"
    if step.startswith("remove"):
        return "remove"
    return "sync"


@pytest.mark.parametrize(
    "ending", [kill, strict_power_cut, power_cut(1), power_cut(2), power_cut(3)], ids=["kill", "strict", "1", "2", "3"]
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing(
    ending: Callable[[ForgetfulFiles], None], clean: bool
) -> None:
    # KAFKA-6264
    seen = set()
    step = 0
    while True:
        files = overflowing(following=True)
        files.fail_at = files.steps + step
        try:
            split_segment(files, PATH, 100)
            break
        except Cut:
            seen.add(phases(files.last_step))
        ending(files)
        log, _ = open_log(files, clean=clean, recovery_point=302 + 2 * FAR, gaps_are_holes=False)
        assert [row.offset for row in rows_of(log)] == [*OFFSETS, 301 + 2 * FAR], files.last_step
        assert log.aborted_transactions(0, 2**62) == ABORTED
        check_log(log, files)
        step += 1
    assert seen == {"write", "to swap", "remove", "to live", "sync"}


def test_a_crash_while_an_unfinished_split_is_undone_does_not_complete_it() -> None:
    # KAFKA-12520: the swaps go before the `.cleaned` that says they count for nothing.
    step = 0
    while True:
        files = overflowing()
        files.fail_at = files.steps + _steps_until_first_swap()
        with pytest.raises(Cut):
            split_segment(files, PATH, 100)
        kill(files)
        assert any(name.endswith(".swap") for name in listing(files))
        assert any(name.endswith(".cleaned") for name in listing(files))
        files.fail_at = files.steps + step
        try:
            open_log(files, gaps_are_holes=False)
            break
        except Cut:
            kill(files)
        log, _ = open_log(files, gaps_are_holes=False)
        assert [row.offset for row in rows_of(log)] == OFFSETS
        step += 1
    assert step > 10


def _steps_until_first_swap() -> int:
    files = overflowing()
    before = files.steps
    while True:
        files = overflowing()
        files.fail_at = before
        try:
            split_segment(files, PATH, 100)
        except Cut:
            if any(name.endswith(".log.swap") for name in files.list(PATH)):
                return before - overflowing().steps
        before += 1
