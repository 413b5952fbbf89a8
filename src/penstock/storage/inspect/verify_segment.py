"""One segment against itself: every batch, and every index entry against the batches.

Kafka up to 3.9 indexed an append as a whole, the last offset of all its batches with the position of the first: such
entries are right too. A time entry is right where its timestamp is the largest of all batches up to its offset; which
offset of a batch stands in it has changed over Kafka's versions, and does not matter to a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.base.errors import CorruptFileError, PenstockError
from penstock.base.files import Files
from penstock.records.batch import Batch
from penstock.storage import names
from penstock.storage.checkpoints import EpochStart
from penstock.storage.inspect.index_entries import OFFSET_ENTRY, TIME_ENTRY, IndexEntries
from penstock.storage.inspect.problems import Cure, Problem
from penstock.storage.inspect.records import check_records
from penstock.storage.inspect.walk import Broken, Found, LogWalk
from penstock.storage.producer_replay import end_marker
from penstock.storage.segment import RELATIVE_OFFSET_MAX
from penstock.storage.transaction_index import AbortedTransaction, read_entries

Report = Callable[[Problem], None]


class SegmentRequest(NamedTuple):
    directory: str
    base_offset: int
    is_last: bool
    """Of its partition: its tail may be torn and its indexes preallocated, if the log was not closed."""
    live: bool
    suffix: str = ""
    closed: bool = False
    """The log directory has a clean marker: then the last segment's indexes were trimmed too."""

    def path(self, kind: str) -> str:
        return f"{self.directory}/{names.segment_file(self.base_offset, kind)}{self.suffix}"


@dataclass(slots=True, kw_only=True)
class SegmentSummary:
    """What a segment holds. Its epochs are those at which a higher one begins."""

    base_offset: int
    size_bytes: int = 0
    end_offset: int = 0
    batches: int = 0
    records: int = 0
    broken: list[Broken] = field(default_factory=list)
    index_entries: int = 0
    time_entries: int = 0
    aborted: int = 0
    epochs: list[EpochStart] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        """Whether batches are bad; a write that was cut off at the end leaves those before it good."""
        return any(not broken.is_tail for broken in self.broken)


class OpenTransactions:
    """Where the open transaction of each producer began, as far as the log still shows it."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def begin(self, batch: Batch) -> None:
        if batch.record_count:  # compaction leaves empty batches of transactions that are gone
            self._first.setdefault(batch.producer_id, batch.base_offset)

    def end(self, producer_id: int) -> int | None:
        return self._first.pop(producer_id, None)

    def forget(self) -> None:
        """Markers may be among what cannot be read: whose transaction is open is not known any more."""
        self._first.clear()


class _Marker(NamedTuple):
    producer_id: int
    first_offset: int | None
    """Of its transaction; None where no data of it was seen."""


class SegmentCheck:
    """Checks one segment; its problems go to `report` as they are found."""

    def __init__(self, files: Files, request: SegmentRequest, open_transactions: OpenTransactions, report: Report):
        self._files = files
        self._request = request
        self._open = open_transactions
        self._report = report
        self._log_path = request.path(names.LOG)
        self._abort_markers: dict[int, _Marker] = {}
        self.summary = SegmentSummary(base_offset=request.base_offset, end_offset=request.base_offset)

    def run(self, progress: Callable[[int], None] = lambda _bytes: None) -> SegmentSummary:
        # The indexes first: what they point at was written before them, even where a writer is at work.
        request, summary = self._request, self.summary
        checks = [_OffsetCheck(self._files, request, self._report), _TimeCheck(self._files, request, self._report)]
        try:
            file = self._files.open_read(self._log_path)
            try:
                walk = LogWalk(file, request.base_offset)
                summary.size_bytes = walk.size_bytes
                done = 0
                for piece in walk:
                    if isinstance(piece, Found):
                        self._check_batch(piece)
                    else:
                        self._take_broken(piece)
                    for check in checks:
                        check.take(piece)
                    if walk.position - done > _PROGRESS_BYTES:
                        progress(walk.position - done)
                        done = walk.position
                progress(summary.size_bytes - done)
            finally:
                file.close()
            for check in checks:
                check.finish(summary)
        finally:
            for check in checks:
                check.close()
        summary.index_entries, summary.time_entries = (check.entries for check in checks)
        self._check_transactions()
        return summary

    def _take_broken(self, broken: Broken) -> None:
        if broken.is_tail and self._request.live and self._request.is_last:
            return
        self.summary.broken.append(broken)
        self._open.forget()
        cure = Cure.TAIL if broken.is_tail and self._request.is_last else Cure.CUT
        if broken.is_old_format:
            cure = Cure.NONE
            if len([known for known in self.summary.broken if known.is_old_format]) > 1:
                return  # one sentence a segment will do
        self._problem(broken.reason, broken.position, self.summary.end_offset, cure)

    def _check_batch(self, found: Found) -> None:
        batch, summary, request = found.batch, self.summary, self._request
        if batch.base_offset < request.base_offset:
            self._bad_batch(batch, f"it lies below the segment's base offset {request.base_offset}")
        elif batch.base_offset < summary.end_offset:
            self._bad_batch(batch, f"its offsets do not rise: the batch before it ends at {summary.end_offset - 1}")
        elif batch.last_offset - request.base_offset > RELATIVE_OFFSET_MAX:
            self._bad_batch(batch, f"its last offset {batch.last_offset} is too far above the segment's base")
        else:
            self._check_payload(found)
        if batch.last_offset - request.base_offset <= RELATIVE_OFFSET_MAX:
            summary.end_offset = max(summary.end_offset, batch.last_offset + 1)
        summary.batches += 1
        summary.records += batch.record_count
        if batch.leader_epoch >= 0 and (not summary.epochs or batch.leader_epoch > summary.epochs[-1].epoch):
            summary.epochs.append(EpochStart(batch.leader_epoch, batch.base_offset))

    def _check_payload(self, found: Found) -> None:
        batch = found.batch
        if batch.record_count > batch.last_offset - batch.base_offset + 1:
            self._bad_batch(batch, f"it counts {batch.record_count} records over fewer offsets")
            return
        try:
            check_records(found)
            if batch.is_control:
                self._take_marker(found)
            elif batch.is_transactional:
                self._open.begin(batch)
        except PenstockError as error:
            self._bad_batch(batch, str(error))

    def _take_marker(self, found: Found) -> None:
        batch = found.batch
        marker = end_marker(found.data, batch._replace(position=found.start))
        if marker is None:
            return
        first_offset = self._open.end(batch.producer_id)
        if not marker.commit:
            self._abort_markers[batch.base_offset] = _Marker(batch.producer_id, first_offset)

    def _bad_batch(self, batch: Batch, reason: str) -> None:
        self.summary.broken.append(Broken(batch.position, batch.size_bytes, reason, batch, False, False))
        self._open.forget()
        self._problem(reason, batch.position, batch.base_offset, Cure.CUT)

    def _problem(self, reason: str, position: int, offset: int, cure: Cure) -> None:
        self._report(Problem(path=self._log_path, reason=reason, position=position, offset=offset, cure=cure))

    def _check_transactions(self) -> None:
        """Each entry has its abort marker; each marker that ended data has its entry."""
        path = self._request.path(names.TRANSACTION_INDEX)

        def wrong(reason: str, offset: int | None = None, slot: int | None = None) -> None:
            position = None if slot is None else slot * 34
            cure = Cure.NONE if self.summary.is_damaged else Cure.TRANSACTION_INDEX
            self._report(Problem(path=path, reason=reason, position=position, offset=offset, cure=cure))

        try:
            entries = read_entries(self._files.read(path), path) if self._files.exists(path) else []
        except CorruptFileError as error:
            wrong(error.reason)
            return
        self.summary.aborted = len(entries)
        if self.summary.is_damaged:
            return
        known = set()
        for slot, entry in enumerate(entries):
            if (self._request.live or self.summary.broken) and entry.last_offset >= self.summary.end_offset:
                break
            known.add(entry.last_offset)
            reason = self._wrong_transaction(entry, entries[slot - 1] if slot else None)
            if reason:
                wrong(reason, entry.last_offset, slot)
        for offset, marker in self._abort_markers.items():
            if marker.first_offset is not None and offset not in known and not self._request.live:
                wrong(f"the transaction that producer {marker.producer_id} aborted here is missing", offset)

    def _wrong_transaction(self, entry: AbortedTransaction, before: AbortedTransaction | None) -> str:
        marker = self._abort_markers.get(entry.last_offset)
        if before is not None and before.last_offset >= entry.last_offset:
            return f"its entries do not rise: {before.last_offset} stands before {entry.last_offset}"
        if marker is None or marker.producer_id != entry.producer_id:
            return f"producer {entry.producer_id} aborted no transaction here"
        if entry.first_offset > entry.last_offset or entry.last_stable_offset > entry.last_offset + 1:
            return "the entry's offsets contradict each other"
        if marker.first_offset is not None and entry.first_offset > marker.first_offset:
            return f"the transaction began at offset {marker.first_offset}, not at {entry.first_offset}"
        return ""


_PROGRESS_BYTES = 4 * 1024 * 1024


class _IndexCheck:
    """What both checks share: entries one by one beside the batches, one problem a file at most."""

    kind = ""
    what = ""

    def __init__(self, files: Files, request: SegmentRequest, report: Report) -> None:
        self._request = request
        self._report = report
        self.path = request.path(self.kind)
        self.entries = 0
        self._file = files.open_read(self.path) if files.exists(self.path) else None
        self._source: IndexEntries | None = None
        self._entries: Iterator[tuple[Any, ...]] = iter(())
        if self._file is not None:
            entry = OFFSET_ENTRY if self.kind == names.OFFSET_INDEX else TIME_ENTRY
            self._source = IndexEntries(self._file, entry, live=request.live)
            self._entries = iter(self._source)
        self.failed = False

    def take(self, piece: Found | Broken) -> None:
        raise NotImplementedError

    def next_entry(self) -> tuple[Any, ...] | None:
        try:
            entry = next(self._entries, None)
        except CorruptFileError as error:
            self.wrong(error.reason)
            return None
        if entry is not None:
            self.entries += 1
        return entry

    def wrong(self, reason: str, offset: int | None = None) -> None:
        if not self.failed:
            position = None if self._source is None or offset is None else self._source.position
            self._report(Problem(path=self.path, reason=reason, position=position, offset=offset, cure=Cure.INDEXES))
        self.failed = True

    def finish(self, summary: SegmentSummary) -> None:
        if self._source is None:
            if summary.size_bytes and not summary.broken and not self._request.live:
                self.wrong(f"the segment has no {self.what}")
        elif self._source.zero_bytes and not self.failed and (self._request.closed or not self._request.is_last):
            self.wrong(f"{self._source.zero_bytes} bytes of zeroes follow its last entry")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _OffsetCheck(_IndexCheck):
    kind = names.OFFSET_INDEX
    what = "offset index"

    def __init__(self, files: Files, request: SegmentRequest, report: Report) -> None:
        super().__init__(files, request, report)
        self._last = (-1, -1)
        self._reaches = -1
        self._entry = self._advance()

    def _advance(self) -> tuple[int, int] | None:
        entry = self.next_entry()
        if entry is None or self.failed:
            return None
        offset, position = self._request.base_offset + entry[0], entry[1]
        if offset <= self._last[0] or position <= self._last[1]:
            self.wrong(f"its entries do not rise: ({offset}, {position}) follows {self._last}", offset)
            return None
        self._last = offset, position
        return offset, position

    def take(self, piece: Found | Broken) -> None:
        if self._entry is None:
            return
        if isinstance(piece, Broken):
            while self._entry is not None and self._entry[1] < piece.end_position:
                self._entry = self._advance()
            return
        batch = piece.batch
        offset, position = self._entry
        if position < batch.position:
            self.wrong(f"the entry points at position {position}, where no batch begins", offset)
        elif position == batch.position:
            if offset < batch.last_offset:
                self.wrong(f"the batch at position {position} ends at offset {batch.last_offset}", offset)
            self._reaches = max(self._reaches, offset)
            self._entry = self._advance()
        if self.failed:
            self._entry = None

    def finish(self, summary: SegmentSummary) -> None:
        if self._entry is not None and not summary.broken and not self._request.live:
            self.wrong(f"the entry points at position {self._entry[1]}, beyond the log's last batch", self._entry[0])
        if self._reaches >= summary.end_offset and not summary.broken and not self._request.live:
            self.wrong(f"an entry has offset {self._reaches}, beyond the segment's last", self._reaches)
        super().finish(summary)


class _TimeCheck(_IndexCheck):
    kind = names.TIME_INDEX
    what = "time index"

    def __init__(self, files: Files, request: SegmentRequest, report: Report) -> None:
        super().__init__(files, request, report)
        self._last = (-1, -1)
        self._largest = -1
        self._entry = self._advance()

    def _advance(self) -> tuple[int, int] | None:
        entry = self.next_entry()
        if entry is None or self.failed:
            return None
        timestamp, offset = entry[0], self._request.base_offset + entry[1]
        if timestamp <= self._last[0] or offset < self._last[1]:
            self.wrong(f"its entries do not rise: ({timestamp}, {offset}) follows {self._last}", offset)
            return None
        self._last = timestamp, offset
        return timestamp, offset

    def take(self, piece: Found | Broken) -> None:
        if isinstance(piece, Broken):
            if piece.is_tail:
                return
            self._entry = None  # the largest timestamp is not known from here on
            return
        while self._entry is not None and self._entry[1] < piece.batch.base_offset:
            self._judge()
        self._largest = max(self._largest, piece.batch.max_timestamp)

    def _judge(self) -> None:
        assert self._entry is not None
        timestamp, offset = self._entry
        if timestamp != self._largest:
            self.wrong(f"the largest timestamp up to this offset is {self._largest}, not {timestamp}", offset)
            self._entry = None
        else:
            self._entry = self._advance()

    def finish(self, summary: SegmentSummary) -> None:
        request = self._request
        if summary.is_damaged:
            return
        while self._entry is not None and self._entry[1] < summary.end_offset:
            self._judge()
        if self._entry is not None and not request.live and not summary.broken:
            self.wrong("the entry's offset lies beyond the segment's last", self._entry[1])
        zero_is_an_entry = self._largest == 0 and self._source is not None and self._source.zero_bytes == 12
        if not zero_is_an_entry:
            super().finish(summary)
        if not self.failed and not request.is_last and self._largest > max(self._last[0], 0):
            self.wrong(f"its last entry has timestamp {self._last[0]}, the segment's largest is {self._largest}")
