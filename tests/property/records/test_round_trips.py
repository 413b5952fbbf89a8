"""What is built is read back; what is broken raises a declared error; what compaction keeps is what a dict keeps."""

from array import array
from contextlib import suppress
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tests.property.records.strategies import CODECS, FIELDS, RECORDS, TIMESTAMPS, broken, payloads

from penstock.base.errors import CorruptRecordError, InvalidRecordError, MessageTooLargeError
from penstock.records.arrow import to_arrow
from penstock.records.batch import Batch, Codec, Stop, TimestampType, assigned, records_slice, scan
from penstock.records.build import (
    BinaryColumn,
    HeadersColumn,
    Record,
    build_batch,
    build_batch_from_columns,
    encode_record,
    rebuild,
)
from penstock.records.codecs import compress, decompress
from penstock.records.key_map import KeyMap
from penstock.records.payload import columns, renumber, retain, validate

RECORD_LISTS = st.lists(RECORDS, min_size=1, max_size=8)
SEED = bytes(range(16))


def payload_of(data: bytes, batch: Batch) -> bytes:
    start, end = records_slice(batch)
    return bytes(decompress(batch.codec, data[start:end]))


def read_records(payload: bytes, count: int, base_timestamp: int) -> list[Record]:
    """The records as tuples, read by this test itself from the columns' positions."""
    rows = columns(payload, 0, len(payload), count)
    records: list[Record] = []
    for i in range(count):
        at = rows.headers_start[i]
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(rows.headers_count[i]):
            name, at = read_field(payload, at)
            content, at = read_field(payload, at)
            assert name is not None
            headers.append((name.decode(), content))
        key = slice_of(payload, rows.key_start[i], rows.key_length[i])
        value = slice_of(payload, rows.value_start[i], rows.value_length[i])
        records.append((base_timestamp + rows.timestamp_delta[i], key, value, headers))
    return records


def slice_of(payload: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else payload[start : start + length]


def read_field(payload: bytes, at: int) -> tuple[bytes | None, int]:
    raw = shift = 0
    while True:
        raw |= (payload[at] & 0x7F) << shift
        shift += 7
        at += 1
        if payload[at - 1] < 0x80:
            break
    length = (raw >> 1) ^ -(raw & 1)
    return slice_of(payload, at, length), at + max(0, length)


@given(RECORD_LISTS, CODECS, st.integers(0, 1 << 62))
def test_a_built_batch_is_read_back(records: list[Record], codec: Codec, base_offset: int) -> None:
    data = build_batch(records, codec=codec, base_offset=base_offset, leader_epoch=7)
    scanned = scan(data)
    (batch,) = scanned.batches
    assert scanned.stop == Stop.COMPLETE
    assert (batch.base_offset, batch.last_offset) == (base_offset, base_offset + len(records) - 1)
    assert (batch.codec, batch.leader_epoch, batch.record_count) == (codec, 7, len(records))
    payload = payload_of(data, batch)
    assert read_records(payload, len(records), batch.base_timestamp) == [(*r[:3], list(r[3])) for r in records]
    summary = validate(payload, 0, len(payload), len(records), base_timestamp=batch.base_timestamp)
    timestamps = [r[0] for r in records]
    assert summary.is_sequential
    assert summary.last_offset_delta == len(records) - 1
    assert summary.max_timestamp == max(-1, *timestamps) == batch.max_timestamp
    if max(timestamps) > -1:
        assert summary.offset_delta_of_max_timestamp == timestamps.index(max(timestamps))


@given(RECORD_LISTS, st.integers(0, 1 << 40), st.integers(-1, 99), st.integers(0, 1 << 42))
def test_a_patched_batch_is_still_good(records: list[Record], offset: int, epoch: int, now_ms: int) -> None:
    data = bytearray(b"before" + build_batch(records) + b"after")
    created = scan(data, 6, len(data) - 5).batches[0].max_timestamp
    assigned(data, 6, offset, epoch, TimestampType.CREATE_TIME, created)
    (batch,) = scan(data, 6, len(data) - 5).batches
    assert (batch.base_offset, batch.leader_epoch, batch.is_log_append_time) == (offset, epoch, False)
    assigned(data, 6, offset, epoch, TimestampType.LOG_APPEND_TIME, now_ms)
    (batch,) = scan(data, 6, len(data) - 5).batches
    assert (batch.is_log_append_time, batch.max_timestamp) == (True, now_ms)
    assigned(data, 6, offset, epoch, TimestampType.CREATE_TIME, 5)
    (batch,) = scan(data, 6, len(data) - 5).batches
    assert (batch.is_log_append_time, batch.max_timestamp) == (False, 5)
    assert (bytes(data[:6]), bytes(data[-5:])) == (b"before", b"after")


@given(broken(RECORD_LISTS.map(build_batch)))
def test_a_broken_batch_is_refused_or_the_same(data: bytes) -> None:
    scanned = scan(data)
    assert scanned.stop != Stop.COMPLETE or all(payload_of(data, batch) for batch in scanned.batches)
    assert scanned.end == sum(batch.size_bytes for batch in scanned.batches)


@given(payloads(), st.data())
def test_broken_records_raise_only_declared_errors(made: tuple[bytes, int], data: st.DataObject) -> None:
    payload, count = made
    payload = data.draw(broken(st.just(payload)))
    count = data.draw(st.one_of(st.just(count), st.integers(-1, 40), st.just((1 << 31) - 1)))
    keep = bytes([1]) * max(0, min(count, 1000))
    calls: list[Any] = [
        lambda: validate(payload, 0, len(payload), count, base_timestamp=0, require_keys=True),
        lambda: columns(payload, 0, len(payload), count),
        lambda: retain(payload, 0, len(payload), count, keep, 5),
        lambda: renumber(payload, 0, len(payload), count),
        lambda: KeyMap(4800, SEED).put_batch(payload, 0, len(payload), count, 0),
        lambda: KeyMap(4800, SEED).select(payload, 0, len(payload), count, 0, retain_tombstones=True),
    ]
    for call in calls:
        with suppress(CorruptRecordError, InvalidRecordError):
            call()


@given(payloads(), st.data(), st.integers(-(1 << 40), 1 << 40))
def test_retained_records_are_the_kept_ones(made: tuple[bytes, int], data: st.DataObject, shift: int) -> None:
    payload, count = made
    keep = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    kept = retain(payload, 0, len(payload), count, bytes(keep), shift)
    before, after = columns(payload, 0, len(payload), count), columns(kept, 0, len(kept), sum(keep))
    assert list(after.offset_delta) == [d for d, k in zip(before.offset_delta, keep, strict=True) if k]
    assert read_records(kept, sum(keep), -shift) == [
        record for record, k in zip(read_records(payload, count, 0), keep, strict=True) if k
    ]
    numbered = renumber(kept, 0, len(kept), sum(keep))
    assert list(columns(numbered, 0, len(numbered), sum(keep)).offset_delta) == list(range(sum(keep)))
    assert read_records(numbered, sum(keep), 0) == read_records(kept, sum(keep), 0)


@given(RECORD_LISTS, CODECS, CODECS)
def test_a_rebuilt_batch_keeps_its_offsets_and_producer(records: list[Record], old: Codec, new: Codec) -> None:
    data = build_batch(records, codec=old, base_offset=9, producer_id=4, producer_epoch=2, base_sequence=1)
    (batch,) = scan(data).batches
    payload = payload_of(data, batch)
    again = rebuild(batch, payload, record_count=len(records), codec=new)
    (rebuilt,) = scan(again).batches
    assert payload_of(again, rebuilt) == payload
    assert rebuilt.codec == new
    assert rebuilt._replace(size_bytes=0, crc=0, attributes=0) == batch._replace(size_bytes=0, crc=0, attributes=0)
    (empty,) = scan(rebuild(batch, b"", record_count=0)).batches
    assert (empty.last_offset, empty.last_sequence, empty.record_count) == (batch.last_offset, batch.last_sequence, 0)


@given(CODECS, st.one_of(st.binary(max_size=3000), st.integers(0, 200_000).map(bytes)))
def test_compressed_is_decompressed(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@given(CODECS, st.binary(max_size=400).map(lambda data: data * 3), st.data())
def test_broken_compression_raises_only_declared_errors(codec: Codec, content: bytes, data: st.DataObject) -> None:
    payload = data.draw(broken(st.just(compress(codec, content))))
    with suppress(CorruptRecordError, MessageTooLargeError):
        decompress(codec, payload, bytes_max=1 << 20)


KEYED = st.tuples(st.sampled_from([b"", b"a", b"b", b"cc", b"0123456789"]), st.one_of(st.none(), st.just(b"v")))


@given(st.lists(st.lists(KEYED, min_size=1, max_size=6), max_size=6), st.booleans())
def test_compaction_keeps_what_a_dictionary_keeps(
    batches: list[list[tuple[bytes, bytes | None]]], retain_tombstones: bool
) -> None:
    newest: dict[bytes, int] = {}
    key_map = KeyMap(240, SEED)
    payloads_: list[tuple[int, bytes]] = []
    offset = 0
    for batch in batches:
        payload = b"".join(encode_record(i, 0, key, value) for i, (key, value) in enumerate(batch))
        assert key_map.put_batch(payload, 0, len(payload), len(batch), offset) == len(batch)
        newest |= {key: offset + i for i, (key, _) in enumerate(batch)}
        payloads_.append((offset, payload))
        offset += len(batch)
    assert key_map.size == len(newest)
    assert {key: key_map.latest(key) for key in newest} == newest
    assert key_map.latest(b"never put") == -1
    for (base, payload), batch in zip(payloads_, batches, strict=True):
        chosen = key_map.select(payload, 0, len(payload), len(batch), base, retain_tombstones=retain_tombstones)
        want = [
            newest[key] == base + i and (value is not None or retain_tombstones) for i, (key, value) in enumerate(batch)
        ]
        assert list(chosen.keep) == want
        assert chosen.kept_count == sum(want)


@given(st.lists(st.tuples(RECORD_LISTS, CODECS), max_size=4), st.integers(0, 20), st.integers(0, 30))
def test_arrow_rows_are_the_records(batches: list[tuple[list[Record], Codec]], first: int, length: int) -> None:
    data = b""
    want: list[dict[str, object]] = []
    offset = 0
    for records, codec in batches:
        data += build_batch(records, codec=codec, base_offset=offset)
        for timestamp, key, value, headers in records:
            pairs = [{"key": name, "value": content} for name, content in headers]
            row: dict[str, object] = {
                "key": key,
                "value": value,
                "offset": offset,
                "timestamp": timestamp * 1000,
                "headers": pairs or None,
            }
            want.append(row | {"timestampType": 0})
            offset += 1
    rows: list[dict[str, object]] = []
    for record_batch in to_arrow(
        data, scan(data).batches, from_offset=first, to_offset=first + length, group_bytes=500
    ):
        record_batch.validate(full=True)
        plain = record_batch.set_column(3, "timestamp", record_batch["timestamp"].cast(pa.int64()))
        rows += plain.to_pylist()
    assert rows == want[first : first + length]


@given(st.lists(st.tuples(TIMESTAMPS, FIELDS, FIELDS, RECORDS.map(lambda r: r[3])), min_size=1, max_size=9), st.data())
def test_columns_build_the_same_batch_as_records(records: list[Record], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(records) - 1))
    count = data.draw(st.integers(1, len(records) - first))
    headers = [header for record in records for header in record[3]]
    list_ends = array("i", [0])
    for record in records:
        list_ends.append(list_ends[-1] + len(record[3]))
    built = build_batch_from_columns(
        array("q", [record[0] for record in records]),
        binary_column([record[1] for record in records]),
        binary_column([record[2] for record in records]),
        HeadersColumn(
            list_ends,
            binary_column([name.encode() for name, _ in headers]),
            binary_column([content for _, content in headers]),
        ),
        first=first,
        count=count,
        base_offset=5,
    )
    assert built == build_batch(records[first : first + count], base_offset=5)


def binary_column(items: list[bytes | None]) -> BinaryColumn:
    ends = array("i", [0])
    valid = bytearray(len(items) // 8 + 1)
    for index, item in enumerate(items):
        ends.append(ends[-1] + len(item or b""))
        valid[index >> 3] |= (item is not None) << (index & 7)
    return BinaryColumn(ends, b"".join(item or b"" for item in items), valid)
