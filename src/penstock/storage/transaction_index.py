"""The transaction index (row S9): the aborted transactions that end in a segment.

Bytes: 34 per entry, big-endian: int16 version (0), int64 producer id, int64 first offset, int64 last offset (the abort
marker's), int64 last stable offset at that time.
Invariants: last offsets rise. The file exists only once a transaction aborted in the segment.
What a crash leaves: a torn or missing last entry; recovery rebuilds the file from the markers in the log.
Who may call: the segment that owns it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import File, Files

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_entries(data: bytes, path: str) -> list[AbortedTransaction]:
    """The entries of a file's bytes; CorruptFileError for a version or size that is not ours."""
    if len(data) % ENTRY_BYTES:
        raise CorruptFileError(path, f"its size {len(data)} is not a multiple of {ENTRY_BYTES}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptFileError(path, f"an entry has version {version} (expected {_VERSION})")
        entries.append(AbortedTransaction(*fields))
    return entries


def entry_bytes(entry: AbortedTransaction) -> bytes:
    return _ENTRY.pack(_VERSION, *entry)


class TransactionIndex:
    """Entries are few: they are kept in memory once read."""

    __slots__ = ("_entries", "_file", "_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None
        self.path = path

    @property
    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            data = self._files.read(self.path) if self._files.exists(self.path) else b""
            self._entries = read_entries(data, self.path)
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        entries = self.entries
        assert not entries or entry.last_offset > entries[-1].last_offset, "aborted transactions end in offset order"
        if self._file is None:
            exists = self._files.exists(self.path)
            self._file = self._files.open(self.path) if exists else self._files.create(self.path)
        self._file.pwrite(entry_bytes(entry), len(entries) * ENTRY_BYTES)
        entries.append(entry)

    def collect(self, first_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Transactions that overlap [first_offset, end_offset), and whether no later segment can hold more of them."""
        found = []
        for entry in self.entries:
            if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops transactions whose marker lies at or beyond `offset`."""
        entries = self.entries
        kept = len(entries)
        while kept and entries[kept - 1].last_offset >= offset:
            kept -= 1
        if kept != len(entries):
            del entries[kept:]
            self.close()
            if kept:
                self._files.truncate(self.path, kept * ENTRY_BYTES)
            else:
                self._files.remove(self.path)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
