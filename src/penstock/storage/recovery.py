"""Recovery of one segment after an unclean stop (row S16): what is good is kept, what follows it is cut.

Walks the batches from the segment's first byte, checks size, magic, CRC and offsets, writes both indexes anew, and
notes what producers and epochs need to know. Cut bytes are kept beside the segment as `.cut`. Safe on any thread: it
touches one segment's files only. A crash in the middle is recovered by running it again.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import UnsupportedForMessageFormatError
from penstock.base.files import File, Files
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD, STOP_SENTENCES, Batch, Stop, read_header, scan
from penstock.storage import names
from penstock.storage.checkpoints import EpochStart
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.producer_replay import end_marker
from penstock.storage.producer_state import EndMarker
from penstock.storage.segment import RELATIVE_OFFSET_MAX, Indexer
from penstock.storage.time_index import TimeIndex

_CHUNK_BYTES = 4 * 1024 * 1024
_NOTE_FIELDS = 9
_OLD_HEAD = struct.Struct(">qiIb")  # offset, size, CRC-32, magic: formats 0 and 1
_OLD_SIZE_MIN = 14


class ProducerNotes:
    """The batches of producers in a segment, 72 bytes each, so that many segments can wait for their turn."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields = array("q")

    def add(self, batch: Batch, marker: EndMarker | None) -> None:
        ending = -1 if marker is None else int(marker.commit)
        self._fields.extend(
            (
                batch.base_offset,
                batch.last_offset,
                batch.attributes,
                batch.max_timestamp,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                ending,
                -1 if marker is None else marker.coordinator_epoch,
            )
        )

    def __iter__(self) -> Iterator[tuple[Batch, EndMarker | None]]:
        fields = self._fields
        for start in range(0, len(fields), _NOTE_FIELDS):
            base, last, attributes, timestamp, producer, epoch, sequence, ending, coordinator = fields[
                start : start + _NOTE_FIELDS
            ]
            batch = Batch(0, 0, base, last, -1, 2, 0, attributes, timestamp, timestamp, producer, epoch, sequence, 0)
            yield batch, None if ending < 0 else EndMarker(bool(ending), coordinator)


class SegmentReport(NamedTuple):
    """What recovery found in one segment."""

    base_offset: int
    end_offset: int
    size_bytes: int
    cut_bytes: int
    reason: str
    """Why it was cut; '' where nothing was."""
    epochs: list[EpochStart]
    producers: ProducerNotes
    cut_is_padding: bool = True
    """Nothing but zeroes was cut, if anything."""
    overflows: bool = False
    """Good batches follow whose offsets this segment cannot hold: nothing was cut, it has to be split."""


class SegmentWalk:
    """Batches of a file from its start, each checked; afterwards `position`, `end_offset` and `reason` say where it ended."""

    def __init__(self, file: File, base_offset: int, *, relative_offset_max: int | None = RELATIVE_OFFSET_MAX) -> None:
        self._file = file
        self._last_offset_max = None if relative_offset_max is None else base_offset + relative_offset_max
        self.overflows = False
        self.position = 0
        self.end_offset = base_offset
        self.reason = ""

    def chunks(self) -> Iterator[tuple[bytes, list[Batch]]]:
        """Stretches of the file and the good batches in each, whose positions count within the stretch."""
        size = self._file.size()
        wanted = _CHUNK_BYTES
        while self.position < size:
            data = self._file.pread(min(wanted, size - self.position), self.position)
            found = scan(data)
            batches = self._in_order(found.batches)
            at_end = self.position + len(data) >= size
            if batches:
                yield data, batches
                self.position += batches[-1].end_position
            if len(batches) < len(found.batches):
                return
            if found.stop is Stop.COMPLETE:
                wanted = _CHUNK_BYTES
                continue
            if found.stop is Stop.INCOMPLETE and not at_end:
                wanted = self._size_of_next(data[found.end : found.end + HEADER_BYTES])
                if wanted <= max(_CHUNK_BYTES, size - self.position):
                    continue
            if found.stop is Stop.OLD_MAGIC:
                refuse_old_format(self._file, self.position)
            self.reason = STOP_SENTENCES[found.stop]
            return

    def _size_of_next(self, head: bytes) -> int:
        """How much to read for the batch that a chunk cut off."""
        return max(_CHUNK_BYTES, read_header(head).size_bytes) if len(head) == HEADER_BYTES else _CHUNK_BYTES

    def _in_order(self, batches: list[Batch]) -> list[Batch]:
        expected = self.end_offset
        for slot, batch in enumerate(batches):
            if batch.base_offset < expected:
                self.reason = f"a batch at offset {batch.base_offset} follows offset {expected - 1}"
                return batches[:slot]
            if self._last_offset_max is not None and batch.last_offset > self._last_offset_max:
                self.reason = f"offset {batch.last_offset} is too far above the segment's base"
                self.overflows = True
                return batches[:slot]
            expected = self.end_offset = batch.last_offset + 1
        return batches


def refuse_old_format(file: File, position: int) -> None:
    """Raises where a message of format 0 or 1 begins, by its own CRC-32: it is good, and cutting it would lose it.

    Without that proof it is a torn header like any other, and no reason to refuse.
    """
    head = file.pread(_OLD_HEAD.size, position)
    if len(head) < _OLD_HEAD.size:
        return
    _, size, crc, magic = _OLD_HEAD.unpack(head)
    if magic not in (0, 1) or not _OLD_SIZE_MIN <= size <= file.size() - position - LOG_OVERHEAD:
        return
    if zlib.crc32(file.pread(size - 4, position + LOG_OVERHEAD + 4)) == crc:
        raise UnsupportedForMessageFormatError(
            f"{file.path} holds record format 0 or 1 at position {position}, which is not supported; "
            "let Kafka 3.x rewrite it first (nothing was cut)"
        )


def recover_segment(files: Files, directory: str, base_offset: int, index_interval_bytes: int) -> SegmentReport:
    """Makes one segment whole. Its indexes are rebuilt, its tail is cut at the first bad batch."""
    path = f"{directory}/{names.segment_file(base_offset, names.LOG)}"
    file = files.open(path)
    refuse_old_format(file, 0)
    offset_index = OffsetIndex(files, _fresh(files, directory, base_offset, names.OFFSET_INDEX), base_offset)
    time_index = TimeIndex(files, _fresh(files, directory, base_offset, names.TIME_INDEX), base_offset)
    try:
        size_before = file.size()
        entries_max = size_before // max(index_interval_bytes, HEADER_BYTES) + 4
        offset_index.open_active(entries_max * 8)
        time_index.open_active((entries_max + 1) * 12)
        indexer = Indexer(offset_index, time_index, index_interval_bytes)
        epochs: list[EpochStart] = []
        notes = ProducerNotes()
        walk = SegmentWalk(file, base_offset)
        for data, batches in walk.chunks():
            indexer.add(batches, walk.position)
            for batch in batches:
                if not epochs or batch.leader_epoch > epochs[-1].epoch:
                    epochs.append(EpochStart(batch.leader_epoch, batch.base_offset))
                if batch.producer_id >= 0:
                    notes.add(batch, end_marker(data, batch) if batch.is_control else None)
        indexer.finish()
        cut_bytes = 0 if walk.overflows else size_before - walk.position
        is_padding = True
        if cut_bytes:
            is_padding = not _keep_cut(files, file, path, walk.position, cut_bytes)
            file.truncate(walk.position)
    finally:
        file.close()
        offset_index.close()
        time_index.close()
    return SegmentReport(
        base_offset, walk.end_offset, walk.position, cut_bytes, walk.reason, epochs, notes, is_padding, walk.overflows
    )


def _fresh(files: Files, directory: str, base_offset: int, kind: str) -> str:
    path = f"{directory}/{names.segment_file(base_offset, kind)}"
    if files.exists(path):
        files.truncate(path, 0)
    return path


def _keep_cut(files: Files, file: File, path: str, position: int, length: int) -> bool:
    """Saves what is about to be cut as `NAME.POSITION.cut`; a tail of zeroes is not data. Says whether it did."""
    target = f"{path}.{position}{names.CUT}"
    copy: File | None = None
    copied = 0
    while copied < length:
        data = file.pread(min(_CHUNK_BYTES, length - copied), position + copied)
        if copy is None and data.strip(b"\0"):
            if files.exists(target):
                files.remove(target)
            copy = files.create(target)
        if copy is not None:
            copy.pwrite(data, copied)
        copied += len(data)
    if copy is None:
        return False
    copy.sync()
    copy.close()
    return True
