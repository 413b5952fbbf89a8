"""Splitting a segment whose offsets reach further above its base than its indexes can name (KAFKA-6264).

Old brokers wrote such segments when they replicated sparse, compacted topics. The parts are made beside the segment, whole,
and take its place by the steps of a compaction, each of which `load` completes or undoes:
1. every part is written as `.cleaned` and synced: its log, and its share of the transaction index; the segment is untouched;
2. `.cleaned` -> `.swap`, the highest first: while a lower `.cleaned` is there, the swaps count for nothing;
3. the segment goes;
4. `.swap` -> live.
Parts have no offset and time index: recovery, which asks for the split, makes them, or whoever reads them first.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import File, Files
from penstock.storage import names
from penstock.storage.segment import RELATIVE_OFFSET_MAX
from penstock.storage.stretches import GoodBatches
from penstock.storage.transaction_index import entry_bytes, read_entries

_COPY_BYTES = 4 * 1024 * 1024


class _Part(NamedTuple):
    base_offset: int
    start: int
    end: int


def split_segment(files: Files, directory: str, base_offset: int) -> list[int]:
    """Splits one segment in place; the base offsets of what it became, its own first."""
    source = files.open_read(f"{directory}/{names.segment_file(base_offset, names.LOG)}")
    try:
        parts = _plan(source, base_offset)
        for part in parts:
            _copy(files, source, part, f"{directory}/{names.segment_file(part.base_offset, names.LOG)}{names.CLEANED}")
    finally:
        source.close()
    moving = _share_transactions(files, directory, base_offset, parts)
    moving += [names.segment_file(part.base_offset, names.LOG) for part in reversed(parts)]
    files.sync_directory(directory)
    for name in moving:
        files.rename(f"{directory}/{name}{names.CLEANED}", f"{directory}/{name}{names.SWAP}")
    files.sync_directory(directory)
    for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.LOG):
        name = f"{directory}/{names.segment_file(base_offset, kind)}"
        if files.exists(name):
            files.remove(name)
    for name in moving:
        files.rename(f"{directory}/{name}{names.SWAP}", f"{directory}/{name}")
    files.sync_directory(directory)
    return [part.base_offset for part in parts]


def _share_transactions(files: Files, directory: str, base_offset: int, parts: list[_Part]) -> list[str]:
    """Gives each part the aborted transactions that end in it; the names of the files, the highest first."""
    path = f"{directory}/{names.segment_file(base_offset, names.TRANSACTION_INDEX)}"
    try:
        entries = read_entries(files.read(path), path)
    except (FileNotFoundError, CorruptFileError):
        return []  # none, or recovery replays them
    made = []
    end_offset: int | None = None
    for part in reversed(parts):
        data = b"".join(
            entry_bytes(entry)
            for entry in entries
            if entry.last_offset >= part.base_offset and (end_offset is None or entry.last_offset < end_offset)
        )
        end_offset = part.base_offset
        if data:
            name = names.segment_file(part.base_offset, names.TRANSACTION_INDEX)
            _write(files, f"{directory}/{name}{names.CLEANED}", data)
            made.append(name)
    return made


def _write(files: Files, path: str, data: bytes) -> None:
    if files.exists(path):
        files.remove(path)
    file = files.create(path)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()


def _plan(source: File, base_offset: int) -> list[_Part]:
    """As few parts as the offsets allow. What follows the last good batch goes with the last part: recovery cuts it."""
    starts = [(base_offset, 0)]
    end_offset = base_offset
    for _, position, batches in GoodBatches(source, source.size()):
        for batch in batches:
            if batch.base_offset < end_offset:
                return _parts(starts, source.size())
            if batch.last_offset - starts[-1][0] > RELATIVE_OFFSET_MAX:
                starts.append((batch.base_offset, position + batch.position))
            end_offset = batch.last_offset + 1
    return _parts(starts, source.size())


def _parts(starts: list[tuple[int, int]], size_bytes: int) -> list[_Part]:
    ends = [start for _, start in starts[1:]] + [size_bytes]
    return [_Part(base, start, end) for (base, start), end in zip(starts, ends, strict=True)]


def _copy(files: Files, source: File, part: _Part, target: str) -> None:
    if files.exists(target):
        files.remove(target)
    copy = files.create(target)
    try:
        position = part.start
        while position < part.end:
            data = source.pread(min(_COPY_BYTES, part.end - position), position)
            copy.pwrite(data, position - part.start)
            position += len(data)
        copy.sync()
    finally:
        copy.close()
