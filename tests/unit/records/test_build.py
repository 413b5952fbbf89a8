"""Batches made from records, columns and other batches, and control batches, against bytes written out by hand."""

from array import array

import pytest

from penstock.base.errors import CorruptRecordError
from penstock.records.batch import Codec, Stop, TimestampType, records_slice, scan
from penstock.records.build import (
    NULLS,
    BinaryColumn,
    ControlType,
    HeadersColumn,
    build_batch,
    build_batch_from_columns,
    build_end_marker,
    encode_varint,
    read_control,
    read_end_marker,
    rebuild,
)
from penstock.records.payload import columns, retain


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_varints(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_a_batch_with_gaps_and_an_empty_one_keep_their_ranges() -> None:
    data = build_batch([(5, b"a", b"1", ()), (6, b"b", b"2", ())], base_offset=10, offsets=[12, 17], last_offset=19)
    data += build_batch([], base_offset=20, last_offset=24, producer_id=3, producer_epoch=0, base_sequence=8)
    first, empty = scan(data).batches
    assert (first.base_offset, first.last_offset, first.record_count) == (10, 19, 2)
    assert list(columns(data, *records_slice(first), 2).offset_delta) == [2, 7]
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (20, 24, 0)
    assert empty.last_sequence == 12


def test_log_append_time_stands_in_the_header() -> None:
    (batch,) = scan(build_batch([(5, None, b"v", ())], timestamp_type=TimestampType.LOG_APPEND_TIME)).batches
    assert batch.timestamp_type == TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(("commit", "control_type"), [(True, ControlType.COMMIT), (False, ControlType.ABORT)])
def test_an_end_marker_is_kafkas(commit: bool, control_type: ControlType) -> None:
    data = build_end_marker(commit, 77, 5, 9, 1_700_000_000_000, base_offset=100, leader_epoch=2)
    (batch,) = scan(data).batches
    assert (batch.is_control, batch.is_transactional, batch.record_count) == (True, True, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 5, -1)
    assert data[61:].hex() == f"20000000080000000{int(control_type)}0c00000000000900"
    assert read_control(data, *records_slice(batch)) == (0, control_type)
    assert read_end_marker(data, *records_slice(batch)) == (control_type, 9)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_control_record_without_a_proper_key_is_corrupt(key: bytes | None) -> None:
    data = build_batch([(0, key, b"\0" * 6, ())], control=True)
    with pytest.raises(CorruptRecordError):
        read_control(data, 61, len(data))


def test_a_marker_of_another_type_is_read_but_ends_no_transaction() -> None:
    data = build_batch([(0, b"\0\0\0\2", b"\0" * 6, ())], control=True)
    assert read_control(data, 61, len(data)) == (0, ControlType.LEADER_CHANGE)
    with pytest.raises(CorruptRecordError):
        read_end_marker(data, 61, len(data))
    short = build_batch([(0, b"\0\0\0\1", b"\0" * 5, ())], control=True)
    with pytest.raises(CorruptRecordError):
        read_end_marker(short, 61, len(short))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_delete_horizon_takes_the_base_timestamps_place(codec: Codec) -> None:
    # KIP-534
    data = build_batch([(1000, b"a", None, ()), (1007, b"b", b"2", ())], transactional=True)
    (batch,) = scan(data).batches
    horizon_ms = 5_000_000
    payload = retain(data, *records_slice(batch), 2, b"\1\1", batch.base_timestamp - horizon_ms)
    again = rebuild(batch, payload, record_count=2, delete_horizon_ms=horizon_ms, codec=codec)
    scanned = scan(again)
    (rebuilt,) = scanned.batches
    assert scanned.stop == Stop.COMPLETE
    assert (rebuilt.delete_horizon_ms, rebuilt.max_timestamp, rebuilt.is_transactional) == (horizon_ms, 1007, True)
    deltas = columns(payload, 0, len(payload), 2).timestamp_delta
    assert [rebuilt.base_timestamp + delta for delta in deltas] == [1000, 1007]


def test_an_emptied_batch_is_not_compressed() -> None:
    (batch,) = scan(build_batch([(1, b"a", b"b", ())] * 9, codec=Codec.ZSTD)).batches
    (empty,) = scan(rebuild(batch, b"", record_count=0)).batches
    assert (empty.codec, empty.size_bytes, empty.last_offset) == (Codec.NONE, 61, 8)


def test_columns_without_keys_make_null_keys() -> None:
    values = BinaryColumn(array("i", [0, 1, 3]), b"abc")
    built = build_batch_from_columns(array("q", [7, 9]), NULLS, values, first=0, count=2, codec=Codec.GZIP)
    assert built == build_batch([(7, None, b"a", ()), (9, None, b"bc", ())], codec=Codec.GZIP)


@pytest.mark.parametrize(
    "values",
    [
        BinaryColumn(array("i", [0, 1]), b"abc"),  # too few ends
        BinaryColumn(array("i", [0, 1, 4]), b"abc"),  # beyond the data
        BinaryColumn(array("i", [0, 2, 1]), b"abc"),  # falling
        BinaryColumn(array("i", [-1, 1, 2]), b"abc"),
    ],
)
def test_unsound_columns_are_refused_before_they_are_read(values: BinaryColumn) -> None:
    timestamps = array("q", [1, 2])
    with pytest.raises(IndexError):
        build_batch_from_columns(timestamps, NULLS, values, first=0, count=2)
    headers = HeadersColumn(array("i", [0, 1, 2]), values, values)
    with pytest.raises(IndexError):
        build_batch_from_columns(timestamps, NULLS, NULLS, headers, first=0, count=2)


def test_rows_and_timestamps_out_of_bounds_are_refused() -> None:
    for first, count in ((0, 3), (-1, 1), (2, 1), (0, 0)):
        with pytest.raises(IndexError):
            build_batch_from_columns(array("q", [1, 2]), NULLS, NULLS, first=first, count=count)
    with pytest.raises(IndexError):
        build_batch_from_columns(array("q", [-(1 << 63), (1 << 63) - 1]), NULLS, NULLS, first=0, count=2)
