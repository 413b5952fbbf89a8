"""The time index (row S8): the largest timestamp up to an offset, sparsely.

Bytes: 12 per entry, big-endian: int64 largest timestamp so far, int32 relative last offset of the first batch that
reached it.
Invariants: timestamps rise strictly, offsets do not fall. Full one slot early, so that a final entry always fits at roll
and close. What a crash leaves: see `index_file`. Who may call: the segment that owns it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import Files, ReadableBuffer
from penstock.records import kernels
from penstock.storage.index_file import IndexFile

_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    __slots__ = ("_newest",)
    entry_bytes = _ENTRY.size

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._newest: int | None = None  # the last entry's timestamp, once an append has asked for it

    @property
    def is_full(self) -> bool:
        return self.entries >= self.capacity - 1

    def entry(self, slot: int) -> TimeEntry:
        timestamp, relative = _ENTRY.unpack_from(self._buffer, slot * 12)
        return TimeEntry(timestamp, self.base_offset + relative)

    def last(self) -> TimeEntry:
        return self.entry(self.entries - 1) if self.entries else TimeEntry(NO_TIMESTAMP, self.base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Adds an entry if the timestamp is larger than the last one; says whether it did."""
        assert self._mapping is not None, "a sealed index takes no entries"
        if self._newest is None:
            self._newest = self.last().timestamp
        if timestamp <= self._newest:
            return False
        assert self.entries < self.capacity, "the segment should have been rolled"
        if self.entries * 12 + 12 > self.reserved_bytes:
            self.reserve(self.entries * 12 + 12)
        _ENTRY.pack_into(self._mapping.buffer, self.entries * 12, timestamp, offset - self.base_offset)
        self.entries += 1
        self._newest = timestamp
        return True

    def extend(self, entries: ReadableBuffer) -> None:
        super().extend(entries)
        self._newest = None

    def open_active(self, bytes_max: int) -> None:
        super().open_active(bytes_max)
        self._newest = None  # the file may have been emptied since

    def truncate_entries(self, entries: int) -> None:
        super().truncate_entries(entries)
        self._newest = None

    def look_up(self, timestamp: int) -> TimeEntry:
        """The last entry at or below `timestamp`; (-1, base offset) where there is none."""
        if not self.entries:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        slot = kernels.search_time_index(self._buffer, self.entries, timestamp)
        return TimeEntry(NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry(slot)

    def truncate_to(self, offset: int) -> None:
        """Drops every entry for `offset` or beyond."""
        kept = self.entries
        while kept and self.entry(kept - 1).offset >= offset:
            kept -= 1
        self.truncate_entries(kept)

    def check(self) -> None:
        """Raises CorruptFileError where first and last entry contradict each other."""
        if not self.entries:
            return
        last = self.last()
        if last.timestamp < self.entry(0).timestamp:
            raise CorruptFileError(self.path, "its timestamps fall")
        if last.offset < self.base_offset:
            raise CorruptFileError(self.path, "its last entry lies below the segment's base offset")
