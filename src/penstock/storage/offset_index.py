"""The offset index (row S7): where in the file a batch with a given offset begins, sparsely.

Bytes: 8 per entry, big-endian: int32 offset relative to the segment's base, int32 position. An entry is a batch's last
offset and the position at which that batch starts.
Invariants: relative offsets rise, positions rise. A look-up gives a position at or before the wanted batch.
What a crash leaves: see `index_file`. Who may call: the segment that owns it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.records import kernels
from penstock.storage.index_file import IndexFile

_ENTRY = struct.Struct(">ii")
_new_entry = tuple.__new__  # half of what calling the class costs: 875 -> 746 ns a look-up


class OffsetEntry(NamedTuple):
    offset: int
    position: int


class OffsetIndex(IndexFile):
    __slots__ = ()
    entry_bytes = _ENTRY.size

    @property
    def is_full(self) -> bool:
        return self.entries >= self.capacity

    def entry(self, slot: int) -> OffsetEntry:
        relative, position = _ENTRY.unpack_from(self._buffer, slot * 8)
        return _new_entry(OffsetEntry, (self.base_offset + relative, position))

    def last(self) -> OffsetEntry:
        return self.entry(self.entries - 1) if self.entries else OffsetEntry(self.base_offset, 0)

    def append(self, offset: int, position: int) -> None:
        entries = self.entries
        assert self._mapping is not None, "a sealed index takes no entries"
        assert entries < self.capacity, "the segment should have been rolled"
        if entries * 8 + 8 > self.reserved_bytes:
            self.reserve(entries * 8 + 8)
        _ENTRY.pack_into(self._mapping.buffer, entries * 8, offset - self.base_offset, position)
        self.entries = entries + 1

    def look_up(self, offset: int) -> OffsetEntry:
        """The last entry at or below `offset`; (base offset, 0) where there is none."""
        if not self.entries:
            return OffsetEntry(self.base_offset, 0)
        slot = kernels.search_offset_index(self._buffer, self.entries, offset - self.base_offset)
        return OffsetEntry(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def first_beyond_position(self, position: int) -> OffsetEntry | None:
        """The first entry whose batch starts at or after `position`."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).position < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low) if low < self.entries else None

    def truncate_to(self, offset: int) -> None:
        """Drops every entry at or above `offset` (KAFKA-588: an entry equal to it goes too)."""
        if not self.entries:
            return
        slot = kernels.search_offset_index(self._buffer, self.entries, offset - self.base_offset)
        if slot >= 0 and self.entry(slot).offset == offset:
            slot -= 1
        self.truncate_entries(slot + 1)

    def check(self) -> None:
        """Raises CorruptFileError where the last entry cannot be right. Cheap: looks at one entry."""
        if self.entries and self.last().offset <= self.base_offset and self.entries > 1:
            raise CorruptFileError(
                self.path, f"its last entry is for offset {self.last().offset}, not above the base {self.base_offset}"
            )
        if self.entries and self.last().offset < self.base_offset:
            raise CorruptFileError(self.path, "its last entry lies below the segment's base offset")
