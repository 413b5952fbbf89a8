"""A file of batches in stretches: the one loop behind recovery, compaction, splitting and inspection.

A stretch is as many bytes as fit a buffer. Who looks at it says how much of it was whole batches and why it looked no
further; a batch that the buffer cut off is read again, whole, however large, unless the file itself ends before it does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.files import File
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD, Batch, Stop, scan

STRETCH_BYTES = 1024 * 1024
_LENGTH = struct.Struct(">i")


class Stretches:
    """`position` is where the next stretch begins; whoever knows better may set it."""

    def __init__(self, file: File, size_bytes: int) -> None:
        self._file = file
        self._wanted_bytes = STRETCH_BYTES
        self.size_bytes = size_bytes
        self.position = 0

    def read(self) -> bytes:
        """The next stretch; no bytes at the end of the file, or where it became shorter."""
        if self.position >= self.size_bytes:
            return b""
        return self._file.pread(min(self._wanted_bytes, self.size_bytes - self.position), self.position)

    def took(self, data: bytes, end: int, stop: Stop) -> bool:
        """Whole batches end at `end` of `data`; whether the walk can go on. If not, `stop` is why, at `position`."""
        self.position += end
        self._wanted_bytes = STRETCH_BYTES
        if stop is Stop.INCOMPLETE:
            needed = _needed_bytes(data[end : end + LOG_OVERHEAD])
            self._wanted_bytes = max(STRETCH_BYTES, needed)
            return self.position + needed <= self.size_bytes
        return stop is Stop.COMPLETE


def _needed_bytes(head: bytes) -> int:
    """How many bytes the batch that begins with `head` asks for."""
    if len(head) < LOG_OVERHEAD:
        return HEADER_BYTES
    return max(HEADER_BYTES, LOG_OVERHEAD + int(_LENGTH.unpack_from(head, 8)[0]))


class Stretch(NamedTuple):
    """Good batches, whose positions count in `data`, which begins at `position` of the file."""

    data: bytes
    position: int
    batches: list[Batch]


class GoodBatches:
    """The good batches from a file's start, stretch by stretch; afterwards `stop` says why there were no more."""

    def __init__(self, file: File, size_bytes: int) -> None:
        self._stretches = Stretches(file, size_bytes)
        self.stop = Stop.COMPLETE

    @property
    def position(self) -> int:
        """Where the last good batch given so far ends."""
        return self._stretches.position

    def __iter__(self) -> Iterator[Stretch]:
        stretches = self._stretches
        while data := stretches.read():
            found = scan(data)
            if found.batches:
                yield Stretch(data, stretches.position, found.batches)
            if not stretches.took(data, found.end, found.stop):
                self.stop = found.stop
                return
        if stretches.position < stretches.size_bytes:
            self.stop = Stop.INCOMPLETE  # the file became shorter meanwhile
