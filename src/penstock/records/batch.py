"""Record batch v2: the 61-byte header as a value, scanning many, patching one in place.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records

All big-endian; length counts what follows it; the CRC-32C covers attributes to the end, so a broker may set
offset and leader epoch without it. The header is never compressed, the records may be.

Attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon (KIP-534).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import UnsupportedCompressionTypeError
from penstock.records import kernels

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

HEADER_BYTES = 61
LOG_OVERHEAD = 12
MAGIC = 2

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_SEQUENCE_MODULUS = 1 << 31


class Codec(IntEnum):
    """How a payload is compressed; the numbers stand in attribute bits 0-2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who set the timestamps: the producer, or the broker when it appended (then max_timestamp is every record's)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Stop(IntEnum):
    """Why a scan ended; the numbers are the kernel's."""

    COMPLETE = 0  # at the end, exactly
    INCOMPLETE = 1  # the last batch is cut off
    LIMIT = 2  # batches_max reached
    ZEROES = 3  # only zero bytes are left: the tail of a preallocated file (KAFKA-5431)
    OLD_MAGIC = 4  # record format 0 or 1
    BAD_MAGIC = 5
    BAD_SIZE = 6  # a length that cannot hold a header
    BAD_CRC = 7
    BAD_COUNT = 8  # a negative count or last offset delta, or offsets beyond 2^63


STOP_SENTENCES = {
    Stop.INCOMPLETE: "the last batch is cut off",
    Stop.ZEROES: "only zeroes follow",
    Stop.OLD_MAGIC: "a batch has record format 0 or 1",
    Stop.BAD_MAGIC: "a batch has an unknown magic",
    Stop.BAD_SIZE: "a batch's length cannot be right",
    Stop.BAD_CRC: "a batch's CRC does not match",
    Stop.BAD_COUNT: "a batch's count or offsets cannot be right",
}
"""Why a scan ended, for people; COMPLETE and LIMIT need no explaining."""


class Batch(NamedTuple):
    """One batch's header.

    position is where the batch starts in the buffer that was scanned; size_bytes counts the whole batch.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def end_offset(self) -> int:
        return self.last_offset + 1

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When this batch's tombstones or marker may go; it then stands where the base timestamp stood."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """base_sequence plus the offset range, from 2^31 - 1 on to 0 (KAFKA-7692); -1 without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCE_MODULUS


class Scan(NamedTuple):
    """The good batches from the start, where the last of them ends, and why the scan went no further."""

    batches: list[Batch]
    end: int
    stop: Stop


_STOPS = tuple(Stop)
assert [int(stop) for stop in _STOPS] == list(range(len(_STOPS)))


def scan(
    data: ReadableBuffer,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    batches_max: int = -1,
) -> Scan:
    """Reads batch headers from data[start:end], each checked (size, magic, counts, CRC), up to the first bad one.

    Above 128 KiB it runs without the GIL: nobody may write to the buffer meanwhile.
    """
    return kernels.scan(data, start, -1 if end is None else end, check_crc, batches_max, Batch, Scan, _STOPS)


def read_header(data: ReadableBuffer, position: int = 0) -> Batch:
    """The header at `position`, taken as it stands: nothing is checked, and the batch may go beyond the buffer."""
    base_offset, length, leader_epoch, magic, crc, attributes, last_delta, *rest = _HEADER.unpack_from(data, position)
    return Batch(
        position,
        LOG_OVERHEAD + length,
        base_offset,
        base_offset + last_delta,
        leader_epoch,
        magic,
        crc,
        attributes,
        *rest,
    )


_HEADER = struct.Struct(">qiibIhiqqqhii")


def records_slice(batch: Batch) -> tuple[int, int]:
    """Where the batch's payload starts and ends in the buffer that was scanned."""
    return batch.position + HEADER_BYTES, batch.position + batch.size_bytes


def codec_of(attributes: int) -> Codec:
    """The codec that the attribute bits name; bits 5 to 7 name none."""
    number = attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"attribute bits name codec {number}, which does not exist")
    return _CODECS[number]


_CODECS = tuple(Codec)


def attributes_of(
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    *,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    """The attribute bits for these properties."""
    return (
        int(codec)
        | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon else 0)
    )


def assigned(
    buffer: WriteableBuffer, position: int, base_offset: int, leader_epoch: int, timestamp_type: int, max_timestamp: int
) -> Batch:
    """Sets offset, leader epoch, timestamp type and max timestamp of the batch at `position`; the batch as it stands then.

    A client's header may claim another type or maximum than holds; the CRC is recomputed only then.
    """
    return kernels.assigned(buffer, position, base_offset, leader_epoch, timestamp_type, max_timestamp, Batch)


def crc32c(data: ReadableBuffer, start: int = 0, end: int | None = None, *, before: int = 0) -> int:
    """CRC-32C of data[start:end], or of more: `before` is that of the bytes that stand before them."""
    if end is None:
        end = memoryview(data).nbytes
    return kernels.crc32c(data, start, end, before)
