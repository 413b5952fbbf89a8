"""The journal of the embedded store: one file, appended to, in the first log directory.

What it is: every committed transaction, in order. When it has grown to many times the tree, it is written anew.
Bytes: a head (8 bytes, `PNSTKMD1`), then records: length (u32), CRC-32C (u32) of the rest, zxid (i64), time (i64),
    count of effects (u32), then each effect: kind (u8), path (u16 and UTF-8), and, unless it removes, ephemeral owner
    (i64) and data (u32 and bytes); a node as a rewrite keeps it has its counters and times
    after that. Numbers are big-endian.
Invariants: zxids rise; a record that is whole and checks out happened.
A crash leaves a record cut off or garbled at the end. `open_journal` cuts the file there and keeps what it cut as
    `.cut`; an unfinished rewrite stays under its temporary name and is removed. Only then is anything appended.
Who may call: the store's owner; `sync` alone may run in another thread.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import File, Files
from penstock.metadata.tree import Effect, Kept, Made, Removed, Written
from penstock.records.batch import crc32c

HEAD = b"PNSTKMD1"

_RECORD = struct.Struct(">II")
_BODY = struct.Struct(">qqI")
_KIND_PATH = struct.Struct(">BH")
_OWNER_LENGTH = struct.Struct(">qI")
_COUNTERS = struct.Struct(">qqqqqqq")
_SEARCH_BYTES = 64 * 1024
_MADE, _WRITTEN, _REMOVED, _KEPT = 1, 2, 3, 4


class Cut(NamedTuple):
    """What was cut off a journal when it was opened."""

    path: str
    position: int
    size_bytes: int
    entries_after: int
    """Whole records behind the bad one: a crash leaves none, a disk that rots or another writer does."""

    def __str__(self) -> str:
        what = f"{self.path}: {self.size_bytes} bytes from byte {self.position} on were cut off and kept as {self.path}.cut"
        if not self.entries_after:
            return f"{what} (the last change was not finished)"
        return (
            f"{what}: a bad record stands before {self.entries_after} good ones, whose changes to topics and "
            "configurations are lost; restore the file from a copy if there is one"
        )


class Entry(NamedTuple):
    zxid: int
    wall_ms: int
    effects: tuple[Effect, ...]


def encode(entry: Entry) -> bytes:
    parts = [_BODY.pack(entry.zxid, entry.wall_ms, len(entry.effects))]
    for effect in entry.effects:
        path = effect.path.encode()
        if isinstance(effect, Removed):
            parts += (_KIND_PATH.pack(_REMOVED, len(path)), path)
            continue
        kind, owner = _WRITTEN, 0
        if not isinstance(effect, Written):
            kind, owner = _MADE if isinstance(effect, Made) else _KEPT, effect.ephemeral_owner
        parts += (_KIND_PATH.pack(kind, len(path)), path, _OWNER_LENGTH.pack(owner, len(effect.data)), effect.data)
        if isinstance(effect, Kept):
            parts.append(_COUNTERS.pack(*effect[3:]))
    body = b"".join(parts)
    return _RECORD.pack(len(body), crc32c(body)) + body


def _decode(body: bytes) -> Entry:
    zxid, wall_ms, count = _BODY.unpack_from(body)
    position = _BODY.size
    effects: list[Effect] = []
    for _ in range(count):
        kind, length = _KIND_PATH.unpack_from(body, position)
        position += _KIND_PATH.size
        path = body[position : position + length].decode()
        position += length
        if kind == _REMOVED:
            effects.append(Removed(path))
            continue
        owner, length = _OWNER_LENGTH.unpack_from(body, position)
        position += _OWNER_LENGTH.size
        data = body[position : position + length]
        position += length
        if kind == _KEPT:
            effects.append(Kept(path, data, owner, *_COUNTERS.unpack_from(body, position)))
            position += _COUNTERS.size
        else:
            effects.append(Made(path, data, owner) if kind == _MADE else Written(path, data))
    return Entry(zxid, wall_ms, tuple(effects))


def read_entries(content: bytes, position: int = len(HEAD)) -> tuple[list[Entry], int]:
    """The entries that are whole, and where the first that is not begins (the end, if there is none)."""
    entries: list[Entry] = []
    while position + _RECORD.size <= len(content):
        length, checksum = _RECORD.unpack_from(content, position)
        start = position + _RECORD.size
        body = content[start : start + length]
        if length < _BODY.size or len(body) < length or crc32c(body) != checksum:
            break
        entries.append(_decode(body))
        position = start + length
    return entries, position


def _count_after(content: bytes, position: int) -> int:
    """Whole records behind the bad one at `position`, wherever the next of them begins."""
    last = len(content) - _RECORD.size - _BODY.size
    claimed = position + _RECORD.size + int.from_bytes(content[position : position + 4], "big")
    for start in (claimed, *range(position + 1, position + _SEARCH_BYTES)):
        if start > last:
            continue
        length, checksum = _RECORD.unpack_from(content, start)
        body = start + _RECORD.size
        if _BODY.size <= length <= len(content) - body and crc32c(content[body : body + length]) == checksum:
            return len(read_entries(content, start)[0])
    return 0


class Journal:
    """An open journal. `append` writes; only what `sync` returned for is safe from a loss of power."""

    def __init__(self, file: File, position: int) -> None:
        self._file = file
        self.position = position

    def append(self, entry: Entry) -> int:
        """Writes at the end and returns the new end. OSError leaves the end where it was."""
        record = encode(entry)
        self._file.pwrite(record, self.position)
        self.position += len(record)
        return self.position

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def open_journal(files: Files, path: str) -> tuple[Journal, list[Entry], Cut | None]:
    """Opens or makes the journal. What a crash cut off is put aside first, and told."""
    directory = path.rpartition("/")[0]
    if files.exists(path + ".new"):
        files.remove(path + ".new")
    if not files.exists(path):
        return write_journal(files, path, []), [], None
    content = files.read(path)
    if content[: len(HEAD)] != HEAD[: len(content)]:
        raise CorruptFileError(path, "is not a metadata journal; move it away, or restore it from a copy")
    if len(content) < len(HEAD):
        files.remove(path)
        return write_journal(files, path, []), [], None
    entries, end = read_entries(content)
    cut = None
    if end < len(content):
        cut = Cut(path, end, len(content) - end, _count_after(content, end))
        _put_aside(files, path, content[end:])
        files.truncate(path, end)
        files.sync_directory(directory)
    file = files.open(path)
    file.sync()
    return Journal(file, end), entries, cut


def write_journal(files: Files, path: str, entries: list[Entry]) -> Journal:
    """Writes a journal anew, beside the old one, and puts it in its place in one step. Syncs: not on an event loop."""
    journal = draft_journal(files, path, entries)
    place_journal(files, path)
    return journal


def draft_journal(files: Files, path: str, entries: list[Entry]) -> Journal:
    """Writes and syncs a journal beside the one at `path`, which stays the one that counts. Not on an event loop."""
    temporary = path + ".new"
    if files.exists(temporary):
        files.remove(temporary)
    file = files.create(temporary)
    content = HEAD + b"".join(map(encode, entries))
    file.pwrite(content, 0)
    file.sync()
    return Journal(file, len(content))


def place_journal(files: Files, path: str) -> None:
    """Puts a synced draft in the place of the journal at `path`. Not on an event loop."""
    files.rename(path + ".new", path)
    files.sync_directory(path.rpartition("/")[0])


def _put_aside(files: Files, path: str, tail: bytes) -> None:
    if files.exists(path + ".cut"):
        files.remove(path + ".cut")
    file = files.create(path + ".cut")
    file.pwrite(tail, 0)
    file.sync()
    file.close()
