"""Fixed-size entries in a file, shared by the offset index and the time index.

What it is: an array of entries. The active segment's file is mapped and preallocated; a sealed one is trimmed to its
entries and mapped when it is first used.
What a crash leaves: the preallocated file, with zeroes behind the last entry that reached the disk; recovery rebuilds it
from the log, which is the truth. Who may call: the segment that owns it.
"""

from __future__ import annotations

from penstock.base.errors import CorruptFileError
from penstock.base.files import Files, Mapping, ReadableBuffer

_BLOCK_BYTES = 16 * 1024


class IndexFile:
    """Entries of one size, appended in order."""

    __slots__ = (
        "_buffer",
        "_files",
        "_mapping",
        "base_offset",
        "capacity",
        "entries",
        "is_open",
        "path",
        "reserved_bytes",
    )

    entry_bytes: int = 0

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._mapping: Mapping | None = None
        self._buffer: ReadableBuffer = b""
        self.path = path
        self.base_offset = base_offset
        self.entries = 0
        self.capacity = 0
        self.reserved_bytes = 0
        self.is_open = False

    @property
    def buffer(self) -> ReadableBuffer:
        return self._buffer

    def open_active(self, bytes_max: int) -> None:
        """Makes or reopens the file for appending, grown to `bytes_max`. Entries already there are kept."""
        self.reserved_bytes = 0
        size = self._files.size(self.path) if self._files.exists(self.path) else 0
        self.entries = size // self.entry_bytes
        self.capacity = max(bytes_max // self.entry_bytes, self.entries + 2)
        self._mapping = self._files.map(self.path, self.capacity * self.entry_bytes)
        self._buffer = self._mapping.buffer
        self.is_open = True

    def open_sealed(self) -> None:
        """Opens a trimmed file for look-ups; raises CorruptFileError where its size fits no entries."""
        size = self._files.size(self.path)
        if size % self.entry_bytes:
            raise CorruptFileError(self.path, f"its size {size} is not a multiple of {self.entry_bytes}")
        self.entries = self.capacity = size // self.entry_bytes
        if size:
            self._mapping = self._files.map(self.path, size)
            self._buffer = self._mapping.buffer
        self.is_open = True

    def reserve(self, end: int) -> None:
        """Makes sure that the map can be written up to `end`, a block at a time; OSError where the disk is full."""
        target = min(max(end, self.reserved_bytes + _BLOCK_BYTES), self.capacity * self.entry_bytes)
        self._files.reserve(self.path, self.reserved_bytes, target - self.reserved_bytes)
        self.reserved_bytes = target

    def extend(self, entries: ReadableBuffer) -> None:
        """Adds entries that are bytes already, as a kernel made them. The caller has proved that they fit and follow."""
        start = self.entries * self.entry_bytes
        end = start + len(entries)
        assert self._mapping is not None, "a sealed index takes no entries"
        assert end <= self.capacity * self.entry_bytes, "the index is full"
        if end > self.reserved_bytes:
            self.reserve(end)
        self._mapping.buffer[start:end] = entries
        self.entries = end // self.entry_bytes

    def truncate_entries(self, entries: int) -> None:
        assert entries <= self.entries
        mapping = self._mapping
        if mapping is not None:
            start, end = entries * self.entry_bytes, self.entries * self.entry_bytes
            mapping.buffer[start:end] = bytes(end - start)
        self.entries = entries

    def sync(self) -> None:
        if self._mapping is not None:
            self._mapping.sync()

    def close(self) -> None:
        """Drops the mapping; an active file is trimmed to its entries."""
        self.is_open = False
        if self._mapping is not None:
            self._buffer = b""
            self._mapping.close()
            self._mapping = None
            if self.capacity != self.entries:
                self._files.truncate(self.path, self.entries * self.entry_bytes)
                self.capacity = self.entries
