"""Clearing a partition's directory of what a crash left, before anything in it is loaded (row S15).

Each step is safe to be cut and run again:
1. `.deleted` goes. `.cleaned` goes, and with it every `.swap` at or above its offset: that compaction never ended.
2. A `.swap` is completed: the segments it replaces go, then it loses its suffix.
3. Indexes without a log go; a missing index is rebuilt when it is used.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import Files
from penstock.storage import names
from penstock.storage.segment import OpenFiles, Segment


class DirectoryNames(NamedTuple):
    """Base offsets of the segments that a directory holds, and what goes with them."""

    logs: list[int]
    snapshots: list[int]
    transaction_indexes: list[int]


def clean_up(files: Files, directory: str) -> DirectoryNames:
    """Steps 1 to 3: afterwards every file is a segment's, a snapshot or a checkpoint."""
    _remove_unfinished(files, directory)
    _complete_swaps(files, directory)
    found = [parsed for parsed in map(names.parse_segment_file, files.list(directory)) if parsed is not None]
    logs = sorted(base for base, kind, _ in found if kind == names.LOG)
    known = set(logs)
    for base, kind, _ in found:
        if kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX) and base not in known:
            files.remove(f"{directory}/{names.segment_file(base, kind)}")
    snapshots = sorted(base for base, kind, _ in found if kind == names.SNAPSHOT)
    transactions = sorted(base for base, kind, _ in found if kind == names.TRANSACTION_INDEX and base in known)
    return DirectoryNames(logs, snapshots, transactions)


def _remove_unfinished(files: Files, directory: str) -> None:
    """Swaps go before the `.cleaned` that condemns them: cut in between, the next start must not complete them."""
    listed = files.list(directory)
    found = [
        (name, parsed) for name, parsed in zip(listed, map(names.parse_segment_file, listed), strict=True) if parsed
    ]
    cleaned = [base for _, (base, _, suffix) in found if suffix == names.CLEANED]
    doomed = [name for name, (base, _, suffix) in found if suffix == names.SWAP and cleaned and base >= min(cleaned)]
    doomed += [name for name, (_, _, suffix) in found if suffix in (names.CLEANED, names.DELETED)]
    doomed += [name for name in listed if name.endswith(".tmp")]
    for name in doomed:
        files.remove(f"{directory}/{name}")


def _complete_swaps(files: Files, directory: str) -> None:
    """The segments a swap replaces are those from its base to its end; they go before it takes its name.

    Whoever removes or renames a segment takes its log last. So an index without a log is one that the swap has already
    brought here, and stays: a transaction index could not be made again.
    """
    listed = [(name, names.parse_segment_file(name)) for name in files.list(directory)]
    swaps = [(name, parsed) for name, parsed in listed if parsed is not None and parsed[2] == names.SWAP]
    if not swaps:
        return
    ranges = []
    for _name, (base, kind, _) in swaps:
        if kind == names.LOG:
            segment = Segment(files, directory, base, 0, OpenFiles(), suffix=names.SWAP)
            segment.size_bytes = files.size(segment.path(names.LOG))
            ranges.append((base, max(segment_end(segment), base + 1)))
            segment.close()
    if ranges:
        low, high = min(base for base, _ in ranges), max(end for _, end in ranges)
        plain = {parsed[0] for _, parsed in listed if parsed and parsed[1] == names.LOG and not parsed[2]}
        for base in sorted(base for base in plain if low <= base < high):
            for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.LOG):
                name = f"{directory}/{names.segment_file(base, kind)}"
                if files.exists(name):
                    files.remove(name)
    for name, (_base, kind, _) in sorted(swaps, key=lambda item: item[1][1] == names.LOG):
        if ranges or kind == names.LOG:
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(names.SWAP)}")
        else:
            files.remove(f"{directory}/{name}")  # an index whose log has its name already, or never had one
    files.sync_directory(directory)


def segment_end(segment: Segment) -> int:
    """One past the last offset, by walking every header: for files whose indexes cannot be trusted."""
    end_offset = segment.base_offset
    try:
        for batch in segment.headers(0):
            if batch.end_position > segment.size_bytes:
                break
            end_offset = batch.last_offset + 1
    except CorruptFileError:
        pass
    return end_offset
