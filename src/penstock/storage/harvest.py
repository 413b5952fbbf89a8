"""What recovery brings home from a walk over one segment: index entries, leader epochs, producers. See the kernel."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from penstock.base.config import LONG_MAX
from penstock.records.batch import STOP_SENTENCES, Batch, Stop, read_header
from penstock.records.recovery_kernels import KEPT_NOTES, NOTE_NUMBERS, SLOT_NUMBERS, STATE_NUMBERS, collect
from penstock.storage.checkpoints import EpochStart
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.producer_state import EndMarker
from penstock.storage.time_index import NO_TIMESTAMP, TimeIndex

_INDEX_ENTRIES_MAX = 4096
_EPOCHS_MAX = 256
_EVENTS_MAX = 512
_SLOTS_FIRST, _SLOTS_MAX = 32, 4096
_BASE_OFFSET = 0


class OrderStop(IntEnum):
    """Why the walk ended where no batch is bad in itself; the numbers are the kernel's, above those of `Stop`."""

    OUT_OF_ORDER = 9
    OVERFLOW = 10
    BAD_MARKER = 11


class ProducerNotes:
    """The batches of producers that a replay needs, 72 bytes each, so that many segments can wait for their turn."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields = array("q")

    def extend(self, notes: list[tuple[int, ...]]) -> None:
        for note in notes:
            self._fields.extend(note)

    def __len__(self) -> int:
        return len(self._fields) // NOTE_NUMBERS

    def __iter__(self) -> Iterator[tuple[Batch, EndMarker | None]]:
        fields = self._fields
        for start in range(0, len(fields), NOTE_NUMBERS):
            base, last, attributes, timestamp, producer, epoch, sequence, ending, coordinator = fields[
                start : start + NOTE_NUMBERS
            ]
            batch = Batch(0, 0, base, last, -1, 2, 0, attributes, timestamp, timestamp, producer, epoch, sequence, 0)
            yield batch, None if ending < 0 else EndMarker(bool(ending), coordinator)


class Limits(NamedTuple):
    """How a segment is walked: the highest offset it may hold, from which offset on producers count, and the index's pace."""

    last_offset_max: int = LONG_MAX
    producers_from: int = 0
    index_interval_bytes: int = 4096


class Harvest:
    """Feed it the segment's bytes in order, then `finish`. The indexes are open for appending, and empty."""

    def __init__(self, base_offset: int, limits: Limits, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        self._base_offset = base_offset
        self._limits = limits
        self._offset_index = offset_index
        self._time_index = time_index
        entries = min(_INDEX_ENTRIES_MAX, offset_index.capacity, time_index.capacity)
        self._offset_entries = bytearray(8 * entries)
        self._time_entries = bytearray(12 * entries)
        self._epochs = array("q", bytes(16 * _EPOCHS_MAX))
        self._events = array("q", bytes(8 * NOTE_NUMBERS * _EVENTS_MAX))
        self._table = _new_table(_SLOTS_FIRST)
        self._state = array("q", [base_offset, 0, NO_TIMESTAMP, base_offset, NO_TIMESTAMP, -1, 0])
        assert len(self._state) == STATE_NUMBERS
        self._waiting: list[tuple[int, ...]] = []
        self.epochs: list[EpochStart] = []
        self.producers = ProducerNotes()
        self.reason = ""
        """Why the last stretch ended before its end; '' where it did not."""
        self.overflows = False

    @property
    def end_offset(self) -> int:
        return self._state[0]

    def take(self, data: bytes, position: int) -> tuple[int, Stop]:
        """Takes a stretch that begins at `position` of the file; where its good batches end, and why there.

        BAD_COUNT stands for whatever is wrong between batches; `reason` has the words.
        """
        limits, end = self._limits, 0
        while True:
            end, stop, offset_bytes, time_bytes, epochs, events = collect(
                data, end, position, self._base_offset, limits.last_offset_max, limits.producers_from,
                limits.index_interval_bytes, self._state, self._offset_entries, self._time_entries, self._epochs,
                self._events, self._table,
            )  # fmt: skip
            self._offset_index.extend(memoryview(self._offset_entries)[:offset_bytes])
            self._time_index.extend(memoryview(self._time_entries)[:time_bytes])
            self.epochs += [EpochStart(*self._epochs[2 * slot : 2 * slot + 2]) for slot in range(epochs)]
            self._waiting += _notes(self._events, 0, events)
            if stop != Stop.LIMIT:
                break
            if 2 * self._state[6] >= len(self._table) // SLOT_NUMBERS:
                self._drain(len(self._table) // SLOT_NUMBERS * 4)
        if stop <= Stop.BAD_COUNT:
            known = Stop(stop)
            self.reason = STOP_SENTENCES.get(known, "")
            return end, known
        self.reason = self._words(OrderStop(stop), data, end)
        self.overflows = stop == OrderStop.OVERFLOW
        return end, Stop.BAD_COUNT

    def _words(self, stop: OrderStop, data: bytes, at: int) -> str:
        header = read_header(data, at)
        if stop is OrderStop.OUT_OF_ORDER:
            return f"a batch at offset {header.base_offset} follows offset {self.end_offset - 1}"
        if stop is OrderStop.OVERFLOW:
            return f"offset {header.last_offset} is too far above the segment's base"
        return f"the control record at offset {header.base_offset} cannot be read"

    def _drain(self, slots: int) -> None:
        """Takes the last batches of every producer out of the table, in the log's order, and begins a larger one."""
        notes = {note[_BASE_OFFSET]: note for note in self._waiting}
        table = self._table
        for slot in range(0, len(table), SLOT_NUMBERS):
            kept = min(table[slot + 1], KEPT_NOTES)
            notes.update((note[_BASE_OFFSET], note) for note in _notes(table, slot + 3, kept))
        self.producers.extend([notes[base_offset] for base_offset in sorted(notes)])
        self._waiting = []
        self._table = _new_table(min(slots, _SLOTS_MAX))
        self._state[6] = 0

    def finish(self) -> None:
        """The final time entry, and what producers sent last."""
        _, _, largest, largest_at, *_ = self._state
        if largest >= 0:
            self._time_index.maybe_append(largest, largest_at)
        self._drain(_SLOTS_FIRST)


def _new_table(slots: int) -> array[int]:
    return array("q", bytes(8 * SLOT_NUMBERS * slots))


def _notes(numbers: array[int], start: int, count: int) -> list[tuple[int, ...]]:
    return [tuple(numbers[at : at + NOTE_NUMBERS]) for at in range(start, start + count * NOTE_NUMBERS, NOTE_NUMBERS)]
