"""A range of offsets from a live log: every batch of it, whole and checked, whatever the broker does meanwhile.

A pass lists the directory and reads the segments from the one that holds the wanted offset on. A file once opened is read to its
end, renamed or not: what the cleaner replaced still holds the range's records, and more. A segment that cannot be opened
any more, or ends the pass early, begins a new pass at the offset where the reading stands, so segments that were merged are
found under their new name, and what was appended before a roll is not passed over. A pass that gave nothing, over a listing
that did not change, is the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import CorruptFileError, CorruptRecordError, UnsupportedForMessageFormatError
from penstock.base.files import File, Files
from penstock.records.batch import STOP_SENTENCES, Batch, Stop, scan
from penstock.storage import names
from penstock.storage.live.errors import LiveLogError, LiveLossError
from penstock.storage.live.segments import Listing, LiveSegment, largest_timestamp, list_segments, start_position
from penstock.storage.stretches import Stretch, Stretches

LOG_END = 2**63 - 1
"""As an end: whatever the log holds, up to its first byte that is no whole batch."""
READ_BYTES = 4 * 1024 * 1024
PASSES_MAX = 100
"""In a row without a batch, though the directory changes: it will not come to rest."""


class _Tail(NamedTuple):
    """Where and why the good batches of a segment ended before its bytes did."""

    path: str
    position: int
    stop: Stop


def read_batches(
    files: Files, directory: str, start_offset: int, end_offset: int, *, time_ms_min: int | None = None
) -> Iterator[Stretch]:
    """Batches that hold offsets of [start_offset, end_offset), control batches among them.

    The first and the last may hold offsets outside. With time_ms_min, segments whose records are all older may be left
    out. LiveLossError where the log begins later than the reading stands, or ends before `end_offset`.
    """
    return _Reader(files, directory, start_offset, end_offset, time_ms_min).run()


class _Reader:
    def __init__(self, files: Files, directory: str, offset: int, end_offset: int, time_ms_min: int | None) -> None:
        self._files = files
        self._directory = directory
        self._offset = offset
        self._end_offset = end_offset
        self._time_ms_min = time_ms_min
        self._next_base: int | None = None
        self._tail: _Tail | None = None
        self._saw_all = False

    def run(self) -> Iterator[Stretch]:
        before: Listing | None = None
        fruitless = 0
        while self._offset < self._end_offset:
            listing = list_segments(self._files, self._directory)
            if fruitless and self._saw_all and listing == before:
                return self._ended(listing)
            stood_at = self._offset
            self._check_start(listing)
            yield from self._pass(listing)
            before = listing
            fruitless = 0 if self._offset > stood_at else fruitless + 1
            if fruitless > PASSES_MAX:
                return self._ended(listing)
        return None

    def _check_start(self, listing: Listing) -> None:
        """Moves over offsets that the cleaner removed from a segment's end; what retention removed is a loss."""
        if not listing.segments:
            raise LiveLossError(self._directory, self._offset, self._offset, self._offset)
        first = listing.segments[0].base_offset
        if first <= self._offset:
            return
        if first != self._next_base:
            raise LiveLossError(self._directory, self._offset, first, max(first, self._end_offset))
        self._offset = first

    def _ended(self, listing: Listing) -> None:
        """No more batches stand there. A reader that wanted the log's end is content, unless damage lies before that."""
        tail = self._tail
        is_last = tail is not None and listing.segments[-1].file_name(names.LOG) == tail.path.rpartition("/")[2]
        may_end_so = is_last and (
            self._end_offset == LOG_END or (tail is not None and tail.stop in (Stop.INCOMPLETE, Stop.ZEROES))
        )
        is_old = tail is not None and tail.stop is Stop.OLD_MAGIC
        if tail is not None and is_old and (tail.position == 0 or not may_end_so):
            raise UnsupportedForMessageFormatError(f"{tail.path} holds records of the formats before Kafka 0.11")
        if tail is not None and not may_end_so:
            raise CorruptFileError(tail.path, f"{STOP_SENTENCES[tail.stop]} at position {tail.position}")
        if self._end_offset != LOG_END:
            raise LiveLossError(self._directory, self._offset, listing.segments[0].base_offset, self._offset)

    def _pass(self, listing: Listing) -> Iterator[Stretch]:
        self._begin_pass()
        segments = listing.from_offset(self._offset)
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1
            if segment.base_offset >= self._end_offset:
                self._offset = self._end_offset
                return
            if not is_last and self._is_too_old(segment):
                self._offset = max(self._offset, segments[number + 1].base_offset)
                continue
            try:
                file = self._files.open_read(f"{self._directory}/{segment.file_name(names.LOG)}")
            except FileNotFoundError:
                return
            except OSError as error:
                raise LiveLogError(f"{error.filename}: {error.strerror}") from error
            self._next_base = None if is_last else segments[number + 1].base_offset
            try:
                yield from self._segment(segment, file)
            finally:
                file.close()
            if self._tail is not None and self._tail.stop is Stop.ZEROES and not is_last:
                self._tail = None  # room that nobody gave back; nothing can be appended there any more
            if self._offset >= self._end_offset or self._tail is not None:
                break
        self._saw_all = True

    def _begin_pass(self) -> None:
        self._tail, self._saw_all = None, False

    def _is_too_old(self, segment: LiveSegment) -> bool:
        if self._time_ms_min is None:
            return False
        largest = largest_timestamp(self._files, self._directory, segment)
        return largest is not None and largest < self._time_ms_min

    def _segment(self, segment: LiveSegment, file: File) -> Iterator[Stretch]:
        stretches = Stretches(file, file.size(), READ_BYTES)
        stretches.position = start_position(self._files, self._directory, segment, self._offset)
        is_proved = stretches.position == 0
        while data := stretches.read():
            found = scan(data)
            if not is_proved and (not found.batches or found.batches[0].base_offset > self._offset):
                stretches.position, is_proved = 0, True  # the index is of another generation, or damaged
                continue
            is_proved = True
            position = stretches.position
            batches = self._take(found.batches, file.path)
            if batches:
                yield Stretch(data, position, batches)
            if self._offset >= self._end_offset:
                return
            stop = stretches.took(data, found.end, found.stop)
            if stop is not Stop.COMPLETE:
                self._tail = _Tail(file.path, stretches.position, stop)
                return

    def _take(self, batches: list[Batch], path: str) -> list[Batch]:
        """Those at or beyond the offset where the reading stands, which moves behind them."""
        taken: list[Batch] = []
        for batch in batches:
            if batch.last_offset < self._offset:
                continue
            if batch.base_offset >= self._end_offset:
                self._offset = self._end_offset
                break
            if taken and batch.base_offset < self._offset:
                raise CorruptRecordError(
                    f"{path}: the batch at offset {batch.base_offset} follows offset {self._offset - 1}"
                )
            taken.append(batch)
            self._offset = batch.end_offset
        return taken
