"""Headers of record batches: golden bytes, every reason to stop, patching, index searches."""

import mmap
import os
import struct
from pathlib import Path

import pytest

from penstock.base.errors import UnsupportedCompressionTypeError
from penstock.records import kernels
from penstock.records.batch import (
    HEADER_BYTES,
    Batch,
    Codec,
    Stop,
    TimestampType,
    assigned,
    crc32c,
    read_header,
    records_slice,
    scan,
)
from penstock.records.build import build_batch

RECORDS = bytes.fromhex(
    "1e 00 00 00 06 6b 65 79 06 76 61 6c 02 02 68 01"  # offset 0: key, val, one header h = null
    "0c 00 0a 02 01 01 00"  # offset 1, 5 ms later: nulls
)
BODY = struct.pack(">hiqqqhii", 0, 1, 1000, 1005, -1, -1, -1, 2) + RECORDS
GOLDEN = struct.pack(">qiib", 42, 9 + len(BODY), 3, 2) + struct.pack(">I", crc32c(BODY)) + BODY


def header(**changes: int) -> bytes:
    """A batch without records, its CRC right whatever else is wrong."""
    fields = {"base_offset": 0, "length": 49, "epoch": 0, "magic": 2, "attributes": 0, "delta": 0, "count": 0} | changes
    body = struct.pack(
        ">hiqqqhii", fields["attributes"], fields["delta"], 0, 0, -1, -1, fields.get("sequence", -1), fields["count"]
    )
    head = struct.pack(">qiib", fields["base_offset"], fields["length"], fields["epoch"], fields["magic"])
    return head + struct.pack(">I", crc32c(body)) + body


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="interpreted kernels are allowed outside CI")
def test_kernels_are_compiled_under_ci() -> None:
    assert kernels.COMPILED


@pytest.mark.parametrize(
    ("data", "crc"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],  # RFC 3720, B.4
)
def test_crc_of_the_published_vectors(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert kernels.crc32c_portable(data) == crc


@pytest.mark.parametrize("size", [767, 768, 769, 12287, 12288, 12289, 13056, 40000, 300000])
def test_crc_by_lanes_equals_crc_by_tables(size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(size + 5))
    for start in (0, 1, 5):
        assert crc32c(data, start, start + size) == kernels.crc32c_portable(data[start : start + size])


def test_a_batch_made_by_hand_is_read_and_made_again() -> None:
    (batch,) = scan(GOLDEN).batches
    assert batch == Batch(0, len(GOLDEN), 42, 43, 3, 2, crc32c(BODY), 0, 1000, 1005, -1, -1, -1, 2)
    assert records_slice(batch) == (HEADER_BYTES, len(GOLDEN))
    assert read_header(GOLDEN) == batch
    records = [(1000, b"key", b"val", (("h", None),)), (1005, None, None, ())]
    assert build_batch(records, base_offset=42, leader_epoch=3) == GOLDEN


def test_scan_takes_bytes_bytearray_view_and_map(tmp_path: Path) -> None:
    path = tmp_path / "batches"
    path.write_bytes(GOLDEN * 2)
    want = scan(GOLDEN * 2)
    assert scan(bytearray(GOLDEN * 2)) == want
    assert scan(memoryview(GOLDEN * 2)) == want
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert scan(mapped) == want


GOOD = header(base_offset=7)


@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (b"", Stop.COMPLETE),
        (b"\x01", Stop.INCOMPLETE),
        (GOLDEN[:16], Stop.INCOMPLETE),
        (GOLDEN[:60], Stop.INCOMPLETE),
        (GOLDEN[:-1], Stop.INCOMPLETE),
        (bytes(17), Stop.ZEROES),
        (bytes(5000), Stop.ZEROES),
        (bytes(5000) + b"\x01", Stop.BAD_SIZE),
        (header(magic=1), Stop.OLD_MAGIC),
        (header(magic=0), Stop.OLD_MAGIC),
        (header(magic=3), Stop.BAD_MAGIC),
        (header(magic=-1), Stop.BAD_MAGIC),
        (header(length=48), Stop.BAD_SIZE),
        (header(length=-1), Stop.BAD_SIZE),
        (header(length=-(1 << 31)), Stop.BAD_SIZE),
        (header(length=(1 << 31) - 1), Stop.INCOMPLETE),
        (GOLDEN[:-1] + b"\x01", Stop.BAD_CRC),
        (header(count=-1), Stop.BAD_COUNT),
        (header(delta=-1), Stop.BAD_COUNT),
        (header(base_offset=(1 << 63) - 1, delta=1), Stop.BAD_COUNT),
    ],
)
def test_a_scan_stops_for_the_right_reason_after_the_last_good_batch(tail: bytes, stop: Stop) -> None:
    scanned = scan(b"skipped" + GOOD + tail, 7)
    assert scanned.stop == stop
    assert scanned.end == 7 + len(GOOD)
    assert [batch.base_offset for batch in scanned.batches] == [7]


def test_every_single_bit_flip_under_the_crc_is_found() -> None:
    for bit in range(8 * 17, 8 * len(GOLDEN)):
        data = bytearray(GOLDEN)
        data[bit >> 3] ^= 1 << (bit & 7)
        assert scan(data).stop == Stop.BAD_CRC


def test_a_scan_without_crc_takes_what_the_headers_say() -> None:
    assert scan(GOLDEN[:-1] + b"\x01", check_crc=False).stop == Stop.COMPLETE


def test_a_limited_scan_says_where_to_go_on() -> None:
    scanned = scan(GOLDEN * 3, batches_max=2)
    assert (len(scanned.batches), scanned.stop, scanned.end) == (2, Stop.LIMIT, 2 * len(GOLDEN))
    rest = scan(GOLDEN * 3, scanned.end, batches_max=2)
    assert (len(rest.batches), rest.stop) == (1, Stop.COMPLETE)
    assert rest.batches[0].position == 2 * len(GOLDEN)


def test_a_large_scan_runs_without_the_gil_and_finds_all() -> None:
    assert len(scan(GOLDEN * 5000).batches) == 5000


def test_a_slice_outside_the_buffer_is_an_error_not_a_read() -> None:
    for start, end in ((-2, 5), (0, 1000), (50, 10)):
        with pytest.raises(IndexError):
            scan(GOLDEN, start, end)
    with pytest.raises(IndexError):
        assigned(bytearray(GOLDEN[:-1]), 0, 1, 1, 0, 1005)
    with pytest.raises(IndexError):
        assigned(bytearray(GOLDEN), 1, 1, 1, 0, 1005)


def test_offset_and_epoch_lie_outside_the_crc_and_the_append_time_inside() -> None:
    data = bytearray(GOLDEN)
    assigned(data, 0, 1 << 40, 12, TimestampType.CREATE_TIME, 1005)
    assert data[17:] == GOLDEN[17:]
    placed = assigned(data, 0, 1 << 40, 12, TimestampType.LOG_APPEND_TIME, 1_700_000_000_000)
    (batch,) = scan(data).batches
    assert batch == placed
    assert (batch.base_offset, batch.leader_epoch) == (1 << 40, 12)
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 1_700_000_000_000)
    assert batch.base_timestamp == 1000


def test_a_claim_of_log_append_time_is_taken_back() -> None:
    data = bytearray(GOLDEN)
    assigned(data, 0, 42, 3, TimestampType.LOG_APPEND_TIME, 99)
    assigned(data, 0, 42, 3, TimestampType.CREATE_TIME, 1005)
    assert data == GOLDEN


def test_attribute_bits() -> None:
    batch = scan(header(attributes=0x7C)).batches[0]
    assert (batch.codec, batch.is_log_append_time, batch.is_transactional, batch.is_control) == (4, True, True, True)
    assert batch.delete_horizon_ms == 0  # KIP-534: the base timestamp's place
    assert scan(header()).batches[0].delete_horizon_ms is None
    assert [scan(header(attributes=codec)).batches[0].codec for codec in Codec] == list(Codec)
    with pytest.raises(UnsupportedCompressionTypeError):
        _ = scan(header(attributes=5)).batches[0].codec


def test_the_sequence_wraps_to_zero() -> None:
    # KAFKA-7692
    assert scan(header(sequence=(1 << 31) - 1, delta=1, count=2)).batches[0].last_sequence == 0
    assert scan(header(sequence=(1 << 31) - 1, delta=0, count=1)).batches[0].last_sequence == (1 << 31) - 1
    assert scan(header(delta=5, count=6)).batches[0].last_sequence == -1


@pytest.mark.parametrize("count", [0, 1, 2, 1024, 1025, 1026, 5000])
def test_index_searches_around_the_warm_section(count: int) -> None:
    offsets = b"".join(struct.pack(">ii", 10 * i, i) for i in range(count))
    times = b"".join(struct.pack(">qi", 10 * i, i) for i in range(count))
    for target in {-1, 0, 5, 10, *range(10 * count - 10300, 10 * count + 20, 5)}:
        want = -1 if target < 0 else min(target // 10, count - 1)
        assert kernels.search_offset_index(offsets, count, target) == want
        assert kernels.search_time_index(times, count, target) == want
    with pytest.raises(IndexError):
        kernels.search_offset_index(offsets, count + 1, 0)
