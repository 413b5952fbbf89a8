"""Transactions of a live log: which batches were aborted, and where the first one that is still open begins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from penstock.base.errors import CorruptFileError
from penstock.base.files import Files
from penstock.records.batch import Batch
from penstock.storage import names, producer_snapshot
from penstock.storage.live.errors import LiveLogError
from penstock.storage.live.read import read_batches
from penstock.storage.live.segments import Listing, LiveSegment, list_segments
from penstock.storage.transaction_index import ENTRY_BYTES, AbortedTransaction, read_entries

_TRIES_MAX = 1000


class Aborted:
    """The aborted transactions of a log. A producer has one transaction at a time, so its spans do not overlap."""

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for one in sorted(set(transactions), key=lambda one: one.first_offset):
            self._spans.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))

    def __contains__(self, batch: Batch) -> bool:
        if not batch.is_transactional:
            return False
        spans = self._spans.get(batch.producer_id, [])
        slot = bisect_right(spans, batch.base_offset, key=lambda span: span[0]) - 1
        return slot >= 0 and batch.base_offset <= spans[slot][1]


def read_aborted(files: Files, directory: str, start_offset: int, end_offset: int) -> Aborted:
    """Every aborted transaction with records in the range, and maybe others.

    To be read *before* the records: the cleaner takes a transaction out of the index together with its records, so an index
    that is older than the log says too much, which does no harm, and a younger one too little.
    """
    for _ in range(_TRIES_MAX):
        listing = list_segments(files, directory)
        found = _read_indexes(files, directory, listing, start_offset, end_offset)
        if found is not None and list_segments(files, directory) == listing:
            return Aborted(found)
    raise LiveLogError(f"{directory}: its transaction indexes are replaced faster than they can be read")


def _read_indexes(
    files: Files, directory: str, listing: Listing, start_offset: int, end_offset: int
) -> list[AbortedTransaction] | None:
    first_base = listing.from_offset(start_offset)[0].base_offset if listing.segments else 0
    found: list[AbortedTransaction] = []
    for segment in listing.transaction_indexes:
        if segment.base_offset < first_base:
            continue
        path = f"{directory}/{segment.file_name(names.TRANSACTION_INDEX)}"
        try:
            data = files.read(path)
        except FileNotFoundError:
            return None
        entries = read_entries(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], path)  # half an entry is being written
        found += (one for one in entries if one.last_offset >= start_offset and one.first_offset < end_offset)
        if entries and entries[-1].last_stable_offset >= end_offset:
            break
    return found


def last_stable_offset(files: Files, directory: str, start_offset: int, end_offset: int) -> int:
    """Where the first transaction begins that is open at `end_offset`, or that offset: from the newest snapshot on."""
    begins_at, open_transactions = start_offset, dict[int, int]()
    for snapshot in reversed(list_segments(files, directory).snapshots):
        if snapshot.suffix or not start_offset <= snapshot.base_offset <= end_offset:
            continue
        opened = _read_snapshot(files, directory, snapshot)
        if opened is not None:
            begins_at, open_transactions = snapshot.base_offset, opened
            break
    for stretch in read_batches(files, directory, begins_at, end_offset):
        for batch in stretch.batches:
            if batch.is_control:
                open_transactions.pop(batch.producer_id, None)
            elif batch.is_transactional:
                open_transactions.setdefault(batch.producer_id, batch.base_offset)
    return min(open_transactions.values(), default=end_offset)


def _read_snapshot(files: Files, directory: str, snapshot: LiveSegment) -> dict[int, int] | None:
    path = f"{directory}/{snapshot.file_name(names.SNAPSHOT)}"
    try:
        producers = producer_snapshot.decode(files.read(path), path)
    except (CorruptFileError, FileNotFoundError):
        return None
    return {one.producer_id: one.transaction_first_offset for one in producers if one.transaction_first_offset >= 0}
