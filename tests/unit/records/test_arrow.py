"""Batches as Arrow columns: the shape Spark expects, limits, control batches, odd timestamps and header names."""

import subprocess
import sys

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.base.errors import CorruptRecordError
from penstock.records.arrow import SCHEMA, to_arrow
from penstock.records.batch import TimestampType, scan
from penstock.records.build import assemble, build_batch, build_end_marker, encode_record


def table(data: bytes, **limits: int) -> pa.Table:
    batches = list(to_arrow(data, scan(data).batches, **limits))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, SCHEMA)


def test_control_batches_are_left_out() -> None:
    data = build_batch([(1, b"a", b"b", ())]) + build_end_marker(True, 1, 0, 0, 2, base_offset=1)
    assert table(data)["offset"].to_pylist() == [0]


def test_log_append_time_is_the_batchs() -> None:
    rows = table(build_batch([(1, None, b"", ()), (3, None, b"", ())], timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [3000, 3000]
    assert rows["timestampType"].to_pylist() == [1, 1]


def test_offset_limits_cut_within_a_batch() -> None:
    data = build_batch([(i, b"%d" % i, None, (("h", b"x"),) * i) for i in range(5)], base_offset=10)
    rows = table(data, from_offset=12, to_offset=14)
    assert rows["key"].to_pylist() == [b"2", b"3"]
    assert [len(headers) for headers in rows["headers"].to_pylist()] == [2, 3]
    assert table(data, from_offset=15).num_rows == 0


def test_time_limits_leave_out_records_and_their_headers_and_whole_batches() -> None:
    stamps = [5, 9, 2, 7, 6]
    data = build_batch([(stamp, b"%d" % stamp, None, (("h", b"x"),) * stamp) for stamp in stamps])
    rows = table(data, time_ms_min=5, time_ms_max=7)
    assert rows["key"].to_pylist() == [b"5", b"7", b"6"]
    assert [len(headers) for headers in rows["headers"].to_pylist()] == [5, 7, 6]
    assert table(data, time_ms_min=9)["key"].to_pylist() == [b"9"]
    assert table(data, time_ms_min=10).num_rows == 0
    appended = build_batch([(1, b"a", None, ()), (3, b"b", None, ())], timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert table(appended, time_ms_min=3, time_ms_max=3)["key"].to_pylist() == [b"a", b"b"]
    assert table(appended, time_ms_max=2).num_rows == 0


def test_no_batches_make_no_rows() -> None:
    assert table(b"").num_rows == 0
    assert table(build_batch([], last_offset=3)).num_rows == 0


def test_more_rows_than_a_byte_of_validity_bits_and_than_one_group() -> None:
    records = [(i, None if i % 3 == 0 else b"k", None if i % 5 == 0 else b"v" * i, ()) for i in range(100)]
    data = b"".join(build_batch(records, base_offset=100 * i) for i in range(5))
    for group_bytes in (1, 10_000, 1 << 20):
        rows = table(data, group_bytes=group_bytes)
        assert rows["offset"].to_pylist() == list(range(500))
        assert rows["key"].to_pylist() == [r[1] for r in records] * 5
        assert rows["value"].to_pylist() == [r[2] for r in records] * 5


@pytest.mark.parametrize(
    ("base", "delta", "micros"),
    [
        (-1, 0, -1000),
        ((1 << 63) - 1, 0, ((1 << 63) - 1) // 1000 * 1000),
        (0, (1 << 63) - 1, ((1 << 63) - 1) // 1000 * 1000),
        (-(1 << 63), -(1 << 63), -(((1 << 63) - 1) // 1000 * 1000)),
        ((1 << 63) - 1, -(1 << 63), -1000),
    ],
)
def test_timestamps_beyond_the_microsecond_range_go_to_its_end(base: int, delta: int, micros: int) -> None:
    data = assemble(
        encode_record(0, delta, None, None),
        base_offset=0,
        last_offset=0,
        leader_epoch=0,
        attributes=0,
        base_timestamp=base,
        max_timestamp=base,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    assert table(data)["timestamp"].cast(pa.int64()).to_pylist() == [micros]


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    data = build_batch([(0, None, None, (("é", b"1"), ("zz", None)))])
    broken = data[61:].replace("é".encode(), b"\xff\xfe")
    (batch,) = scan(data).batches
    again = assemble(
        broken,
        base_offset=0,
        last_offset=0,
        leader_epoch=-1,
        attributes=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=batch.record_count,
    )
    (headers,) = table(again)["headers"].to_pylist()
    assert headers == [{"key": "��", "value": b"1"}, {"key": "zz", "value": None}]


def test_a_broken_record_names_its_batch() -> None:
    good = build_batch([(0, b"a", b"b", ())])
    bad = assemble(
        b"\x0c\x00\x00\x00\x08\x01\x00",
        base_offset=1,
        last_offset=1,
        leader_epoch=-1,
        attributes=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    with pytest.raises(CorruptRecordError, match="offset 1"):
        table(good + bad)


def test_no_other_module_of_the_room_loads_pyarrow() -> None:
    code = (
        "import sys, penstock.records.build, penstock.records.codecs, penstock.records.key_map, penstock.records.payload;"
        "sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
