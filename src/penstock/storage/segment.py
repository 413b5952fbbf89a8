"""A segment: a stretch of the log in one file, with its three indexes.

Bytes: record batches, one after the other, offsets rising. An active segment takes appends, its indexes are mapped and
preallocated; a sealed one is read-only, its files are opened when first used and may be closed again by `OpenFiles`.
Invariants: size_bytes counts whole batches; every index entry points at a batch below size_bytes.
What a crash leaves: a torn tail and stale indexes, mended by `recovery`. Who may call: `log` and `recovery`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import File, Files, ReadableBuffer
from penstock.records.batch import HEADER_BYTES, Batch, read_header
from penstock.storage import names
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.time_index import NO_TIMESTAMP, TimeIndex
from penstock.storage.transaction_index import TransactionIndex

RELATIVE_OFFSET_MAX = 2**31 - 1
_CHUNK_BYTES = 16 * 1024
_FILES_OF_A_SEGMENT = 3
_TAIL_BATCHES = 32


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class FileSlice(NamedTuple):
    """A stretch of a file. Holding it keeps the descriptor open, whatever happens to the name."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)


class Spot(NamedTuple):
    """Where a batch lies in its segment."""

    base_offset: int
    last_offset: int
    position: int
    size_bytes: int


class OpenFiles:
    """Bounds how many files of sealed segments hold a descriptor; the one used least recently lets go first.

    A log and each mapped index hold one. Below `files_max` are not those of active segments, which are always open, nor
    those that a reader still holds after they were let go.
    """

    def __init__(self, files_max: int = 512) -> None:
        assert files_max >= _FILES_OF_A_SEGMENT, "a segment's own files are used together"
        self._files_max = files_max
        self._open: OrderedDict[tuple[Segment, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def used(self, segment: Segment, kind: str) -> None:
        opened, key = self._open, (segment, kind)
        if key in opened:
            opened.move_to_end(key)
            return
        opened[key] = None
        if len(opened) > self._files_max:
            (victim, victim_kind), _ = opened.popitem(last=False)
            victim.release_file(victim_kind)

    def forget(self, segment: Segment) -> None:
        for kind in names.SEGMENT_SUFFIXES:
            self._open.pop((segment, kind), None)


class Segment:
    """What a sealed and an active segment share: reading."""

    __slots__ = (
        "_checked",
        "_file",
        "_files",
        "_first_timestamp",
        "_largest",
        "_open_files",
        "base_offset",
        "directory",
        "offset_index",
        "size_bytes",
        "suffix",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        size_bytes: int,
        open_files: OpenFiles,
        *,
        suffix: str = "",
    ) -> None:
        self._files = files
        self._open_files = open_files
        self._file: File | None = None
        self._checked = False
        self._first_timestamp: int | None = None
        self._largest: TimestampOffset | None = None
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.suffix = suffix
        self.offset_index = OffsetIndex(files, self.path(names.OFFSET_INDEX), base_offset)
        self.time_index = TimeIndex(files, self.path(names.TIME_INDEX), base_offset)
        self.transaction_index = TransactionIndex(files, self.path(names.TRANSACTION_INDEX))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory}, {self.base_offset}, {self.size_bytes} bytes)"

    def path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{kind}{self.suffix}"

    @property
    def file(self) -> File:
        self._open_files.used(self, names.LOG)
        if self._file is None:
            self._file = self._files.open_read(self.path(names.LOG))
        return self._file

    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """The indexes, open and looked over once; a bad one is rebuilt from the log here (KAFKA-7283)."""
        self._open_files.used(self, names.OFFSET_INDEX)
        self._open_files.used(self, names.TIME_INDEX)
        if not self.offset_index.is_open or not self.time_index.is_open:
            try:
                for index in (self.offset_index, self.time_index):
                    if not index.is_open:
                        index.open_sealed()
                if not self._checked:
                    self._check_indexes()
            except (CorruptFileError, FileNotFoundError):
                self.rebuild_indexes()
            self._checked = True
        return self.offset_index, self.time_index

    def _check_indexes(self) -> None:
        """CorruptFileError where an index contradicts itself, or its last entry the log. Reads one header."""
        self.offset_index.check()
        self.time_index.check()
        if self.size_bytes and not self.time_index.entries:
            raise CorruptFileError(self.time_index.path, "is empty, and its log is not")
        if self.offset_index.entries:
            last = self.offset_index.last()
            batch = next(self.headers(last.position), None)
            if batch is None or not self.base_offset <= batch.base_offset <= last.offset:
                raise CorruptFileError(self.offset_index.path, f"no batch for offset {last.offset} at {last.position}")

    def rebuild_indexes(self, index_interval_bytes: int = 4096) -> None:
        """Writes both indexes anew from the batches' headers. The segment's bytes are taken as good."""
        offset_index, time_index = self.offset_index, self.time_index
        for index in (offset_index, time_index):
            index.close()
            if self._files.exists(index.path):
                self._files.truncate(index.path, 0)
        entries_max = self.size_bytes // max(index_interval_bytes, 1) + 2
        offset_index.open_active(min(entries_max * 8, RELATIVE_OFFSET_MAX))
        time_index.open_active(min((entries_max + 1) * 12, RELATIVE_OFFSET_MAX))
        indexer = Indexer(offset_index, time_index, index_interval_bytes)
        with suppress(CorruptFileError):  # what lies before the damage can still be read
            indexer.add(self.headers(0))
        indexer.finish()
        self._largest = indexer.largest
        for index in (offset_index, time_index):
            index.sync()
            index.close()
        offset_index.open_sealed()
        time_index.open_sealed()

    def headers(self, position: int, end: int | None = None) -> Iterator[Batch]:
        """Headers of the batches from `position` on, whose `position` is the place in the file. Checks no CRC."""
        end = self.size_bytes if end is None else end
        file = self.file
        chunk, chunk_start = b"", position
        while position + HEADER_BYTES <= end:
            offset = position - chunk_start
            if offset < 0 or offset + HEADER_BYTES > len(chunk):
                chunk_start, offset = position, 0
                chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
                if len(chunk) < HEADER_BYTES:
                    return
            batch = read_header(chunk, offset)
            if batch.magic != 2 or not HEADER_BYTES <= batch.size_bytes <= end - position:
                reason = f"no whole batch begins at position {position}"
                if batch.magic in (0, 1):
                    reason += " (it may have record format 0 or 1, which is not supported)"
                raise CorruptFileError(self.path(names.LOG), reason)
            yield batch._replace(position=position)
            position += batch.size_bytes

    def find(self, offset: int) -> Batch | None:
        """The first batch whose last offset is at or above `offset`."""
        offset_index, _ = self.indexes()
        for batch in self.headers(offset_index.look_up(offset).position):
            if batch.last_offset >= offset:
                return batch
        return None

    def locate(self, offset: int) -> Spot | None:
        """Where the first batch lies whose last offset is at or above `offset`."""
        batch = self.find(offset)
        return None if batch is None else Spot(batch.base_offset, batch.last_offset, batch.position, batch.size_bytes)

    def end_offset(self) -> int:
        """One past the last offset, found from the last index entry on."""
        offset_index, _ = self.indexes()
        end_offset = self.base_offset
        for batch in self.headers(offset_index.last().position):
            end_offset = batch.last_offset + 1
        return end_offset

    def upper_offset(self, position: int) -> int | None:
        """An offset at or beyond every batch that starts below `position`, from the index alone; None: the segment's end."""
        offset_index, _ = self.indexes()
        entry = offset_index.first_beyond_position(position)
        return None if entry is None else entry.offset

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp in the segment, and the last offset of the first batch that has it."""
        if self._largest is None:
            _, time_index = self.indexes()
            if self._largest is None:  # a rebuild sets it
                self._largest = TimestampOffset(*time_index.last())
        return self._largest

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch: where `segment.ms` counts from; -1 where there is none."""
        if self._first_timestamp is None:
            if self.size_bytes == 0:
                return NO_TIMESTAMP
            self._first_timestamp = next(iter(self.headers(0))).max_timestamp
        return self._first_timestamp

    def modified_ms(self) -> int:
        return self._files.modified_ms(self.path(names.LOG))

    def all_paths(self) -> list[str]:
        """Files of the segment that exist, the log last, so that what is half removed is still a segment."""
        kinds = (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.LOG)
        return [path for path in map(self.path, kinds) if self._files.exists(path)]

    def rename(self, suffix: str) -> None:
        """Gives every file of the segment another temporary suffix ('' for none). Readers keep their descriptors."""
        moves = [(path, path.removesuffix(self.suffix) + suffix) for path in self.all_paths()]
        self.close()
        for source, target in moves:
            self._files.rename(source, target)
        self.suffix = suffix
        self.offset_index.path = self.path(names.OFFSET_INDEX)
        self.time_index.path = self.path(names.TIME_INDEX)
        self.transaction_index.path = self.path(names.TRANSACTION_INDEX)

    def release_file(self, kind: str) -> None:
        """Lets a descriptor go; it is opened again when used. A reader that holds the file keeps it open."""
        if kind == names.LOG:
            self._file = None
        elif kind == names.OFFSET_INDEX:
            self.offset_index.close()
        else:
            self.time_index.close()

    def close(self) -> None:
        self._open_files.forget(self)
        for kind in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            self.release_file(kind)
        self.transaction_index.close()


class Indexer:
    """Adds index entries for batches in order: the one rule for append, recovery, rebuild and compaction (S7, S8)."""

    __slots__ = ("_bytes_since_entry", "_interval_bytes", "_offset_index", "_time_index", "largest")

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, interval_bytes: int) -> None:
        self._offset_index = offset_index
        self._time_index = time_index
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        self.largest = TimestampOffset(*time_index.last())

    def add(self, batches: Iterable[Batch], shift: int = 0) -> None:
        """`shift` is added to each batch's position to give its place in the file."""
        for batch in batches:
            self.add_one(batch.last_offset, batch.max_timestamp, batch.position + shift, batch.size_bytes)

    def add_one(self, last_offset: int, max_timestamp: int, position: int, size_bytes: int) -> None:
        """A batch at `position` of the file. A full index takes no entry."""
        if max_timestamp > self.largest.timestamp:
            self.largest = TimestampOffset(max_timestamp, last_offset)
        since = self._bytes_since_entry
        if since > self._interval_bytes and not self._offset_index.is_full and not self._time_index.is_full:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(*self.largest)
            since = 0
        self._bytes_since_entry = since + size_bytes

    def finish(self) -> None:
        """The final time entry, at roll, close and recovery."""
        if self.largest.timestamp >= 0:
            self._time_index.maybe_append(*self.largest)


class ActiveSegment(Segment):
    """The last segment of a log: the only one that grows.

    It remembers where its last batches lie: who follows the end of a log, as replicas and most consumers do, is spared the way from
    the last index entry, up to `index.interval.bytes` of batches.
    """

    __slots__ = ("_indexer", "_tail", "_written_bytes", "created_ms", "preallocated")

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        open_files: OpenFiles,
        *,
        index_interval_bytes: int,
        index_bytes_max: int,
        created_ms: int,
        preallocate_bytes: int = 0,
        suffix: str = "",
    ) -> None:
        super().__init__(files, directory, base_offset, 0, open_files, suffix=suffix)
        path = self.path(names.LOG)
        if files.exists(path):
            self._file = files.open(path)
            self.size_bytes = self._file.size()
        else:
            self._file = files.create(path, preallocate_bytes=preallocate_bytes)
        self.preallocated = preallocate_bytes > 0
        self.created_ms = created_ms
        self.offset_index.open_active(index_bytes_max)
        self.time_index.open_active(index_bytes_max)
        self._indexer = Indexer(self.offset_index, self.time_index, index_interval_bytes)
        self._tail: deque[Spot] = deque(maxlen=_TAIL_BATCHES)

    @property
    def file(self) -> File:
        assert self._file is not None, "the segment is closed"
        return self._file

    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        return self.offset_index, self.time_index

    @property
    def largest(self) -> TimestampOffset:
        return self._indexer.largest

    def append(self, data: ReadableBuffer, batches: Sequence[Batch]) -> None:
        """Writes batches that lie back to back in `data`, the first at position 0 of it. The caller checked everything."""
        position = self.size_bytes
        if position == 0:
            self._first_timestamp = batches[0].max_timestamp
        self.file.pwrite(data, position)
        self._indexer.add(batches, position)
        self.size_bytes = position + len(data)
        tail = self._tail
        for batch in batches[-_TAIL_BATCHES:]:
            spot = (batch.base_offset, batch.last_offset, position + batch.position, batch.size_bytes)
            tail.append(tuple.__new__(Spot, spot))  # its own constructor is interpreted; this is not

    def append_placed(self, data: bytes, base_offset: int, placed: Sequence[tuple[int, int, int]]) -> None:
        """The same for batches of which only last offset, greatest timestamp and size are told; the first begins at `base_offset`."""
        position = self.size_bytes
        if position == 0:
            self._first_timestamp = placed[0][1]
        self.file.pwrite(data, position)
        add_one, tail = self._indexer.add_one, self._tail
        for last_offset, max_timestamp, size_bytes in placed:
            add_one(last_offset, max_timestamp, position, size_bytes)
            tail.append(tuple.__new__(Spot, (base_offset, last_offset, position, size_bytes)))
            position += size_bytes
            base_offset = last_offset + 1
        self.size_bytes = position

    def locate(self, offset: int) -> Spot | None:
        found = None
        for spot in reversed(self._tail):
            if spot.last_offset < offset:
                return found
            found = spot
        return super().locate(offset)

    @property
    def batches_max(self) -> int:
        """How many batches may be appended before somebody asks again whether there is room in the indexes: each may add an entry."""
        if self.size_bytes == 0:
            return 1  # the first says from when on the segment's time counts
        offset_index, time_index = self.offset_index, self.time_index
        return min(offset_index.capacity - offset_index.entries, time_index.capacity - 1 - time_index.entries)

    def has_room_for(self, last_offset: int) -> bool:
        """Whether a batch up to `last_offset` fits: relative offsets are int32, and neither index is full."""
        offset_index, time_index = self.offset_index, self.time_index
        return (
            last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and offset_index.entries < offset_index.capacity
            and time_index.entries < time_index.capacity - 1
        )

    def truncate_to(self, offset: int) -> int:
        """Cuts every batch that holds `offset` or more; where the segment ends then: whole batches remain."""
        batch = self.find(offset)
        if batch is None:
            return offset
        self._tail.clear()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.file.truncate(batch.position)
        self.size_bytes = batch.position
        if self.size_bytes == 0:
            self._first_timestamp = None
        self._indexer = Indexer(self.offset_index, self.time_index, self._indexer._interval_bytes)
        self._raise_largest()
        return min(offset, batch.base_offset)

    def _raise_largest(self) -> None:
        """After a cut: timestamps behind the last time entry count again."""
        start = self.offset_index.look_up(self._indexer.largest.offset).position
        for batch in self.headers(start):
            if batch.max_timestamp > self._indexer.largest.timestamp:
                self._indexer.largest = TimestampOffset(batch.max_timestamp, batch.last_offset)

    def finish_indexes(self) -> None:
        self._indexer.finish()

    @property
    def is_finished(self) -> bool:
        """Whether closing it changes nothing but the spare room of its indexes, which a start forgets anyway."""
        return not self.preallocated and self._indexer.largest.timestamp <= self.time_index.last().timestamp

    def seal(self) -> Segment:
        """The same segment, read-only: final time entry, indexes and a preallocated file trimmed."""
        self._indexer.finish()
        if self.preallocated:
            self.file.truncate(self.size_bytes)
        sealed = Segment(self._files, self.directory, self.base_offset, self.size_bytes, self._open_files)
        sealed._largest = self._indexer.largest
        sealed._first_timestamp = self._first_timestamp
        self.close()
        return sealed

    def sync(self) -> None:
        self.file.sync()
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()
