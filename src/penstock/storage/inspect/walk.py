"""A log file from its first byte to its last, the broken stretches included.

Recovery stops at the first bad batch, because what follows it may not be believed; a person who looks wants to know what
else is there. After a bad batch the walk goes on at the next place where a whole batch with a good CRC begins that fits
the offsets: where the bad one's length leads, or further on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.files import File
from penstock.records.batch import HEADER_BYTES, Batch, Stop, read_header, scan
from penstock.storage.recovery import old_format_bytes
from penstock.storage.segment import RELATIVE_OFFSET_MAX
from penstock.storage.stretches import Stretches, crc_is_good

_SEARCH_BYTES = 1024 * 1024
_ATTRIBUTES_MAX = 0x7F
_MAGIC_POSITION = 16

_REASONS = {
    Stop.INCOMPLETE: "the batch is cut off: its length reaches beyond the end of the file",
    Stop.ZEROES: "only zeroes follow",
    Stop.OLD_MAGIC: "no batch begins here: its magic is below 2, and it is none of the old formats either",
    Stop.BAD_MAGIC: "no batch begins here: its magic is unknown",
    Stop.BAD_SIZE: "no batch begins here: its length cannot be right",
    Stop.BAD_CRC: "the batch's CRC does not match",
    Stop.BAD_COUNT: "the batch's count or offsets cannot be right",
}
OLD_FORMAT_REASON = "the records have format 0 or 1, which is not supported; let Kafka 3.x rewrite them first"


class Found(NamedTuple):
    """A good batch: its header, whose position counts in the file, and its bytes from `start` in `data`."""

    batch: Batch
    data: bytes
    start: int

    @property
    def payload(self) -> memoryview:
        return memoryview(self.data)[self.start + HEADER_BYTES : self.start + self.batch.size_bytes]


class Broken(NamedTuple):
    """A stretch without a good batch. `header` is what its first bytes say, where that much may be believed."""

    position: int
    size_bytes: int
    reason: str
    header: Batch | None
    is_tail: bool
    """Nothing good follows, and it looks like a write that was cut off or never came: a crash does that."""
    is_old_format: bool

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


class LogWalk:
    """Iterate once. `end_offset` is one past the last good batch so far."""

    def __init__(self, file: File, base_offset: int, *, bytes_max: int | None = None) -> None:
        self._file = file
        self._base_offset = base_offset
        self.size_bytes = file.size() if bytes_max is None else min(file.size(), bytes_max)
        self._is_partial = self.size_bytes < file.size()
        self.end_offset = base_offset
        self.position = 0

    def __iter__(self) -> Iterator[Found | Broken]:
        stretches = Stretches(self._file, self.size_bytes)
        while data := stretches.read():
            start = stretches.position
            found = scan(data)
            for batch in found.batches:
                if batch.last_offset - self._base_offset <= RELATIVE_OFFSET_MAX:  # the CRC does not cover offsets
                    self.end_offset = max(self.end_offset, batch.last_offset + 1)
                self.position = start + batch.end_position
                yield Found(batch._replace(position=start + batch.position), data, batch.position)
            stop = stretches.took(data, found.end, found.stop)
            if stop is Stop.COMPLETE:
                continue
            self.position = stretches.position
            if stop is Stop.INCOMPLETE and self._is_partial:
                return
            broken = self._broken(stop)
            self.position = stretches.position = broken.end_position
            yield broken

    def _read(self, length: int, position: int) -> bytes:
        return self._file.pread(min(length, self.size_bytes - position), position)

    def _broken(self, stop: Stop) -> Broken:
        position = self.position
        old_bytes = old_format_bytes(self._file, position) if stop is Stop.OLD_MAGIC else 0
        if old_bytes:
            return Broken(position, old_bytes, OLD_FORMAT_REASON, None, False, True)
        head = self._read(HEADER_BYTES, position)
        header = None
        end = 0
        if stop in (Stop.BAD_CRC, Stop.BAD_COUNT):
            header = read_header(head)._replace(position=position)
            end = header.end_position
        if not end or not (end == self.size_bytes or self._is_good(end)):
            end = self._next_good(position + 1)
        may_be_torn = stop not in (Stop.BAD_CRC, Stop.BAD_COUNT)
        is_tail = end == self.size_bytes and may_be_torn
        return Broken(position, end - position, _REASONS[stop], header, is_tail, False)

    def _is_good(self, position: int) -> bool:
        """Whether a whole batch with a good CRC and offsets that follow begins here."""
        head = self._read(HEADER_BYTES, position)
        if len(head) < HEADER_BYTES or not self._is_plausible(read_header(head), position):
            return False
        return crc_is_good(self._file, position, read_header(head).size_bytes)

    def _is_plausible(self, header: Batch, position: int) -> bool:
        return (
            header.magic == 2
            and self.end_offset <= header.base_offset <= self._base_offset + RELATIVE_OFFSET_MAX
            and HEADER_BYTES <= header.size_bytes <= self.size_bytes - position
            and header.base_offset <= header.last_offset
            and header.record_count >= 0
            and header.leader_epoch >= -1
            and 0 <= header.attributes <= _ATTRIBUTES_MAX
        )

    def _next_good(self, position: int) -> int:
        """Where the next good batch begins; the file's end where there is none."""
        while position + HEADER_BYTES <= self.size_bytes:
            window = self._read(_SEARCH_BYTES, position)
            at = window.find(2, _MAGIC_POSITION)
            while at >= 0:
                start = at - _MAGIC_POSITION
                if start + HEADER_BYTES > len(window):
                    break
                if self._is_plausible(read_header(window, start), position + start) and self._is_good(position + start):
                    return position + start
                at = window.find(2, at + 1)
            if position + len(window) >= self.size_bytes:
                break
            position += len(window) - HEADER_BYTES
        return self.size_bytes
