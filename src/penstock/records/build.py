"""Making batches: from a few records, from column buffers, from another batch with a new payload, and end markers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from penstock.base.errors import CorruptRecordError, MessageTooLargeError
from penstock.records import build_kernels, kernels
from penstock.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Batch,
    Codec,
    TimestampType,
    attributes_of,
)
from penstock.records.codecs import compress
from penstock.records.payload import columns

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Header: TypeAlias = tuple[str, bytes | None]
Record: TypeAlias = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""(timestamp in ms, key, value, headers), for tests, tools and small writers."""


_BATCH_BYTES_MAX = (1 << 31) - 1
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


class ControlType(IntEnum):
    """What a control record says; a type unknown here is to be passed over (KIP-98)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    level: int | None = None,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
) -> bytes:
    """One batch of these records; offsets are consecutive from base_offset unless given (rising, as after compaction).

    With LOG_APPEND_TIME the greatest timestamp stands for all. A batch may be empty if last_offset is given.
    """
    body = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count = 0
    for timestamp, key, value, headers in records:
        if count == 0:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        offset_delta = count if offsets is None else offsets[count] - base_offset
        body += encode_record(offset_delta, timestamp - base_timestamp, key, value, headers)
        count += 1
    if last_offset is None:
        last_offset = base_offset + count - 1 if offsets is None else offsets[-1]
    assert last_offset >= base_offset, "an empty batch needs its last_offset"
    return assemble(
        body if codec == Codec.NONE else compress(codec, body, level),
        base_offset=base_offset,
        last_offset=last_offset,
        leader_epoch=leader_epoch,
        attributes=attributes_of(codec, timestamp_type, transactional=transactional, control=control),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


class BinaryColumn(NamedTuple):
    """A column of byte strings as Arrow lays it out: int32 ends (one more than items), data, bitmap of what is not null.

    An empty bitmap means no nulls, empty ends mean that every item is null.
    """

    ends: ReadableBuffer
    data: ReadableBuffer
    valid: ReadableBuffer = b""


class HeadersColumn(NamedTuple):
    """Each row's headers: int32 ends of the rows' lists, then the names (no nulls) and contents of all headers."""

    ends: ReadableBuffer
    names: BinaryColumn
    contents: BinaryColumn


NULLS = BinaryColumn(b"", b"")
NO_HEADERS = HeadersColumn(b"", NULLS, NULLS)


def build_batch_from_columns(
    timestamps: ReadableBuffer,
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: HeadersColumn = NO_HEADERS,
    *,
    first: int,
    count: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    level: int | None = None,
) -> bytes:
    """One batch of the rows [first, first + count) of these columns; timestamps are int64 milliseconds.

    Makes no object for a record. Columns whose ends or bitmap do not fit their data are an IndexError.
    """
    buffers = _buffers(timestamps, keys, values, headers)
    payload_bytes, max_timestamp = build_kernels.size(first, count, *buffers)
    if HEADER_BYTES + payload_bytes > _BATCH_BYTES_MAX:
        raise MessageTooLargeError(f"{count} records take {payload_bytes} bytes, more than a batch can hold")
    out = bytearray(HEADER_BYTES + payload_bytes)
    build_kernels.encode(first, count, *buffers, out, HEADER_BYTES)
    if codec != Codec.NONE:
        out[HEADER_BYTES:] = compress(codec, memoryview(out)[HEADER_BYTES:], level)
    kernels.write_header(
        out,
        0,
        len(out),
        base_offset,
        leader_epoch,
        attributes_of(codec, transactional=transactional),
        count - 1,
        buffers[0][first],
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return bytes(out)


_Buffers: TypeAlias = tuple[
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
    memoryview,
]


def size_from_columns(
    timestamps: ReadableBuffer,
    keys: BinaryColumn,
    values: BinaryColumn,
    headers: HeadersColumn = NO_HEADERS,
    *,
    first: int,
    count: int,
) -> int:
    """How many bytes the batch of these rows would have, uncompressed."""
    return HEADER_BYTES + build_kernels.size(first, count, *_buffers(timestamps, keys, values, headers))[0]


def _buffers(timestamps: ReadableBuffer, keys: BinaryColumn, values: BinaryColumn, headers: HeadersColumn) -> _Buffers:
    return (
        _numbers(timestamps, "q"),
        _numbers(keys.ends, "i"),
        _numbers(keys.data, "B"),
        _numbers(keys.valid, "B"),
        _numbers(values.ends, "i"),
        _numbers(values.data, "B"),
        _numbers(values.valid, "B"),
        _numbers(headers.ends, "i"),
        _numbers(headers.names.ends, "i"),
        _numbers(headers.names.data, "B"),
        _numbers(headers.contents.ends, "i"),
        _numbers(headers.contents.data, "B"),
        _numbers(headers.contents.valid, "B"),
    )


def _numbers(buffer: ReadableBuffer, kind: Literal["B", "i", "q"]) -> memoryview:
    return memoryview(buffer).cast("B").cast(kind)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: ReadableBuffer | None,
    value: ReadableBuffer | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """One record's bytes, its length first."""
    body = bytearray(1)
    body += encode_varint(timestamp_delta)
    body += encode_varint(offset_delta)
    _put_field(body, key)
    _put_field(body, value)
    body += encode_varint(len(headers))
    for name, content in headers:
        _put_field(body, name.encode())
        _put_field(body, content)
    return encode_varint(len(body)) + bytes(body)


def _put_field(body: bytearray, field: ReadableBuffer | None) -> None:
    if field is None:
        body += b"\x01"  # -1
    else:
        view = memoryview(field).cast("B")
        body += encode_varint(len(view))
        body += view


def encode_varint(value: int) -> bytes:
    """Zig-zag, seven bits a byte, low groups first."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return _ONE_BYTE[raw]
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def assemble(
    payload: ReadableBuffer,
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """A batch from its header's fields and its payload as it will stand (compressed, if the attributes say so)."""
    view = memoryview(payload).cast("B")
    out = bytearray(HEADER_BYTES + len(view))
    out[HEADER_BYTES:] = view
    kernels.write_header(
        out,
        0,
        len(out),
        base_offset,
        leader_epoch,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return bytes(out)


def rebuild(
    batch: Batch,
    payload: ReadableBuffer,
    *,
    record_count: int,
    max_timestamp: int | None = None,
    codec: Codec | None = None,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """The batch with another uncompressed payload: after compaction, or to change its codec (default: the same).

    Offsets, epochs, producer fields and flags stay. With a new delete horizon the caller has already shifted
    the payload's timestamp deltas (payload.retain); without records the payload is not compressed.
    """
    codec = batch.codec if codec is None else codec
    if record_count == 0:
        codec = Codec.NONE
    attributes = batch.attributes & ~CODEC_MASK | codec
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    return assemble(
        payload if codec == Codec.NONE else compress(codec, payload, level),
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        attributes=attributes,
        base_timestamp=batch.base_timestamp if delete_horizon_ms is None else delete_horizon_ms,
        max_timestamp=batch.max_timestamp if max_timestamp is None else max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        record_count=record_count,
    )


def build_end_marker(
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a transaction: key (version 0, type), value (version 0, coordinator epoch)."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    key = struct.pack(">hh", 0, control_type)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return build_batch(
        [(timestamp_ms, key, value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control(payload: ReadableBuffer, start: int, end: int) -> tuple[int, int]:
    """(version, type) of the control record in a control batch's payload, which holds exactly one."""
    key, _ = _control_fields(payload, start, end)
    if len(key) < 4:
        raise CorruptRecordError(f"a control record's key has 4 bytes, not {len(key)}")
    version, control_type = struct.unpack_from(">hh", key)
    if version < 0:
        raise CorruptRecordError(f"control record of version {version}")
    return version, control_type


def read_end_marker(payload: ReadableBuffer, start: int, end: int) -> tuple[ControlType, int]:
    """(COMMIT or ABORT, coordinator epoch) of an end marker's payload."""
    _, control_type = read_control(payload, start, end)
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        raise CorruptRecordError(f"control record of type {control_type} ends no transaction")
    _, value = _control_fields(payload, start, end)
    if len(value) < 6:
        raise CorruptRecordError(f"an end marker's value has 6 bytes, not {len(value)}")
    version, coordinator_epoch = struct.unpack_from(">hi", value)
    if version < 0:
        raise CorruptRecordError(f"end marker of version {version}")
    return ControlType(control_type), coordinator_epoch


def _control_fields(payload: ReadableBuffer, start: int, end: int) -> tuple[memoryview, memoryview]:
    rows = columns(payload, start, end, 1)
    view = memoryview(payload).cast("B")
    key_start, key_length = rows.key_start[0], rows.key_length[0]
    value_start, value_length = rows.value_start[0], rows.value_length[0]
    return view[key_start : key_start + max(0, key_length)], view[value_start : value_start + max(0, value_length)]
