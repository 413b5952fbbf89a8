"""The records of one batch, uncompressed: check them, see them as columns, keep some of them.

A payload is bytes between a start and an end position of some buffer; nothing here copies it or makes an object for a
record. Broken bytes raise CorruptRecordError when they come from a log, InvalidRecordError (as Kafka
answers) when `validate` meets them in a client's batch.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError
from penstock.records import record_kernels
from penstock.records.batch import NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

RECORD_BYTES_MIN = 7
"""A null key, a null value, no headers: length, attributes, two deltas, two lengths, a count."""

_INT64_MAX = (1 << 63) - 1
_NO_MASK = b""

_REASONS = {
    -1: "a varint is cut off or does not fit its type",
    -2: "its length is negative, too small, or runs past the end of the batch",
    -3: "its key runs past its end",
    -4: "its value runs past its end",
    -5: "its headers are malformed",
    -6: "its fields do not fill its length",
    -7: "its timestamp does not fit 64 bits",
    -8: "the batch ends before it",
    -9: "bytes are left after the last record",
}


class RecordsSummary(NamedTuple):
    """What a validated payload holds.

    max_timestamp is -1 when no record has a timestamp, and so is the delta of the first record that has it;
    is_sequential: offset deltas are 0, 1, 2 …; is_rising: each delta is above the one before.
    """

    max_timestamp: int
    offset_delta_of_max_timestamp: int
    last_offset_delta: int
    tombstone_count: int
    is_sequential: bool
    is_rising: bool


class RecordColumns(NamedTuple):
    """One array a field, one item a record; starts are positions in the payload's buffer, a length of -1 is null."""

    offset_delta: memoryview
    timestamp_delta: memoryview
    key_start: memoryview
    key_length: memoryview
    value_start: memoryview
    value_length: memoryview
    headers_start: memoryview
    headers_count: memoryview


def validate(
    payload: ReadableBuffer,
    start: int,
    end: int,
    record_count: int,
    *,
    base_timestamp: int,
    now_ms: int = 0,
    before_max_ms: int = _INT64_MAX,
    after_max_ms: int = _INT64_MAX,
    require_keys: bool = False,
    sequential_offsets: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    claimed_append_time: int | None = None,
) -> RecordsSummary:
    """Checks every record of a client's batch as Kafka's broker does, and says what it holds.

    timestamp_type is the topic's; only CREATE_TIME checks timestamps. claimed_append_time is the max timestamp of a
    batch whose attributes claim LogAppendTime: it then stands for each record, and a LOG_APPEND_TIME topic refuses it.
    Gaps between offset deltas are allowed unless sequential_offsets (KAFKA-9080); Kafka rewrites a compressed
    batch whose deltas are not sequential (see renumber).
    """
    oldest_ms, newest_ms = -_INT64_MAX - 1, _INT64_MAX
    if timestamp_type == TimestampType.CREATE_TIME and claimed_append_time is None:
        oldest_ms = max(oldest_ms, now_ms - before_max_ms)
        newest_ms = min(newest_ms, now_ms + after_max_ms)
    (
        status,
        index,
        max_timestamp,
        delta_of_max,
        last_delta,
        keyless_count,
        untimely_count,
        tombstone_count,
        is_sequential,
        is_rising,
    ) = record_kernels.validate(payload, start, end, record_count, base_timestamp, oldest_ms, newest_ms)
    if status < 0:
        raise InvalidRecordError(f"record {index} of {record_count} is malformed: {_REASONS[status]}")
    if untimely_count or (require_keys and keyless_count):
        _refuse(payload, start, end, record_count, base_timestamp, oldest_ms, newest_ms, require_keys)
    if claimed_append_time is not None:
        _check_claim(claimed_append_time, timestamp_type, record_count, now_ms, before_max_ms, after_max_ms)
        max_timestamp, delta_of_max = claimed_append_time, 0
    if sequential_offsets and not is_sequential:
        raise InvalidRecordError("offset deltas of the batch's records are not 0, 1, 2 …")
    return RecordsSummary(max_timestamp, delta_of_max, last_delta, tombstone_count, is_sequential, is_rising)


def _refuse(
    payload: ReadableBuffer,
    start: int,
    end: int,
    record_count: int,
    base_timestamp: int,
    oldest_ms: int,
    newest_ms: int,
    require_keys: bool,
) -> None:
    """Raises with the index of each refused record (KIP-467); a missing key is named before a bad timestamp."""
    rows = columns(payload, start, end, record_count)
    errors: list[tuple[int, str]] = []
    any_untimely = False
    for index in range(record_count):
        timestamp = base_timestamp + rows.timestamp_delta[index]
        if require_keys and rows.key_length[index] < 0:
            errors.append((index, "a compacted topic takes no record without a key"))
        elif timestamp != NO_TIMESTAMP and not oldest_ms <= timestamp <= newest_ms:
            any_untimely = True
            errors.append((index, f"timestamp {timestamp} is outside [{oldest_ms}, {newest_ms}]"))
    if any_untimely:
        raise InvalidTimestampError(f"{len(errors)} records refused, some for their timestamp", tuple(errors))
    raise InvalidRecordError(
        f"{len(errors)} records refused: first, record {errors[0][0]}: {errors[0][1]}", tuple(errors)
    )


def _check_claim(
    claimed: int, timestamp_type: TimestampType, record_count: int, now_ms: int, before_max_ms: int, after_max_ms: int
) -> None:
    """A producer may not say LogAppendTime; to a CreateTime topic its one timestamp counts as every record's."""
    if timestamp_type == TimestampType.LOG_APPEND_TIME or claimed == NO_TIMESTAMP:
        message = "a producer may not set the timestamp type to LogAppendTime"
    elif not now_ms - before_max_ms <= claimed <= now_ms + after_max_ms:
        message = f"timestamp {claimed} is outside [{now_ms - before_max_ms}, {now_ms + after_max_ms}]"
    else:
        return
    raise InvalidTimestampError(message, tuple((index, message) for index in range(record_count)))


def columns(payload: ReadableBuffer, start: int, end: int, record_count: int) -> RecordColumns:
    """The payload's fields as arrays (`i`, timestamp_delta `q`); the bytes stay where they are."""
    if record_count < 0 or record_count * RECORD_BYTES_MIN > end - start:
        raise CorruptRecordError(f"{end - start} bytes cannot hold {record_count} records")
    deltas = array("q", bytes(8 * record_count))
    block = array("i", bytes(28 * record_count))
    status, index = record_kernels.columns(payload, start, end, record_count, deltas, block)
    if status < 0:
        raise _corrupt(status, index, record_count)
    n = record_count
    rows = memoryview(block)
    return RecordColumns(
        rows[:n],
        memoryview(deltas),
        rows[n : 2 * n],
        rows[2 * n : 3 * n],
        rows[3 * n : 4 * n],
        rows[4 * n : 5 * n],
        rows[5 * n : 6 * n],
        rows[6 * n :],
    )


def retain(
    payload: ReadableBuffer,
    start: int,
    end: int,
    record_count: int,
    keep: ReadableBuffer,
    timestamp_shift: int = 0,
) -> bytes:
    """The bytes of the records whose byte in `keep` is not 0, in order, with their offset deltas.

    timestamp_shift is added to each timestamp delta: the old base timestamp minus the new, when a delete
    horizon takes its place (KIP-534).
    """
    mask = memoryview(keep).cast("B")
    return _rewrite(payload, start, end, record_count, mask, False, timestamp_shift, False)


def renumber(payload: ReadableBuffer, start: int, end: int, record_count: int) -> bytes:
    """The same records with offset deltas 0, 1, 2 …"""
    return _rewrite(payload, start, end, record_count, _NO_MASK, True, 0, True)


def _rewrite(
    payload: ReadableBuffer,
    start: int,
    end: int,
    record_count: int,
    mask: ReadableBuffer,
    keep_all: bool,
    timestamp_shift: int,
    renumber: bool,
) -> bytes:
    if record_count < 0 or record_count * RECORD_BYTES_MIN > end - start:
        raise CorruptRecordError(f"{end - start} bytes cannot hold {record_count} records")
    out = bytearray(end - start + 16 * record_count)
    written, index = record_kernels.rewrite(
        payload, start, end, record_count, mask, keep_all, timestamp_shift, renumber, out
    )
    if written < 0:
        raise _corrupt(written, index, record_count)
    return bytes(memoryview(out)[:written])


def malformed(status: int) -> str:
    """A kernel's negative status in words."""
    return _REASONS[status]


def _corrupt(status: int, index: int, record_count: int) -> CorruptRecordError:
    return CorruptRecordError(f"record {index} of {record_count} is malformed: {_REASONS[status]}")
