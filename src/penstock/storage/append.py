"""What happens to a client's or a leader's bytes before they are written (rows S3 to S5). Pure: bytes in, bytes out.

`prepare_leader` is safe on any thread: a driver runs it off the loop where `is_heavy` says so (recompression), and gives
the result to the log in the order of arrival.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.config import LONG_MAX
from penstock.base.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageTooLargeError,
    OffsetsOutOfOrderError,
    UnsupportedForMessageFormatError,
)
from penstock.base.files import ReadableBuffer
from penstock.records import codecs, payload
from penstock.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    STOP_SENTENCES,
    TIMESTAMP_TYPE_BIT,
    Batch,
    Codec,
    Scan,
    Stop,
    TimestampType,
    read_header,
    records_slice,
    scan,
)
from penstock.records.build import rebuild
from penstock.records.produce_kernels import plain_batches
from penstock.storage.config import LogConfig
from penstock.storage.producer_state import Origin
from penstock.storage.segment import RELATIVE_OFFSET_MAX

_LONG_MIN = -(2**63)


class Prepared(NamedTuple):
    """Batches that a log can take: `data` is writable for a leader, which still sets offsets, epoch and append time."""

    data: memoryview
    batches: list[Batch]
    max_timestamps: list[int]
    """Each batch's true largest timestamp, as its records have it."""
    config: LogConfig | None = None
    """What a leader's bytes were judged by; a follower's are not."""


def stop_error(found: Scan) -> CorruptRecordError | UnsupportedForMessageFormatError:
    """The error for bytes that end in something other than a whole batch."""
    if found.stop is Stop.OLD_MAGIC:
        return UnsupportedForMessageFormatError("record formats 0 and 1 are not supported; convert them with Kafka 3.x")
    return CorruptRecordError(f"{STOP_SENTENCES[found.stop]} (at byte {found.end})")


def is_heavy(records: ReadableBuffer, config: LogConfig) -> bool:
    """Whether preparing these bytes means recompressing them, which has no place on an event loop."""
    if config.codec is None or len(records) < HEADER_BYTES:
        return False
    return read_header(records).attributes & 7 != config.codec


def prepare_leader(records: ReadableBuffer, config: LogConfig, origin: Origin, now_ms: int) -> Prepared:
    """Checks a produced set of batches, whole, and recompresses it where the topic asks. Raises; keeps nothing."""
    oldest_ms, newest_ms = timestamp_bounds(config, now_ms)
    if not config.codec:
        bytes_max, is_client = config.max_message_bytes, origin is Origin.CLIENT
        plain = plain_batches(records, oldest_ms, newest_ms, bytes_max, config.compact, is_client, Batch)
        if plain is not None:
            return Prepared(_writable(records), *plain, config)
    return _prepare_with_care(records, config, origin, now_ms)


def timestamp_bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """The oldest and the newest timestamp that a record may have."""
    if config.log_append_time:
        return _LONG_MIN, LONG_MAX
    newest_ms = now_ms + config.timestamp_after_max_ms
    return max(now_ms - config.timestamp_before_max_ms, _LONG_MIN), newest_ms if newest_ms < LONG_MAX else LONG_MAX


def _writable(records: ReadableBuffer) -> memoryview:
    return records if type(records) is memoryview and not records.readonly else memoryview(bytearray(records))


def _prepare_with_care(records: ReadableBuffer, config: LogConfig, origin: Origin, now_ms: int) -> Prepared:
    """The same for what is compressed, or must be, or is not as it should be: written anew only where it has to be."""
    found = scan(records)
    batches, _, stop = found
    if stop is not Stop.COMPLETE:
        raise stop_error(found)
    if len(batches) != 1:
        if not batches:
            raise CorruptRecordError("there is no batch to append")
        if origin is Origin.CLIENT:
            raise InvalidRecordError(f"a produce request has one batch a partition, this one has {len(batches)}")
    data = _writable(records)
    max_timestamps = []
    parts: list[ReadableBuffer] = []
    rewritten = False
    for batch in batches:
        _check_batch(batch, config, origin)
        codec = batch.codec
        start, end = records_slice(batch)
        body: ReadableBuffer = data
        if codec is not Codec.NONE:
            body = codecs.decompress(codec, data[start:end])
            start, end = 0, len(body)
        summary = _validate(batch, body, start, end, config, now_ms)
        max_timestamps.append(summary.max_timestamp)
        target = codec if config.codec is None or batch.is_control else config.codec
        if target is codec and (codec is Codec.NONE or summary.is_sequential):
            parts.append(data[batch.position : batch.end_position])
            continue
        rewritten = True
        fresh = body[start:end] if summary.is_sequential else payload.renumber(body, start, end, batch.record_count)
        level = config.codec_level if target is config.codec else None
        parts.append(rebuild(batch, fresh, record_count=batch.record_count, codec=target, level=level))
    if not rewritten:
        return Prepared(data, batches, max_timestamps, config)
    joined = bytearray().join(parts)
    batches = scan(joined, check_crc=False).batches
    for batch in batches:
        _check_size(batch, config)
    return Prepared(memoryview(joined), batches, max_timestamps, config)


def _check_batch(batch: Batch, config: LogConfig, origin: Origin) -> None:
    _, size_bytes, base_offset, last_offset, _, _, _, attributes, _, _, producer_id, _, sequence, count = batch
    if size_bytes > config.max_message_bytes:
        _check_size(batch, config)
    if origin is not Origin.CLIENT:
        return
    if base_offset != 0:
        raise InvalidRecordError(f"a produced batch starts at offset 0, this one at {base_offset}")
    if count <= 0 or last_offset + 1 != count:
        raise InvalidRecordError(f"a batch of {count} records spans offsets {base_offset} to {last_offset}")
    if attributes & CONTROL_BIT:
        raise InvalidRecordError("clients may not write control records")
    if producer_id >= 0 and sequence < 0:
        raise InvalidRecordError(f"producer {producer_id} sent sequence {sequence}")


def _check_size(batch: Batch, config: LogConfig) -> None:
    if batch.size_bytes > config.max_message_bytes:
        raise MessageTooLargeError(
            f"a batch of {batch.size_bytes} bytes is larger than max.message.bytes={config.max_message_bytes}"
        )


def _validate(
    batch: Batch, body: ReadableBuffer, start: int, end: int, config: LogConfig, now_ms: int
) -> payload.RecordsSummary:
    return payload.validate(
        body,
        start,
        end,
        batch.record_count,
        base_timestamp=batch.base_timestamp,
        now_ms=now_ms,
        before_max_ms=config.timestamp_before_max_ms,
        after_max_ms=config.timestamp_after_max_ms,
        require_keys=config.compact and not batch.attributes & CONTROL_BIT,
        sequential_offsets=not batch.attributes & CODEC_MASK,
        timestamp_type=TimestampType.LOG_APPEND_TIME if config.log_append_time else TimestampType.CREATE_TIME,
        claimed_append_time=batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else None,
    )


def prepare_follower(records: ReadableBuffer, end_offset: int) -> Prepared:
    """Takes a leader's bytes as they are: the whole batches at their head, whose offsets must rise from the log's end."""
    found = scan(records)
    if not found.batches:
        if found.stop in (Stop.COMPLETE, Stop.INCOMPLETE):
            return Prepared(memoryview(bytearray()), [], [])
        raise stop_error(found)
    expected = end_offset
    end, batches = found.end, found.batches
    for slot, batch in enumerate(found.batches):
        if batch.last_offset - found.batches[0].base_offset > RELATIVE_OFFSET_MAX:
            end, batches = (
                batch.position,
                found.batches[:slot],
            )  # no one segment can hold both: the next fetch has the rest
            break
        if batch.record_count > batch.last_offset - batch.base_offset + 1:
            raise CorruptRecordError(
                f"a batch counts {batch.record_count} records from offset {batch.base_offset} to {batch.last_offset}"
            )
        if batch.base_offset < expected:
            raise OffsetsOutOfOrderError(
                f"a batch starts at offset {batch.base_offset}; the log's end is {expected}"
                if batch is found.batches[0]
                else f"a batch at offset {batch.base_offset} follows one that ends at {expected - 1}"
            )
        expected = batch.last_offset + 1
    return Prepared(memoryview(records)[:end], batches, [batch.max_timestamp for batch in batches])
