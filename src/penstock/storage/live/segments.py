"""The segments of a partition's directory as they stand at one moment, and where in one of them to begin.

A broker renames while a directory is listed, so a listing counts once a second one agrees. A `.swap` beside no live file of
its name is whole, and about to become it; what is `.deleted`, `.cleaned` or anything else has no part in the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from penstock.base.files import File, Files
from penstock.storage import names
from penstock.storage.live.errors import LiveLogError

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_LISTINGS_MAX = 1000


class LiveSegment(NamedTuple):
    base_offset: int
    suffix: str

    def file_name(self, kind: str) -> str:
        return names.segment_file(self.base_offset, kind) + self.suffix


class Listing(NamedTuple):
    """Segments by offset; those of transaction indexes and snapshots beside them."""

    segments: tuple[LiveSegment, ...]
    transaction_indexes: tuple[LiveSegment, ...]
    snapshots: tuple[LiveSegment, ...]

    def from_offset(self, offset: int) -> tuple[LiveSegment, ...]:
        """The segment that holds `offset`, or would, and those after it."""
        bases = [segment.base_offset for segment in self.segments]
        return self.segments[max(0, bisect_right(bases, offset) - 1) :]


def list_segments(files: Files, directory: str) -> Listing:
    """LiveLogError where the directory cannot be listed, or does not come to rest."""
    before = None
    for _ in range(_LISTINGS_MAX):
        found = _list(files, directory)
        if found == before:
            return found
        before = found
    raise LiveLogError(f"{directory}: its files are renamed faster than they can be listed")


def _list(files: Files, directory: str) -> Listing:
    by_kind: dict[str, dict[int, str]] = {names.LOG: {}, names.TRANSACTION_INDEX: {}, names.SNAPSHOT: {}}
    try:
        listed = files.list(directory)
    except OSError as error:
        raise LiveLogError(f"{directory}: {error.strerror}") from error
    for name in listed:
        parsed = names.parse_segment_file(name)
        if parsed is None or parsed[1] not in by_kind or parsed[2] not in ("", names.SWAP):
            continue
        base_offset, kind, suffix = parsed
        known = by_kind[kind]
        known[base_offset] = min(suffix, known.get(base_offset, suffix))  # the live file before its successor
    return Listing(*(tuple(LiveSegment(*item) for item in sorted(by_kind[kind].items())) for kind in by_kind))


def start_position(files: Files, directory: str, segment: LiveSegment, offset: int) -> int:
    """Where to begin looking for `offset`, by the offset index; 0 where that does not help.

    The index may belong to another generation of the segment than the log does: whoever begins there checks what it finds.
    """
    found = _floor(
        files, f"{directory}/{segment.file_name(names.OFFSET_INDEX)}", _OFFSET_ENTRY, offset - segment.base_offset
    )
    return found[1] if found is not None and found[1] > 0 else 0


def last_indexed_offset(files: Files, directory: str, segment: LiveSegment) -> int:
    """An offset near the segment's end, by the offset index; its base where that does not help."""
    found = _floor(files, f"{directory}/{segment.file_name(names.OFFSET_INDEX)}", _OFFSET_ENTRY, 2**31 - 1)
    return segment.base_offset + (found[0] if found is not None and found[0] > 0 else 0)


def largest_timestamp(files: Files, directory: str, segment: LiveSegment) -> int | None:
    """Of a segment that takes no more records, by its time index; None where that does not say."""
    found = _floor(files, f"{directory}/{segment.file_name(names.TIME_INDEX)}", _TIME_ENTRY, 2**63 - 1)
    return None if found is None else found[0]


def _floor(files: Files, path: str, entry: struct.Struct, target: int) -> tuple[int, int] | None:
    """The last entry whose first number is at most `target`. Zeroes behind the entries are room for more of them."""
    try:
        file = files.open_read(path)
    except OSError:
        return None
    try:
        return _search(file, entry, target)
    except struct.error:  # trimmed meanwhile
        return None
    finally:
        file.close()


def _search(file: File, entry: struct.Struct, target: int) -> tuple[int, int] | None:
    def read(slot: int) -> tuple[int, int]:
        first, second = entry.unpack(file.pread(entry.size, slot * entry.size))
        return first, second

    used = bisect_left(range(file.size() // entry.size), True, key=lambda slot: read(slot) == (0, 0))
    slot = bisect_right(range(used), target, key=lambda slot: read(slot)[0]) - 1
    return read(slot) if slot >= 0 else None
