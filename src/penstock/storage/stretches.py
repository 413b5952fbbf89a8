"""A file of batches in stretches: the one loop behind recovery, compaction, splitting, inspection and reading beside a broker.

A stretch is as many bytes as fit a buffer. Who looks at it says how much of it was whole batches and why it looked no
further; a batch that the buffer cut off is read again, whole, unless the file itself ends before it does. A length is not
believed where it asks for much memory: the CRC is looked at first, piece by piece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.files import File
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD, Batch, Stop, crc32c, read_header, scan

STRETCH_BYTES = 1024 * 1024
BELIEVED_BYTES_MAX = 16 * 1024 * 1024
"""A larger batch is read whole only once its CRC is known to be good."""
_CRC_START = 21
_LENGTH = struct.Struct(">i")


class Stretches:
    """`position` is where the next stretch begins; whoever knows better may set it."""

    def __init__(self, file: File, size_bytes: int, stretch_bytes: int = STRETCH_BYTES) -> None:
        self._file = file
        self._stretch_bytes = self._wanted_bytes = stretch_bytes
        self.size_bytes = size_bytes
        self.position = 0

    def read(self) -> bytes:
        """The next stretch; no bytes at the end of the file, or where it became shorter."""
        if self.position >= self.size_bytes:
            return b""
        return self._file.pread(min(self._wanted_bytes, self.size_bytes - self.position), self.position)

    def took(self, data: bytes, end: int, stop: Stop) -> Stop:
        """Whole batches end at `end` of `data`, because of `stop`: COMPLETE if the walk goes on, else why not, at `position`."""
        self.position += end
        self._wanted_bytes = self._stretch_bytes
        if stop is not Stop.INCOMPLETE:
            return stop
        needed = _needed_bytes(data[end : end + LOG_OVERHEAD])
        if self.position + needed > self.size_bytes:
            return Stop.INCOMPLETE
        if needed > BELIEVED_BYTES_MAX and not crc_is_good(self._file, self.position, needed):
            return Stop.BAD_CRC
        self._wanted_bytes = max(self._stretch_bytes, needed)
        return Stop.COMPLETE


def crc_is_good(file: File, position: int, batch_bytes: int) -> bool:
    """Of the batch of so many bytes that begins at `position`; read in pieces, however large."""
    head = file.pread(HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return False
    at, end = position + _CRC_START, position + batch_bytes
    found = 0
    while at < end:
        piece = file.pread(min(STRETCH_BYTES, end - at), at)
        if not piece:
            return False
        found = crc32c(piece, before=found)
        at += len(piece)
    return found == read_header(head).crc


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
            self.stop = stretches.took(data, found.end, found.stop)
            if self.stop is not Stop.COMPLETE:
                return
        if stretches.position < stretches.size_bytes:
            self.stop = Stop.INCOMPLETE  # the file became shorter meanwhile
