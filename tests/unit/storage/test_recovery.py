"""Recovery of one segment: what is good is kept, the rest is cut and kept aside (row S16, pitfalls 1)."""

from __future__ import annotations

import struct
import zlib

import pytest
from tests.support.forgetful_files import ForgetfulFiles, _MemoryFile
from tests.support.log_checks import check_indexes, check_log, rows_of
from tests.unit.storage.disk import PATH, T0, batch_at, listing, marker, new_disk, open_log, path_of, produced, put_file

from penstock.base.errors import UnsupportedForMessageFormatError
from penstock.records.batch import Codec, scan
from penstock.records.build import build_batch
from penstock.storage import cuts, stretches
from penstock.storage.checkpoints import EpochStart
from penstock.storage.producer_state import Origin
from penstock.storage.recovery import SegmentReport, recover_segment

GOOD = b"".join(batch_at(offset) for offset in range(5))
STALE_INDEX = struct.pack(">iiii", 3, 10**6, 9, 2 * 10**6)
STALE_TIME_INDEX = struct.pack(">qiqi", 5, 3, 4, 9)


def recovered(files: ForgetfulFiles, data: bytes, base: int = 0) -> SegmentReport:
    put_file(files, path_of(base), data)
    return recover_segment(files, PATH, base, 100)


def old_message(offset: int, magic: int = 1, value: bytes = b"value") -> bytes:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T0) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_a_whole_segment_is_left_as_it_is_and_indexed_anew() -> None:
    files = new_disk()
    put_file(files, path_of(0, ".index"), STALE_INDEX)
    put_file(files, path_of(0, ".timeindex"), STALE_TIME_INDEX)
    report = recovered(files, GOOD)
    assert (report.end_offset, report.size_bytes, report.cut_bytes, report.reason) == (5, len(GOOD), 0, "")
    log, _ = open_log(files, clean=True)
    check_indexes(log)


def test_a_half_written_tail_and_a_stale_index_do_not_stop_a_start() -> None:
    # KAFKA-1112
    files = new_disk()
    put_file(files, path_of(0), GOOD + batch_at(5)[:40])
    put_file(files, path_of(0, ".index"), STALE_INDEX + bytes(984))
    put_file(files, path_of(0, ".timeindex"), STALE_TIME_INDEX + bytes(972))
    log, report = open_log(files)
    assert log.end_offset == 5
    assert report.recovered[0].cut_bytes == 40
    assert report.recovered[0].reason == "the last batch is cut off"
    check_log(log, files)
    assert files.read(path_of(0) + f".{len(GOOD)}.cut") == batch_at(5)[:40]


@pytest.mark.parametrize("keeps_size", [True, False], ids=["zeroes behind", "short"])
@pytest.mark.parametrize("boundary", [512, 4096])
def test_a_write_torn_at_any_sector_or_page_costs_that_batch_and_no_other(boundary: int, keeps_size: bool) -> None:
    """A batch of 20 KB behind one of odd size, so that the boundaries fall everywhere within it, its header included."""
    for head in (1, 470, 505, 3990, 4080):
        first = batch_at(0, size=head)
        torn = batch_at(1, 3, size=7000)
        start = len(first)
        cuts = range(boundary - start % boundary, len(torn), boundary)
        for length in cuts:
            files = new_disk()
            rest = bytes(len(torn) - length) if keeps_size else b""
            put_file(files, path_of(0), first + torn[:length] + rest)
            log, _ = open_log(files)
            assert log.end_offset == 1, (head, length)
            assert files.size(path_of(0)) == len(first)
            assert log.append_as_leader(produced(), leader_epoch=0).base_offset == 1


@pytest.mark.parametrize("byte", range(61))
def test_no_byte_of_a_damaged_header_stops_a_start(byte: int) -> None:
    last = bytearray(batch_at(4))
    last[byte] ^= 0xFF
    files = new_disk()
    put_file(files, path_of(0), GOOD[: -len(last)] + bytes(last))
    log, _ = open_log(files)
    if 1 <= byte < 8:
        assert log.end_offset > 5, "the base offset stands outside the CRC: nothing contradicts a larger one"
    else:
        assert log.end_offset == (5 if 12 <= byte < 16 else 4), "the leader epoch stands outside the CRC"
    log.append_as_leader(produced(), leader_epoch=2**31 - 1)


def test_a_flipped_bit_in_the_middle_cuts_there_and_keeps_what_follows_beside_it() -> None:
    files = new_disk()
    one = len(batch_at(0))
    data = bytearray(GOOD)
    data[2 * one + 70] ^= 1
    report = recovered(files, bytes(data))
    assert (report.end_offset, report.cut_bytes) == (2, 3 * one)
    assert report.reason == "a batch's CRC does not match"
    assert files.read(f"{path_of(0)}.{2 * one}.cut") == data[2 * one :]


def test_repeated_offsets_end_the_segment_and_break_nothing() -> None:
    # KAFKA-905
    files = new_disk()
    report = recovered(files, batch_at(0) + batch_at(1) + batch_at(1) + batch_at(2))
    assert report.end_offset == 2
    assert report.reason == "a batch at offset 1 follows offset 1"
    log, _ = open_log(files)
    check_log(log, files)


def test_an_offset_below_the_segments_base_is_refused() -> None:
    files = new_disk()
    report = recovered(files, batch_at(5), base=10)
    assert (report.end_offset, report.size_bytes) == (10, 0)


def test_a_preallocated_tail_of_zeroes_is_trimmed_and_not_kept() -> None:
    # KAFKA-5431
    files = new_disk()
    report = recovered(files, GOOD + bytes(5000))
    assert (report.end_offset, report.size_bytes, report.cut_is_padding) == (5, len(GOOD), True)
    assert files.size(path_of(0)) == len(GOOD)
    assert not [name for name in listing(files) if name.endswith(".cut")]


def test_a_segment_of_zeroes_is_an_empty_one() -> None:
    # KAFKA-5431
    files = new_disk()
    assert recovered(files, bytes(4096)).end_offset == 0
    log, _ = open_log(files, clean=True)
    assert log.append_as_leader(produced(), leader_epoch=0).base_offset == 0


def test_a_length_that_claims_two_gigabytes_allocates_nothing() -> None:
    files = new_disk()
    huge = bytearray(batch_at(5))
    struct.pack_into(">i", huge, 8, 2**31 - 13)
    report = recovered(files, GOOD + bytes(huge))
    assert report.end_offset == 5


@pytest.mark.parametrize("claimed", [2_000_000, 2_900_000])
def test_a_length_that_claims_much_of_the_file_is_not_believed_before_its_crc(
    claimed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "BELIEVED_BYTES_MAX", 1_500_000)
    files = new_disk()
    liar = bytearray(batch_at(5))
    struct.pack_into(">i", liar, 8, claimed - 12)
    asked: list[int] = []
    pread = _MemoryFile.pread

    def watched(file: _MemoryFile, length: int, position: int) -> bytes:
        asked.append(length)
        return pread(file, length, position)

    monkeypatch.setattr(_MemoryFile, "pread", watched)
    report = recovered(files, GOOD + bytes(liar) + b"\1" * 3_000_000)
    assert (report.end_offset, report.reason) == (5, "a batch's CRC does not match")
    assert max(asked) <= cuts._COPY_BYTES
    asked.clear()
    whole = recovered(files, GOOD + batch_at(5, size=2_000_000) + batch_at(6))
    assert (whole.end_offset, whole.cut_bytes) == (7, 0), "one that is good is read whole"
    assert max(asked) > 2_000_000


@pytest.mark.parametrize("magic", [0, 1])
def test_records_in_an_old_format_are_refused_and_not_cut(magic: int) -> None:
    files = new_disk()
    data = old_message(0, magic) + old_message(1, magic)
    put_file(files, path_of(0), data)
    put_file(files, path_of(0, ".index"), STALE_INDEX)
    put_file(files, path_of(0, ".timeindex"), STALE_TIME_INDEX)
    for clean in (False, True):
        with pytest.raises(UnsupportedForMessageFormatError, match="format 0 or 1"):
            open_log(files, clean=clean)
        assert files.read(path_of(0)) == data
        if not clean:
            assert files.read(path_of(0, ".index")) == STALE_INDEX, "nothing at all was touched"


def test_a_torn_header_that_looks_like_an_old_format_is_cut_like_any_other() -> None:
    files = new_disk()
    torn = batch_at(5)[:16] + bytes(len(batch_at(5)) - 16)  # its magic reads 0
    report = recovered(files, GOOD + torn)
    assert report.end_offset == 5
    report = recovered(files, torn)
    assert report.end_offset == 0


def test_epochs_and_producers_come_from_the_batches() -> None:
    # KAFKA-10432: epoch 0 too
    files = new_disk()
    log, _ = open_log(files)
    for number in range(3):
        log.append_as_leader(produced(producer_id=7, sequence=number, transactional=True), leader_epoch=number * 2)
    log.append_as_leader(marker(7, commit=False), leader_epoch=4, origin=Origin.COORDINATOR)
    report = recover_segment(files, PATH, 0, 100)
    assert report.epochs == [EpochStart(0, 0), EpochStart(2, 1), EpochStart(4, 2)]
    assert [(batch.base_offset, ending is None) for batch, ending in report.producers] == [
        (0, True),
        (1, True),
        (2, True),
        (3, False),
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_sparse_offsets_within_a_batch_are_good(codec: Codec) -> None:
    # KAFKA-9080: compaction leaves gaps within batches.
    files = new_disk()
    data = build_batch(
        [(T0, b"k", b"v", ()), (T0, b"l", b"w", ())], base_offset=3, offsets=[4, 9], last_offset=12, codec=codec
    )
    report = recovered(files, data)
    assert (report.end_offset, report.cut_bytes) == (13, 0)
    log, _ = open_log(files, clean=True)
    assert [row.offset for row in rows_of(log)] == [4, 9]


def test_a_batch_larger_than_a_chunk_is_read_whole() -> None:
    files = new_disk()
    data = batch_at(0) + batch_at(1, size=9_000_000) + batch_at(2)
    report = recovered(files, data)
    assert (report.end_offset, report.cut_bytes) == (3, 0)
    assert len(scan(files.read(path_of(0))).batches) == 3


def test_an_index_is_as_dense_as_an_appended_one() -> None:
    # The same rule for both, whatever the interval: byte for byte.
    files = new_disk()
    log, _ = open_log(files)
    for number in range(6):
        log.append_as_leader(produced([(T0 + number, b"k", b"v" * number * 9, ())]), leader_epoch=0)
    log.close()
    before = {kind: files.read(path_of(0, kind)) for kind in (".index", ".timeindex")}
    assert before[".index"]
    recover_segment(files, PATH, 0, 100)
    assert {kind: files.read(path_of(0, kind)) for kind in before} == before
