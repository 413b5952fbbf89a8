"""The newest offset of each key, for compaction, within a stated memory bound.

24 bytes a key (128 bits of keyed hash, offset), filled to nine tenths like Kafka's. A key's hash stands for the key.
The caller supplies the seed: this room knows no randomness.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import CorruptRecordError
from penstock.records import key_kernels
from penstock.records.payload import RECORD_BYTES_MIN, malformed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ENTRY_BYTES = 24
LOAD_FACTOR = 0.9


class Selection(NamedTuple):
    """Which records of a batch compaction keeps: one byte each in `keep`, 1 or 0.

    The last two describe the kept record with the greatest timestamp, the first of equals; they mean nothing when
    kept_count is 0.
    """

    keep: bytearray
    kept_count: int
    kept_tombstone_count: int
    keyless_count: int
    max_timestamp_delta: int
    offset_delta_of_max_timestamp: int


class KeyMap:
    """Key to newest offset.

    - Never takes more than memory_bytes for its table.
    - Offsets are put in rising order: the last put of a key wins.
    - latest_offset is the last offset that it speaks for: what lies beyond is kept by select().
    """

    def __init__(self, memory_bytes: int, seed: bytes) -> None:
        assert len(seed) == 16, "the seed has 16 bytes"
        slots = memory_bytes // ENTRY_BYTES
        assert slots >= 2, "a key map needs 48 bytes at least"
        self._words = array("Q", bytes(slots * ENTRY_BYTES))
        self._seed: tuple[int, int] = struct.unpack("<QQ", seed)
        self.capacity = min(int(slots * LOAD_FACTOR), slots - 1)
        self.size = 0
        self.latest_offset = -1

    def clear(self) -> None:
        """Forgets everything and keeps the memory."""
        memoryview(self._words).cast("B")[:] = bytes(len(self._words) * 8)
        self.size = 0
        self.latest_offset = -1

    def put_batch(
        self,
        payload: ReadableBuffer,
        start: int,
        end: int,
        record_count: int,
        base_offset: int,
        *,
        last_offset: int | None = None,
        from_offset: int = 0,
    ) -> int:
        """Puts the records with a key at or above from_offset; how many were taken, fewer than record_count when full.

        When all were, latest_offset becomes the batch's last_offset, if given (its end may have been compacted away).
        """
        taken, added, last_put = key_kernels.put_batch(
            payload,
            start,
            end,
            record_count,
            base_offset,
            from_offset,
            self._words,
            self.capacity - self.size,
            *self._seed,
        )
        self.size += added
        if taken < 0:
            raise CorruptRecordError(f"a record of the batch at {base_offset} is malformed: {malformed(taken)}")
        self.latest_offset = max(self.latest_offset, last_put)
        if taken == record_count and last_offset is not None and last_offset >= from_offset:
            self.latest_offset = max(self.latest_offset, last_offset)
        return taken

    def latest(self, key: ReadableBuffer) -> int:
        """The newest offset of the key, or -1."""
        return key_kernels.latest(key, self._words, *self._seed)

    def select(
        self,
        payload: ReadableBuffer,
        start: int,
        end: int,
        record_count: int,
        base_offset: int,
        *,
        retain_tombstones: bool,
    ) -> Selection:
        """Which records to keep: the newest of each key, and what lies beyond latest_offset.

        Records without a key go; so do null values unless retain_tombstones.
        """
        if record_count < 0 or record_count * RECORD_BYTES_MIN > end - start:
            raise CorruptRecordError(f"{end - start} bytes cannot hold {record_count} records")
        keep = bytearray(record_count)
        status, *numbers = key_kernels.select(
            payload,
            start,
            end,
            record_count,
            base_offset,
            self.latest_offset,
            retain_tombstones,
            self._words,
            *self._seed,
            keep,
        )
        if status < 0:
            raise CorruptRecordError(f"record {numbers[0]} of {record_count} is malformed: {malformed(status)}")
        return Selection(keep, *numbers)
