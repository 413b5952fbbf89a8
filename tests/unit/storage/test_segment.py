"""Segments: the index interval, the time index's entries, rebuilding, bounded descriptors (rows S6 to S8)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import check_indexes
from tests.unit.storage.disk import (
    PARTITION,
    PATH,
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

from penstock.base.clock import ManualClock
from penstock.base.errors import CorruptFileError
from penstock.base.files import SystemFiles
from penstock.records.batch import scan
from penstock.storage import names
from penstock.storage.log_directories import LogDirectories
from penstock.storage.segment import ActiveSegment, OpenFiles, Segment

SIZE = len(batch_at(0))


def active(files: ForgetfulFiles, *, interval: int = 100, index_bytes: int = 1000, base: int = 0) -> ActiveSegment:
    return ActiveSegment(
        files, PATH, base, OpenFiles(), index_interval_bytes=interval, index_bytes_max=index_bytes, created_ms=T0
    )


def append(segment: ActiveSegment, *batches: bytes) -> None:
    data = b"".join(batches)
    segment.append(data, scan(data).batches)


def entries(segment: Segment) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    offset_index, time_index = segment.indexes()
    return (
        [tuple(offset_index.entry(slot)) for slot in range(offset_index.entries)],
        [tuple(time_index.entry(slot)) for slot in range(time_index.entries)],
    )


# When entries are made.
@pytest.mark.parametrize(
    ("interval", "wanted"),
    [
        (0, [1, 2, 3, 4, 5]),  # never the first batch
        (SIZE - 1, [1, 2, 3, 4, 5]),
        (SIZE, [2, 4]),  # more than the interval, tested before the batch is counted
        (2 * SIZE, [3]),
        (10**6, []),
    ],
)
def test_an_entry_is_made_when_more_than_the_interval_came_since_the_last(interval: int, wanted: list[int]) -> None:
    for at_once in (True, False):
        segment = active(new_disk(), interval=interval)
        batches = [batch_at(offset) for offset in range(6)]
        for group in [batches] if at_once else [[batch] for batch in batches]:
            append(segment, *group)
        assert entries(segment)[0] == [(offset, offset * SIZE) for offset in wanted]


def test_an_entry_names_its_batchs_last_offset_and_first_byte() -> None:
    segment = active(new_disk(), interval=0)
    append(segment, batch_at(0, 3), batch_at(3, 4))
    assert entries(segment)[0] == [(6, len(batch_at(0, 3)))]


def test_a_time_entry_names_the_largest_timestamp_so_far_and_the_batch_that_reached_it() -> None:
    # KAFKA-12981: timestamp and offset belong together.
    segment = active(new_disk(), interval=0)
    stamps = [5, 9, 3, 9, 12]
    append(segment, *(batch_at(offset, timestamp=T0 + stamp) for offset, stamp in enumerate(stamps)))
    assert entries(segment)[1] == [(T0 + 9, 1), (T0 + 12, 4)]
    assert segment.largest == (T0 + 12, 4)


def test_sealing_adds_the_final_time_entry_and_trims_both_indexes() -> None:
    # KAFKA-4734
    files = new_disk()
    segment = active(files, interval=10**6)
    append(segment, batch_at(0), batch_at(1, timestamp=T0 + 7), batch_at(2))
    sealed = segment.seal()
    assert (files.size(path_of(0, ".index")), files.size(path_of(0, ".timeindex"))) == (0, 12)
    assert entries(sealed)[1] == [(T0 + 7, 1)]
    assert (sealed.largest, sealed.first_timestamp) == ((T0 + 7, 1), T0)


def test_a_full_index_takes_no_more_entries_and_the_segment_has_no_room() -> None:
    segment = active(new_disk(), interval=0, index_bytes=36)
    assert segment.has_room_for(5)
    append(segment, *(batch_at(offset, timestamp=T0 + offset) for offset in range(3)))
    assert not segment.has_room_for(5), "the time index is full one slot early"
    append(segment, *(batch_at(offset, timestamp=T0 + offset) for offset in range(3, 9)))
    assert len(entries(segment)[1]) == 2
    assert entries(segment.seal())[1][-1] == (T0 + 8, 8), "the slot was kept for this"


@pytest.mark.parametrize(("last", "fits"), [(1000 + 2**31 - 1, True), (1000 + 2**31, False)])
def test_a_relative_offset_fits_an_int32_or_not(last: int, fits: bool) -> None:
    # KAFKA-4451
    assert active(new_disk(), base=1000).has_room_for(last) == fits


# Bad indexes.
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd size", "padded", "falling"])
def test_a_bad_index_of_a_sealed_segment_is_rebuilt_when_it_is_first_read(kind: str, damage: str) -> None:
    # KAFKA-7283
    files = new_disk()
    segment = active(files, interval=100)
    append(segment, *(batch_at(offset, timestamp=T0 + offset) for offset in range(20)))
    sealed = segment.seal()
    wanted = entries(sealed)
    sealed.close()
    good = files.read(path_of(0, kind))
    size = 8 if kind == ".index" else 12
    files.remove(path_of(0, kind))
    if damage != "missing":
        bad = {"odd size": good[:-1], "padded": good + bytes(size * 5), "falling": good + bytes(size)}[damage]
        put_file(files, path_of(0, kind), bad)
    again = Segment(files, PATH, 0, files.size(path_of(0)), OpenFiles())
    assert again.find(15) is not None
    again.rebuild_indexes(100)
    assert entries(again) == wanted
    assert again.largest == (T0 + 19, 19)


def test_a_walk_that_meets_no_batch_says_where() -> None:
    files = new_disk()
    put_file(files, path_of(0), batch_at(0) + b"\7" * 100)
    segment = Segment(files, PATH, 0, files.size(path_of(0)), OpenFiles())
    with pytest.raises(CorruptFileError, match=f"at position {SIZE}"):
        list(segment.headers(0))


# Cutting.
@pytest.mark.parametrize(("offset", "end", "size"), [(0, 0, 0), (3, 3, 3), (7, 6, 6), (9, 9, 7), (50, 50, 7)])
def test_a_cut_leaves_whole_batches_and_indexes_that_fit(offset: int, end: int, size: int) -> None:
    """Six batches of one record, then one of three: a cut within it takes all of it."""
    files = new_disk()
    segment = active(files, interval=0)
    append(segment, *(batch_at(number, timestamp=T0 + number) for number in range(6)), batch_at(6, 3))
    assert segment.truncate_to(offset) == end
    assert len(list(segment.headers(0))) == size
    assert all(entry[0] < end for entry in entries(segment)[0] + [(stamp[1],) for stamp in entries(segment)[1]])
    assert segment.largest.timestamp == (max(T0 + min(size, 6) - 1, T0 + 2 if size == 7 else 0) if size else -1)
    assert files.size(path_of(0)) == segment.size_bytes


def test_a_cut_segment_is_appended_to_as_if_nothing_had_been_there() -> None:
    # KAFKA-654, 6492: its indexes are kept in use, not closed or rolled.
    files = new_disk()
    log, _ = open_log(files, config=small_config(segment_bytes=5000))
    for number in range(12):
        log.append_as_leader(produced(records(timestamp=T0 + number)), leader_epoch=0)
    log.truncate(4)
    assert files.size(path_of(0, ".index")) == 1000, "at its full size again"
    for number in range(12):
        log.append_as_leader(produced(records(timestamp=T0 + 50 + number)), leader_epoch=0)
    check_indexes(log)
    assert len(log.log.segments) == 1


# Descriptors.
def test_only_so_many_files_of_sealed_segments_hold_descriptors() -> None:
    files = new_disk()
    opened = OpenFiles(6)
    segments = []
    for base in range(4):
        put_file(files, path_of(base), batch_at(base))
        segments.append(Segment(files, PATH, base, SIZE, opened))
    for segment in segments:
        assert segment.find(segment.base_offset) is not None
    assert [segment._file is None for segment in segments] == [True, True, False, False]
    assert [segment.offset_index.is_open for segment in segments] == [False, False, True, True]
    segments[2].indexes()  # used again: they are younger now than the log beside them
    assert segments[0].file is not None
    assert [segment._file is None for segment in segments] == [False, True, True, False]
    assert [segment.offset_index.is_open for segment in segments] == [False, False, True, True]


def test_a_log_of_many_segments_holds_no_more_descriptors_than_it_may(tmp_path: Path) -> None:
    settings = small_config(segment_bytes=200)
    made = LogDirectories(
        [str(tmp_path)], SystemFiles(), ManualClock(), config_for=lambda _partition: settings, open_files_max=9
    )
    made.open()
    log = made.create(PARTITION, settings)
    while len(log.log.segments) < 60:
        log.append_as_leader(produced(), leader_epoch=0)
    log.set_high_watermark(log.end_offset)
    before = len(os.listdir("/proc/self/fd"))
    for offset in range(log.end_offset):
        found = log.read(offset, bytes_max=1000).slice
        assert found is not None
        assert found.read()
    for segment in log.log.segments:
        assert segment.largest.timestamp >= 0
    del found
    assert len(os.listdir("/proc/self/fd")) - before <= 9
    assert made.close() == []


def test_a_reader_keeps_its_file_when_the_segment_lets_go_of_it_or_is_unlinked(tmp_path: Path) -> None:
    # KAFKA-6194, 695: no read of a closed or removed file.
    files = SystemFiles()
    (tmp_path / "00000000000000000000.log").write_bytes(batch_at(0))
    segment = Segment(files, str(tmp_path), 0, SIZE, OpenFiles())
    file = segment.file
    segment.rename(names.DELETED)
    segment.close()
    os.unlink(tmp_path / "00000000000000000000.log.deleted")
    assert file.pread(SIZE, 0) == batch_at(0)


def test_a_descriptor_goes_with_its_last_holder(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(batch_at(0))
    segment = Segment(SystemFiles(), str(tmp_path), 0, SIZE, OpenFiles())
    descriptor = segment.file.fileno()
    segment.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_two_first_uses_of_a_lazily_opened_index_open_it_once() -> None:
    # KAFKA-9156, 14792: one thread owns a log; the second call finds what the first one opened.
    files = new_disk()
    segment = active(files, interval=0)
    append(segment, batch_at(0), batch_at(1))
    sealed = segment.seal()
    first = sealed.indexes()[0].buffer
    assert sealed.indexes()[0].buffer is first


def test_renaming_takes_every_file_that_exists_and_the_log_last() -> None:
    # KAFKA-6324, 5752
    files = new_disk()
    put_file(files, path_of(0), batch_at(0))
    put_file(files, path_of(0, ".timeindex"), b"")
    segment = Segment(files, PATH, 0, SIZE, OpenFiles())
    assert segment.all_paths() == [path_of(0, ".timeindex"), path_of(0)]
    segment.rename(names.DELETED)
    assert files.list(PATH) == ["00000000000000000000.log.deleted", "00000000000000000000.timeindex.deleted"]


def test_a_short_read_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # KAFKA-4576
    (tmp_path / "f").write_bytes(bytes(range(200)))
    file = SystemFiles().open_read(str(tmp_path / "f"))
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, position: read(descriptor, min(length, 7), position))
    assert file.pread(150, 10) == bytes(range(10, 160))
    assert file.pread(500, 190) == bytes(range(190, 200)), "and ends where the file does"


def test_a_short_write_is_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SystemFiles().create(str(tmp_path / "f"))
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: write(descriptor, bytes(data)[:7], position))
    file.pwrite(bytes(range(100)), 3)
    assert (tmp_path / "f").read_bytes() == bytes(3) + bytes(range(100))


# The last batches.
def test_the_last_batches_are_where_the_file_has_them_however_they_came() -> None:
    segment = active(new_disk(), interval=300)
    offset = 0

    def check() -> None:
        for wanted in range(offset + 2):
            found = segment.find(wanted)
            spot = segment.locate(wanted)
            assert (spot is None) == (found is None), wanted
            if spot is not None and found is not None:
                assert (spot.base_offset, spot.last_offset) == (found.base_offset, found.last_offset)
                assert (spot.position, spot.size_bytes) == (found.position, found.size_bytes)

    check()
    for together in (1, 3, 40, 1, 1, 2):
        append(segment, *[batch_at(offset + number) for number in range(together)])
        offset += together
        two = batch_at(offset), batch_at(offset + 1)
        segment.append_placed(b"".join(two), offset, [(offset, T0, SIZE), (offset + 1, T0, SIZE)])
        offset += 2
        check()
    for cut in (offset - 2, offset - 30, 0):
        offset = segment.truncate_to(cut)
        check()
        append(segment, batch_at(offset))
        offset += 1
        check()
