"""A log: segments in order, the last one active. Rolling, reading, truncating, deleting; no producers, no epochs.

Invariants:
- there is always exactly one active segment, the last;
- base offsets rise; every offset of a segment is at or above its base and below the next one's;
- `end` is one triple (offset, segment base, position), replaced in one step after the bytes are written (KAFKA-698).
What a crash leaves: files with `.deleted` names, segments beyond a cut; `load` clears them. Who may call: `partition_log`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.base.files import Files, ReadableBuffer
from penstock.records.batch import Batch
from penstock.storage import names
from penstock.storage.config import LogConfig
from penstock.storage.segment import ActiveSegment, FileSlice, OpenFiles, Segment, Spot


class Place(NamedTuple):
    """An offset and where it lies: the first byte of the batch that holds it, or of the one that would."""

    offset: int
    segment_base: int
    position: int


class LogRead(NamedTuple):
    """A stretch of one segment that begins with the batch holding the wanted offset."""

    slice: FileSlice
    segment: Segment
    first: Spot


class Log:
    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        open_files: OpenFiles,
        segments: Sequence[Segment],
        active: ActiveSegment,
        end_offset: int,
    ) -> None:
        self._files = files
        self._open_files = open_files
        self.directory = directory
        self.config = config
        self._segments: list[Segment] = [*segments, active]
        self._bases = [segment.base_offset for segment in self._segments]
        self._active = active
        self.end = Place(end_offset, active.base_offset, active.size_bytes)
        self.names_to_sync = True
        """Whether segments came, went or were cut since the directory was last synced."""

    # Segments as an ordered map.
    @property
    def active(self) -> ActiveSegment:
        return self._active

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def sealed(self) -> tuple[Segment, ...]:
        return tuple(self._segments[:-1])

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def floor(self, offset: int) -> Segment | None:
        slot = bisect_right(self._bases, offset)
        return self._segments[slot - 1] if slot else None

    def higher(self, base_offset: int) -> Segment | None:
        slot = bisect_right(self._bases, base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segment that holds `offset`, or would, and all after it."""
        slot = max(bisect_right(self._bases, offset) - 1, 0)
        return iter(self._segments[slot:])

    # Appending.
    def append(self, data: ReadableBuffer, batches: Sequence[Batch]) -> None:
        """Writes checked batches to the active segment and moves the end. An OSError leaves the tail unknown."""
        active = self._active
        active.append(data, batches)
        self.end = Place(batches[-1].last_offset + 1, active.base_offset, active.size_bytes)

    def append_placed(self, data: bytes, placed: Sequence[tuple[int, int, int]]) -> None:
        """The same for batches of which only last offset, greatest timestamp and size are told."""
        active = self._active
        active.append_placed(data, self.end.offset, placed)
        # The constructor of a named tuple is interpreted; this is not.
        self.end = tuple.__new__(Place, (placed[-1][0] + 1, active.base_offset, active.size_bytes))

    def should_roll(self, size_bytes: int, max_timestamp: int, last_offset: int, jitter_ms: int, now_ms: int) -> bool:
        """Row S6: whether a set of batches must begin a new segment."""
        active, config = self._active, self.config
        if not active.has_room_for(last_offset):
            return True
        if active.size_bytes == 0:
            return False
        if active.size_bytes > config.segment_bytes - size_bytes:
            return True
        since = active.first_timestamp
        waited_ms = max_timestamp - since if since >= 0 and max_timestamp >= 0 else now_ms - active.created_ms
        return waited_ms > config.segment_ms - jitter_ms

    def roll(self, base_offset: int, now_ms: int) -> Segment | None:
        """Begins a new active segment at `base_offset`; returns the one sealed, None if an empty one was replaced."""
        old = self._active
        sealed: Segment | None = None
        if old.size_bytes == 0:
            self._remove_files(old)
            self._segments.pop()
            self._bases.pop()
        else:
            assert base_offset > old.base_offset, "a segment's base is above every offset before it"
            sealed = old.seal()
            self._segments[-1] = sealed
        self._remove_leftovers(base_offset)
        self._active = self._create(base_offset, now_ms)
        self._segments.append(self._active)
        self._bases.append(base_offset)
        self.end = Place(max(self.end.offset, base_offset), base_offset, 0)
        return sealed

    def _create(self, base_offset: int, now_ms: int) -> ActiveSegment:
        config = self.config
        self.names_to_sync = True
        return ActiveSegment(
            self._files,
            self.directory,
            base_offset,
            self._open_files,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
            created_ms=now_ms,
            preallocate_bytes=config.segment_bytes if config.preallocate else 0,
        )

    def _remove_leftovers(self, base_offset: int) -> None:
        """Files of the new segment's name that belong to no loaded segment."""
        assert base_offset not in self._bases
        for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.LOG):
            path = f"{self.directory}/{names.segment_file(base_offset, kind)}"
            if self._files.exists(path):
                self._files.remove(path)

    def _remove_files(self, segment: Segment) -> None:
        paths = segment.all_paths()
        segment.close()
        for path in paths:
            self._files.remove(path)

    # Reading.
    def place(self, offset: int) -> Place:
        """Where `offset` lies: the start of the first batch that holds it or a later one."""
        if offset >= self.end.offset:
            return self.end
        for segment in self.from_offset(offset):
            spot = segment.locate(offset)
            if spot is not None:
                return Place(offset, segment.base_offset, spot.position)
        return self.end

    def read(self, offset: int, bytes_max: int, bound: Place, minimum_bytes: int) -> LogRead | None:
        """Batches from the one that holds `offset`, of one segment, below `bound`; None where there are none.

        At most `bytes_max`, but the first batch is given whole where it fits `minimum_bytes`. Cut off anywhere behind it.
        """
        for segment in self.from_offset(offset):
            if segment.base_offset > bound.segment_base:
                return None
            end = bound.position if segment.base_offset == bound.segment_base else segment.size_bytes
            first = segment.locate(offset)
            if first is None:
                continue  # compacted away: the next segment has it
            if first.position >= end:
                return None
            length = min(max(bytes_max, min(first.size_bytes, minimum_bytes)), end - first.position)
            return LogRead(FileSlice(segment.file, first.position, length), segment, first)
        return None

    # Removing.
    def detach(self, bases: Sequence[int]) -> list[Segment]:
        """Takes sealed segments out and renames their files `.deleted`; removing those is the caller's, later."""
        self.names_to_sync = True
        removed = []
        for base_offset in bases:
            slot = bisect_left(self._bases, base_offset)
            assert self._bases[slot] == base_offset
            assert slot < len(self._segments) - 1, "the active segment stays"
            removed.append(self._segments.pop(slot))
            self._bases.pop(slot)
        for segment in removed:
            segment.rename(names.DELETED)
        return removed

    def replace(self, old_bases: Sequence[int], new: Sequence[Segment]) -> list[Segment]:
        """Puts compacted segments (already `.swap`) in the place of sealed ones; the old come back renamed `.deleted`."""
        self.names_to_sync = True
        old = [segment for segment in self._segments[:-1] if segment.base_offset in set(old_bases)]
        slot = bisect_left(self._bases, old_bases[0])
        assert [segment.base_offset for segment in self._segments[slot : slot + len(old)]] == list(old_bases)
        for segment in old:
            segment.rename(names.DELETED)
        for segment in new:
            segment.rename("")
        self._segments[slot : slot + len(old)] = new
        self._bases[slot : slot + len(old)] = [segment.base_offset for segment in new]
        return old

    def cleaned_segment(self, base_offset: int, size_bytes: int) -> Segment:
        """A segment that compaction wrote beside the log, not yet part of it."""
        return Segment(self._files, self.directory, base_offset, size_bytes, self._open_files, suffix=names.CLEANED)

    def truncate(self, offset: int, now_ms: int) -> None:
        """Cuts everything at or above `offset`, newest first, so that a crash leaves a longer log, never a hole."""
        if offset >= self.end.offset:
            return
        self.names_to_sync = True
        dropped = False
        while len(self._segments) > 1 and self._bases[-1] > offset:
            self._remove_files(self._segments.pop())
            self._bases.pop()
            dropped = True
        if dropped:
            self._active = self._reopen(self._segments.pop(), now_ms)
            self._segments.append(self._active)
        end_offset = self._active.truncate_to(offset)
        self.end = Place(end_offset, self._active.base_offset, self._active.size_bytes)

    def _reopen(self, segment: Segment, now_ms: int) -> ActiveSegment:
        """A sealed segment becomes the active one again. Its bytes stay."""
        segment.close()
        return self._create(segment.base_offset, now_ms)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drops everything; the log is empty and continues at `offset`."""
        while self._segments:
            self._remove_files(self._segments.pop())
            self._bases.pop()
        self._remove_leftovers(offset)
        self._active = self._create(offset, now_ms)
        self._segments = [self._active]
        self._bases = [offset]
        self.end = Place(offset, offset, 0)

    # Durability.
    def take_names_to_sync(self) -> bool:
        """Whether the directory has names that no sync has covered; asking clears it."""
        due, self.names_to_sync = self.names_to_sync, False
        return due

    def close(self) -> None:
        """Final index entries, trimmed files, closed descriptors. Syncs nothing."""
        active = self._active
        active.finish_indexes()
        if active.preallocated:
            active.file.truncate(active.size_bytes)
        for segment in self._segments:
            segment.close()
