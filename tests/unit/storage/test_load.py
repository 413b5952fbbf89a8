"""Opening a partition's directory, however it was left: segments, indexes, leftovers, recovery (rows S15 and S16, pitfalls 1)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.support.forgetful_files import Cut, ForgetfulFiles
from tests.support.log_checks import check_indexes, check_log, rows_of
from tests.support.log_world import kill, strict_power_cut
from tests.unit.storage.disk import (
    PATH,
    T0,
    batch_at,
    listing,
    marker,
    new_disk,
    open_log,
    path_of,
    produced,
    put_file,
    records,
    small_config,
)

from penstock.base.jobs import ThreadJobs
from penstock.storage import names
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.transaction_index import AbortedTransaction, entry_bytes

KINDS = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX)


def written(count: int = 20, **config: object) -> ForgetfulFiles:
    """A log of several segments, one producer, one aborted transaction in each, cleanly closed."""
    files = new_disk()
    log, _ = open_log(files, config=small_config(**config))
    fill(log, count)
    log.close()
    return files


def fill(log: PartitionLog, count: int) -> None:
    for number in range(count):
        values = records(2, key=b"k%d" % number, timestamp=T0 + number * 10)
        log.append_as_leader(produced(values, producer_id=7, sequence=2 * number), leader_epoch=number // 8)
        if number % 5 == 4:
            transactional = produced(records(), producer_id=9, sequence=number // 5, transactional=True)
            log.append_as_leader(transactional, leader_epoch=number // 8)
            log.append_as_leader(marker(9, commit=False), leader_epoch=number // 8, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.end_offset)


def bases_of(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.log.segments]


# What is there at the start.
def test_a_directory_without_a_segment_gets_an_active_one() -> None:
    # KAFKA-8564, 12875
    log, report = open_log(new_disk())
    assert bases_of(log) == [0]
    assert report.end_offset == 0
    assert log.append_as_leader(produced(), leader_epoch=0).base_offset == 0


def test_a_directory_without_a_segment_continues_at_the_log_start() -> None:
    # KAFKA-8564: retention had removed everything.
    log, _ = open_log(new_disk(), log_start_offset=77)
    assert (bases_of(log), log.log_start_offset, log.end_offset) == ([77], 77, 77)


def test_a_clean_log_is_opened_without_recovery_and_is_as_it_was() -> None:
    files = written()
    before = {name: files.read(f"{PATH}/{name}") for name in listing(files)}
    log, report = open_log(files, clean=True)
    assert report.recovered == []
    assert log.recovery_point == log.end_offset
    check_log(log, files)
    log.close()
    assert {name: files.read(f"{PATH}/{name}") for name in listing(files)} == before


def test_foreign_files_are_left_alone() -> None:
    files = written()
    for name in ("notes.txt", "00000000000000000000.log.61.cut"):
        put_file(files, f"{PATH}/{name}", b"x")
    open_log(files)
    assert files.read(f"{PATH}/notes.txt") == b"x"
    assert files.exists(f"{PATH}/00000000000000000000.log.61.cut")


# Indexes.
def test_an_index_without_a_log_is_removed() -> None:
    # KAFKA-670
    files = written()
    for kind in (".index", ".timeindex", ".txnindex"):
        put_file(files, path_of(99_999, kind), b"")
    log, _ = open_log(files, clean=True)
    assert not [name for name in listing(files) if "99999" in name]
    assert 99_999 not in bases_of(log)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_missing_index_is_rebuilt_wherever_it_is_missed(kind: str) -> None:
    # KAFKA-593, 670
    files = written()
    log, _ = open_log(files, clean=True)
    bases = bases_of(log)
    rows = rows_of(log)
    log.abandon()
    for base in bases:
        files.remove(path_of(base, kind))
    log, _ = open_log(files, clean=True)
    assert rows_of(log) == rows
    check_indexes(log)


def test_an_empty_active_segment_with_missing_indexes_is_not_corrupt() -> None:
    # KAFKA-13603
    files = new_disk()
    put_file(files, path_of(0), b"")
    for clean in (True, False):
        log, report = open_log(files, clean=clean)
        assert log.end_offset == 0
        assert [segment.cut_bytes for segment in report.recovered] == [0]
        log.abandon()
        for kind in (".index", ".timeindex"):
            files.remove(path_of(0, kind))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("index", [None, struct.pack(">ii", 5, 0)])
def test_a_log_of_no_bytes_with_entries_in_its_index_starts_over(clean: bool, index: bytes | None) -> None:
    files = written(6)
    bases = [base for name in listing(files) if (base := names.parse_segment_file(name)) and base[1] == ".log"]
    last = bases[-1][0]
    files.truncate(path_of(last), 0)
    if index is not None:
        put_file(files, path_of(last, ".index"), index)
        put_file(files, path_of(last, ".timeindex"), b"")
    log, _ = open_log(files, clean=clean)
    assert log.end_offset == last
    assert log.append_as_leader(produced(), leader_epoch=1).base_offset == last
    check_indexes(log)


def test_indexes_below_the_recovery_point_are_not_looked_at_when_loading() -> None:
    # KAFKA-7283
    files = written()
    log, _ = open_log(files, clean=True)
    first, end = bases_of(log)[0], log.end_offset
    log.abandon()
    rubbish = bytes(11)
    put_file(files, path_of(first, ".index"), rubbish)
    put_file(files, path_of(first, ".timeindex"), rubbish)
    log, report = open_log(files, recovery_point=end, high_watermark=end)
    assert files.read(path_of(first, ".index")) == rubbish
    assert first not in [segment.base_offset for segment in report.recovered]
    assert rows_of(log)[0].offset == 0, "and a bad one is rebuilt when it is read"
    check_indexes(log)


# Leftovers of deletion and compaction.
@pytest.mark.parametrize("suffix", [names.DELETED, names.CLEANED])
def test_files_that_were_deleted_or_half_cleaned_go(suffix: str) -> None:
    files = written()
    before = listing(files)
    for kind in names.SEGMENT_SUFFIXES:
        put_file(files, path_of(3, kind, suffix), b"x")
    put_file(files, f"{PATH}/leader-epoch-checkpoint.tmp", b"x")
    open_log(files, clean=True)[0].close()
    assert listing(files) == before


def swapped(files: ForgetfulFiles) -> tuple[list[int], list[int]]:
    """Turns the first two segments into a `.swap` of every third batch; the offsets that remain, and the old bases."""
    log, _ = open_log(files, clean=True)
    bases = bases_of(log)[:2]
    kept = [batch_at(offset, timestamp=T0 + offset) for offset in range(0, bases_of(log)[2], 3)]
    log.abandon()
    put_file(files, path_of(0, ".log", names.SWAP), b"".join(kept))
    return list(range(0, bases_of(log)[2], 3)), bases


@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_takes_the_place_of_what_it_replaces(clean: bool) -> None:
    # KAFKA-12520
    files = written()
    _, bases = swapped(files)
    log, _ = open_log(files, clean=clean, recovery_point=10**6)
    assert bases_of(log)[0] == 0
    assert bases[1] not in bases_of(log)
    assert [row.offset for row in rows_of(log)][:4] == [0, 3, 6, 9]
    assert not [name for name in listing(files) if name.endswith(names.SWAP)]
    check_indexes(log)


def test_a_completed_swap_does_not_take_the_producers_state() -> None:
    # KAFKA-12520: snapshots of replaced segments were deleted, and the state cut back to them.
    files = written()
    known, _ = open_log(files, clean=True)
    state = [producer.state() for producer in known.producers.values()]
    known.abandon()
    swapped(files)
    log, _ = open_log(files, clean=True)
    assert [producer.state() for producer in log.producers.values()] == state
    assert log.end_offset == known.end_offset


@pytest.mark.parametrize("ending", [kill, strict_power_cut])
@pytest.mark.parametrize("has_transactions", [True, False])
def test_completing_a_swap_may_be_cut_at_every_step(
    ending: Callable[[ForgetfulFiles], None], has_transactions: bool
) -> None:
    # KAFKA-12520
    step = 0
    while True:
        files = written()
        wanted, _ = swapped(files)
        put_file(files, path_of(0, ".txnindex"), entry_bytes(AbortedTransaction(99, 0, 1, 2)))
        own = entry_bytes(AbortedTransaction(98, 0, 3, 4))
        if has_transactions:
            put_file(files, path_of(0, ".txnindex", names.SWAP), own)
        files.fail_at = files.steps + step
        try:
            open_log(files, clean=True)
            break
        except Cut:
            ending(files)
        log, _ = open_log(files, clean=True)
        assert [row.offset for row in rows_of(log)][: len(wanted)] == wanted, files.last_step
        found = files.read(path_of(0, ".txnindex")) if files.exists(path_of(0, ".txnindex")) else b""
        assert found == (own if has_transactions else b""), "the swap's own, not what it replaced"
        check_indexes(log)
        step += 1
    assert step > 5


def test_a_swap_at_or_above_a_cleaned_file_is_dropped() -> None:
    # KAFKA-12520
    files = written()
    log, _ = open_log(files, clean=True)
    rows = rows_of(log)
    log.abandon()
    swapped(files)
    put_file(files, path_of(0, ".log", names.CLEANED), b"half")
    log, _ = open_log(files, clean=True)
    assert rows_of(log) == rows
    assert not [name for name in listing(files) if names.SWAP in name or names.CLEANED in name]


def test_a_swap_below_a_cleaned_file_is_completed() -> None:
    files = written()
    wanted, _ = swapped(files)
    put_file(files, path_of(10**6, ".log", names.CLEANED), b"half")
    log, _ = open_log(files, clean=True)
    assert [row.offset for row in rows_of(log)][: len(wanted)] == wanted


def test_the_index_of_a_swap_without_its_log_is_dropped() -> None:
    files = written()
    rows = rows_of(open_log(files, clean=True)[0])
    put_file(files, path_of(0, ".index", names.SWAP), bytes(16))
    log, _ = open_log(files, clean=True)
    assert rows_of(log) == rows
    check_indexes(log)


# Recovery.
def test_recovery_begins_at_the_recovery_point_and_not_before() -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    bases = bases_of(log)
    log.abandon()
    _, report = open_log(files, recovery_point=bases[3] + 1)
    assert [segment.base_offset for segment in report.recovered] == bases[3:]
    _, report = open_log(files, recovery_point=bases[3])
    assert [segment.base_offset for segment in report.recovered] == bases[2:], (
        "it may have been sealed after that flush"
    )
    _, report = open_log(files)
    assert [segment.base_offset for segment in report.recovered] == bases


def test_recovery_on_threads_gives_the_same_log() -> None:
    files = written(60)
    alone, _ = open_log(files)
    rows, state = rows_of(alone), [producer.state() for producer in alone.producers.values()]
    alone.abandon()
    together, report = open_log(files, jobs=ThreadJobs(4))
    assert rows_of(together) == rows
    assert [producer.state() for producer in together.producers.values()] == state
    assert [segment.base_offset for segment in report.recovered] == bases_of(together)
    check_log(together, files)


@pytest.mark.parametrize("gaps_are_holes", [True, False])
def test_a_bad_batch_sets_the_segments_after_it_aside(gaps_are_holes: bool) -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    bases = bases_of(log)
    log.abandon()
    data = bytearray(files.read(path_of(bases[2])))
    data[-1] ^= 1
    put_file(files, path_of(bases[2]), bytes(data))
    log, report = open_log(files, recovery_point=1, gaps_are_holes=gaps_are_holes)
    assert bases_of(log) == bases[:3]
    assert report.cut_segments == bases[3:]
    assert {name for name in listing(files) if name.endswith(".log.cut")} == {
        f"{base:020d}.log.cut" for base in bases[3:]
    }
    check_log(log, files)
    again, report = open_log(files, recovery_point=1)
    assert (bases_of(again), report.cut_segments) == (bases[:3], []), "and the next start finds nothing to cut"


def test_a_gap_between_unflushed_segments_is_a_hole_only_where_it_may_be() -> None:
    files = new_disk()
    put_file(files, path_of(0), batch_at(0))
    put_file(files, path_of(5), batch_at(5))
    log, report = open_log(files, gaps_are_holes=True)
    assert (log.end_offset, report.cut_segments) == (1, [5])
    files = new_disk()
    put_file(files, path_of(0), batch_at(0))
    put_file(files, path_of(5), batch_at(5))
    log, report = open_log(files, gaps_are_holes=False)
    assert (log.end_offset, report.cut_segments) == (6, [])


@pytest.mark.parametrize("clean", [True, False])
def test_gaps_in_flushed_data_are_no_holes_whatever_makes_it_be_walked_again(clean: bool) -> None:
    """A topic that was compacted once: nobody may cut what was on disk for long."""
    files = new_disk()
    for base in (0, 10, 20, 21):
        put_file(files, path_of(base), batch_at(base))
        put_file(files, path_of(base, ".index"), b"")
        put_file(files, path_of(base, ".timeindex"), struct.pack(">qi", T0, 0))
    put_file(files, path_of(0, ".txnindex"), b"rubbish")
    log, report = open_log(files, clean=clean, recovery_point=21)
    assert [row.offset for row in rows_of(log)] == [0, 10, 20, 21]
    assert len(report.recovered) == 4


def test_a_segment_below_the_log_start_is_recovered_without_complaint() -> None:
    # KAFKA-7401
    files = written()
    log, _ = open_log(files, clean=True)
    bases, end = bases_of(log), log.end_offset
    log.abandon()
    for start in (bases[1] + 1, bases[2], bases[-1] + 1):
        log, _ = open_log(files, log_start_offset=start, high_watermark=end)
        assert (log.log_start_offset, log.end_offset, log.high_watermark) == (start, end, end)
        assert bases_of(log) == [base for base in bases if base >= bases_of(log)[0]]
        assert bases_of(log)[0] == max(base for base in bases if base <= start), "what was deleted before goes again"
        check_log(log, files)
        log.abandon()


def test_what_remains_below_the_log_start_is_dropped_with_its_epochs_and_producers() -> None:
    # KAFKA-10101: the log's end fell below its start.
    files = written()
    log, _ = open_log(files, log_start_offset=5000, recovery_point=4000, high_watermark=4500)
    assert (log.log_start_offset, log.end_offset, log.recovery_point, log.high_watermark) == (5000,) * 4
    assert log.leader_epochs.entries == ()
    assert list(log.producers.values()) == []
    log, _ = open_log(files, log_start_offset=5000)
    assert log.leader_epochs.entries == (), "a crash before the next flush does not bring them back"
    assert log.append_as_leader(produced(producer_id=7, sequence=33), leader_epoch=9).base_offset == 5000
    log.flush()
    log, _ = open_log(files, log_start_offset=5000)
    assert [entry.epoch for entry in log.leader_epochs.entries] == [9]


@pytest.mark.parametrize(("clean", "wanted"), [(True, "end"), (False, "end")])
def test_a_recovery_point_beyond_the_end_is_brought_back_to_it(clean: bool, wanted: str) -> None:
    # KAFKA-10101
    files = written()
    log, _ = open_log(files, clean=clean, recovery_point=10**9, high_watermark=10**9)
    assert log.recovery_point == log.end_offset, wanted
    assert log.high_watermark == log.end_offset


def test_an_unclean_stop_does_not_move_the_recovery_point() -> None:
    # KAFKA-10101
    files = written()
    log, _ = open_log(files, recovery_point=10)
    assert log.recovery_point == 10


def test_a_crash_in_the_middle_of_recovery_is_recovered_again() -> None:
    step = 0
    while True:
        files = written(12)
        reference = rows_of(open_log(written(12), clean=True)[0])
        tail = files.open(path_of(0))
        tail.sync()
        files.fail_at = files.steps + step
        try:
            open_log(files)
            break
        except Cut:
            kill(files)
        log, _ = open_log(files)
        assert rows_of(log) == reference
        check_log(log, files)
        step += 1
    assert step > 20


# A clean marker that lies.
def test_a_truncated_active_segment_is_found_out_in_spite_of_the_marker() -> None:
    for cut in (1, 30, 70, 200):
        files = written()
        last = bases_of(open_log(files, clean=True)[0])[-1]
        files.truncate(path_of(last), files.size(path_of(last)) - cut)
        log, report = open_log(files, clean=True)
        assert report.recovered, cut
        check_log(log, files)
        appended = log.append_as_leader(produced(), leader_epoch=9)
        assert rows_of(log)[-1].offset == appended.last_offset


def test_a_tail_behind_the_active_segments_last_batch_is_found_out_too() -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    last, end = bases_of(log)[-1], log.end_offset
    log.abandon()
    file = files.open(path_of(last))
    file.pwrite(b"\1" * 50, file.size())
    log, report = open_log(files, clean=True)
    assert (log.end_offset, report.recovered[-1].cut_bytes) == (end, 50)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["padded", "emptied", "beyond", "torn"])
def test_an_active_index_that_does_not_fit_its_log_is_mended_before_it_is_used(kind: str, damage: str) -> None:
    # KAFKA-593, and what a marker copied from elsewhere would hide.
    files = written(7, segment_bytes=5000)
    log, _ = open_log(files, clean=True)
    rows, newest = rows_of(log), log.log.active.largest
    log.abandon()
    good = files.read(path_of(0, kind))
    size = 8 if kind == ".index" else 12
    beyond = (b"\0" * (size - 8) + b"\x7f\xff\xff\xf0" * 2)[:size]
    bad = {"padded": good + bytes(960), "emptied": b"", "beyond": good + beyond, "torn": good[:-1]}[damage]
    put_file(files, path_of(0, kind), bad)
    log, _ = open_log(files, clean=True)
    assert rows_of(log) == rows
    assert log.log.active.largest == newest
    check_indexes(log)
    fill_more = records(3, timestamp=T0 + 10**6)
    for _ in range(5):
        log.append_as_leader(produced(fill_more), leader_epoch=9)
    check_indexes(log)
