"""The records of one batch as values, for people: dumps and proofs, not the hot path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import CorruptRecordError, InvalidRecordError
from penstock.records import codecs, payload
from penstock.records.batch import Batch, Codec
from penstock.storage.inspect.items import HeaderItem
from penstock.storage.inspect.walk import Found

_SEQUENCE_MODULUS = 1 << 31


class RecordView(NamedTuple):
    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderItem, ...]


def expanded(found: Found) -> memoryview:
    """The batch's payload, uncompressed. Raises what `codecs` raises."""
    codec = found.batch.codec
    if codec is Codec.NONE:
        return found.payload
    return memoryview(codecs.decompress(codec, found.payload))


def records_of(found: Found) -> Iterator[RecordView]:
    """Every record, in order. Raises a PenstockError before the first where the payload is not whole."""
    batch = found.batch
    if batch.record_count == 0:
        return
    data = bytes(expanded(found))
    rows = payload.columns(data, 0, len(data), batch.record_count)
    for index in range(batch.record_count):
        delta = rows.offset_delta[index]
        yield RecordView(
            batch.base_offset + delta,
            batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + rows.timestamp_delta[index],
            (batch.base_sequence + delta) % _SEQUENCE_MODULUS if batch.base_sequence >= 0 else -1,
            _field(data, rows.key_start[index], rows.key_length[index]),
            _field(data, rows.value_start[index], rows.value_length[index]),
            tuple(_headers(data, rows.headers_start[index], rows.headers_count[index])),
        )


def _field(data: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else data[start : start + length]


def _headers(data: bytes, at: int, count: int) -> Iterator[HeaderItem]:
    """The kernel has checked that they are all there."""
    for _ in range(count):
        length, at = _varint(data, at)
        key = data[at : at + length].decode(errors="backslashreplace")
        at += length
        length, at = _varint(data, at)
        yield HeaderItem(key=key, value=_field(data, at, length))
        at += max(length, 0)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def check_records(found: Found) -> None:
    """Raises a PenstockError where the payload does not hold what the batch's header says."""
    batch = found.batch
    if batch.record_count == 0:
        if len(found.payload):
            raise CorruptRecordError(f"the batch counts no records and has {len(found.payload)} bytes of them")
        return
    data = expanded(found)
    try:
        summary = payload.validate(data, 0, len(data), batch.record_count, base_timestamp=batch.base_timestamp)
    except InvalidRecordError as error:
        raise CorruptRecordError(str(error)) from None
    _check_summary(batch, summary)


def _check_summary(batch: Batch, summary: payload.RecordsSummary) -> None:
    last_delta = batch.last_offset - batch.base_offset
    if not summary.is_rising:
        raise CorruptRecordError("the offsets of the batch's records do not rise")
    if summary.last_offset_delta > last_delta:
        raise CorruptRecordError(
            f"its last record has offset {batch.base_offset + summary.last_offset_delta}, "
            f"its header says {batch.last_offset}"
        )
    if not batch.is_log_append_time and summary.max_timestamp > batch.max_timestamp:
        raise CorruptRecordError(
            f"a record has timestamp {summary.max_timestamp}, its header says {batch.max_timestamp} at most"
        )
