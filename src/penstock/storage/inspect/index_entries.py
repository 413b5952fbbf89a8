"""Entries of an index file, read by copy and a piece at a time, whatever the writer is doing with the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from penstock.base.errors import CorruptFileError
from penstock.base.files import File

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TRANSACTION_ENTRY = struct.Struct(">hqqqq")
_PIECE_BYTES = 1 << 20


class IndexEntries:
    """Iterate once. Zeroes at the end, as preallocation leaves them, are not entries; `zero_bytes` counts them then.

    Raises CorruptFileError at the end where the file's size fits no number of entries.
    """

    def __init__(self, file: File, entry: struct.Struct, *, live: bool = False) -> None:
        self._file = file
        self._live = live
        self._entry = entry
        self.size_bytes = file.size()
        self.position = 0
        """Of the entry given last."""
        self.zero_bytes = 0
        self._not_zero_at = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        size = self._entry.size
        zeroes = bytes(size)
        whole = self.size_bytes - self.size_bytes % size
        start = 0
        while start < whole:
            piece = self._file.pread(min(_PIECE_BYTES // size * size, whole - start), start)
            if len(piece) < size:
                return  # trimmed meanwhile
            for at in range(0, len(piece) - size + 1, size):
                self.position = start + at
                if piece[at : at + size] == zeroes and self._is_tail(piece, at):
                    self.zero_bytes = self.size_bytes - self.position
                    return
                yield self._entry.unpack_from(piece, at)
            start += len(piece) // size * size
        if whole != self.size_bytes:
            raise CorruptFileError(self._file.path, f"its size {self.size_bytes} is not a multiple of {size}")

    def _is_tail(self, piece: bytes, at: int) -> bool:
        """Whether nothing follows. A writer may have added entries since the piece was read: then the piece decides."""
        if self._live:
            return not piece[at:].strip(b"\0")
        return self._only_zeroes_from(self.position)

    def _only_zeroes_from(self, position: int) -> bool:
        if position < self._not_zero_at:
            return False
        while position < self.size_bytes:
            piece = self._file.pread(min(_PIECE_BYTES, self.size_bytes - position), position)
            rest = piece.lstrip(b"\0")
            if rest:
                self._not_zero_at = position + len(piece) - len(rest)
                return False
            if not piece:
                break
            position += len(piece)
        return True
