"""Batches to Arrow columns: the only module of the broker's rooms that imports pyarrow, and no broker imports it.

Columns: key, value (binary), offset, timestamp (microseconds, UTC), timestampType (0 CreateTime, 1 LogAppendTime),
headers (null without any, as Spark's Kafka source has it). Control batches are left out. A kernel copies each
key and value once, from the batch (or its decompressed payload) into Arrow's buffers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.base.errors import CorruptRecordError
from penstock.records import arrow_kernels
from penstock.records.batch import Batch, Codec, records_slice
from penstock.records.codecs import decompress
from penstock.records.payload import RECORD_BYTES_MIN, malformed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

GROUP_BYTES = 32 * 1024 * 1024
"""Uncompressed payload that one record batch is made from, unless a single batch is larger."""

GROUP_FIELDS = 7
INT64_MAX = (1 << 63) - 1

HEADER_TYPE = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(pa.field("element", HEADER_TYPE, nullable=False))),
    ]
)


def to_arrow(
    data: ReadableBuffer,
    batches: Iterable[Batch],
    *,
    from_offset: int = 0,
    to_offset: int = INT64_MAX,
    time_ms_min: int | None = None,
    time_ms_max: int | None = None,
    group_bytes: int = GROUP_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of these batches of `data` with offsets in [from_offset, to_offset), some batches at a time.

    With times, only the records of [time_ms_min, time_ms_max]; a batch that is older altogether is not even decompressed.

    The caller has checked the CRCs and left out the batches of aborted transactions, if it wants them out.
    """
    bounds = array("q", (from_offset, to_offset, _micros(time_ms_min, -INT64_MAX), _micros(time_ms_max, INT64_MAX)))
    group = _Group(bounds)
    for batch in batches:
        if batch.is_control or batch.last_offset < from_offset or batch.base_offset >= to_offset:
            continue
        if time_ms_min is not None and batch.max_timestamp < time_ms_min:
            continue
        group.add(data, batch)
        if group.payload_bytes >= group_bytes:
            yield group.to_record_batch()
            group = _Group(bounds)
    if group.row_count_max:
        yield group.to_record_batch()


def _micros(time_ms: int | None, default: int) -> int:
    return default if time_ms is None else max(-INT64_MAX, min(1000 * time_ms, INT64_MAX))


class _Group:
    """Payloads that become one record batch: the buffer itself for uncompressed batches, a copy for each other."""

    def __init__(self, bounds: array[int]) -> None:
        self.row_count_max = 0
        self.payload_bytes = 0
        self._bounds = bounds
        self._parts: list[tuple[ReadableBuffer, array[int]]] = []

    def add(self, data: ReadableBuffer, batch: Batch) -> None:
        start, end = records_slice(batch)
        payload = data
        if batch.codec != Codec.NONE:
            payload = decompress(batch.codec, memoryview(data)[start:end])
            start, end = 0, len(payload)
        if batch.record_count * RECORD_BYTES_MIN > end - start:
            raise CorruptRecordError(
                f"batch at offset {batch.base_offset}: {batch.record_count} records in {end - start} bytes"
            )
        if not self._parts or self._parts[-1][0] is not payload:
            self._parts.append((payload, array("q")))
        self._parts[-1][1].extend(
            (
                start,
                end,
                batch.record_count,
                batch.base_offset,
                batch.base_timestamp,
                int(batch.is_log_append_time),
                batch.max_timestamp,
            )
        )
        self.row_count_max += batch.record_count
        self.payload_bytes += end - start

    def to_record_batch(self) -> pa.RecordBatch:
        rows_max = self.row_count_max
        offsets, timestamps, types = _buffer(8 * rows_max), _buffer(8 * rows_max), _buffer(4 * rows_max)
        keys, values = _Binary(rows_max, self.payload_bytes), _Binary(rows_max, self.payload_bytes)
        state = array("q", bytes(72))
        for payload, group in self._parts:
            status, index = arrow_kernels.fill(
                payload,
                group,
                self._bounds,
                memoryview(offsets).cast("q"),
                memoryview(timestamps).cast("q"),
                memoryview(types).cast("i"),
                *keys.views(),
                *values.views(),
                state,
            )
            if status < 0:
                base_offset = group[GROUP_FIELDS * index + 3]
                raise CorruptRecordError(f"batch at offset {base_offset}: a record is malformed: {malformed(status)}")
        rows, key_bytes, value_bytes, null_keys, null_values, header_count = state[:6]
        return pa.RecordBatch.from_arrays(
            [
                keys.to_array(pa.binary(), rows, key_bytes, null_keys),
                values.to_array(pa.binary(), rows, value_bytes, null_values),
                pa.Array.from_buffers(pa.int64(), rows, [None, offsets], 0),
                pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, timestamps], 0),
                pa.Array.from_buffers(pa.int32(), rows, [None, types], 0),
                self._headers(rows, header_count, state)
                if header_count
                else pa.nulls(rows, SCHEMA.field("headers").type),
            ],
            schema=SCHEMA,
        )

    def _headers(self, rows: int, header_count: int, state: array[int]) -> pa.Array:
        list_ends, list_valid = _zeroed(4 * (rows + 1)), _zeroed(rows // 8 + 1)
        keys, values = _Binary(header_count, self.payload_bytes), _Binary(header_count, self.payload_bytes)
        key_ends, key_data, _ = keys.views()
        row = header = 0
        for payload, group in self._parts:
            row, header = arrow_kernels.fill_headers(
                payload,
                group,
                self._bounds,
                row,
                header,
                memoryview(list_ends).cast("i"),
                memoryview(list_valid).cast("B"),
                key_ends,
                key_data,
                *values.views(),
                state,
            )
        pairs = pa.StructArray.from_arrays(
            [
                _text(keys.to_array(pa.binary(), header, state[6], 0)),
                values.to_array(pa.binary(), header, state[7], state[8]),
            ],
            fields=list(HEADER_TYPE),
        )
        return pa.Array.from_buffers(SCHEMA.field("headers").type, rows, [list_valid, list_ends], children=[pairs])


class _Binary:
    """The three buffers of a binary column, for at most `rows` items of at most `data_bytes` together."""

    def __init__(self, rows: int, data_bytes: int) -> None:
        self._ends = _zeroed(4 * (rows + 1))
        self._data = _buffer(data_bytes)
        self._valid = _zeroed(rows // 8 + 1)

    def views(self) -> tuple[memoryview, memoryview, memoryview]:
        return memoryview(self._ends).cast("i"), memoryview(self._data).cast("B"), memoryview(self._valid).cast("B")

    def to_array(self, column_type: pa.DataType, rows: int, data_bytes: int, nulls: int) -> pa.Array:
        buffers = [self._valid if nulls else None, self._ends, self._data.slice(0, data_bytes)]
        return pa.Array.from_buffers(column_type, rows, buffers, nulls)


def _text(names: pa.Array) -> pa.Array:
    """Header names as text; bytes that are not UTF-8 become U+FFFD, as Kafka's Java client reads them."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.as_py().decode(errors="replace") for name in names], pa.string())


def _buffer(size: int) -> pa.Buffer:
    return pa.allocate_buffer(max(size, 8))


def _zeroed(size: int) -> pa.Buffer:
    return pa.py_buffer(bytearray(size))
