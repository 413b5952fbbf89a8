"""Producer state from the log itself: snapshots first, then the batches after them, and those before that may be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from penstock.base.errors import CorruptFileError
from penstock.base.files import ReadableBuffer
from penstock.records.batch import Batch, records_slice
from penstock.records.build import ControlType, read_control, read_end_marker
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import Snapshots
from penstock.storage.producer_state import BATCHES_KEPT, EndMarker, ProducerBatch, Producers
from penstock.storage.segment import Segment

_LOOKED_AT_MAX = 1_000
"""Batches that are looked at for what a snapshot leaves out: who wrote none of so many has nothing on its way."""
_SMALL_BYTES = 64 * 1024


def end_marker(data: ReadableBuffer, batch: Batch) -> EndMarker | None:
    """How the transaction ended, from a control batch's bytes; None where its record was compacted away."""
    if batch.record_count == 0:
        return None
    start, end = records_slice(batch)
    if read_control(data, start, end)[1] not in (ControlType.COMMIT, ControlType.ABORT):
        return None  # a kind of control record that ends no transaction
    control_type, coordinator_epoch = read_end_marker(data, start, end)
    return EndMarker(control_type is ControlType.COMMIT, coordinator_epoch)


def restore_snapshot(producers: Producers, snapshots: Snapshots, end_offset: int) -> int:
    """Loads the newest snapshot at or below `end_offset` that is whole; returns its offset, 0 where there is none."""
    while (offset := snapshots.latest_at_or_below(end_offset)) is not None:
        try:
            producers.restore(snapshots.read(offset))
            return offset
        except (CorruptFileError, FileNotFoundError):
            snapshots.remove(offset)
    producers.clear()
    return 0


def rebuild(producers: Producers, snapshots: Snapshots, log: Log, log_start_offset: int) -> None:
    """The state at the log's end: the newest good snapshot at or below it, and the batches after that."""
    start_offset = max(restore_snapshot(producers, snapshots, log.end.offset), log_start_offset)
    recall(producers, log, start_offset)
    for segment in log.from_offset(start_offset):
        replay(producers, segment, start_offset)


def recall(producers: Producers, log: Log, offset: int) -> None:
    """Finds in the log before `offset` what a snapshot taken there leaves out: each producer's batches before its last one.

    A client has up to five on their way when its leader goes, and sends them all again, the oldest first. A broker that came back
    from a clean stop, and leads again before the client has found its way, must know every one of them for a duplicate.
    """
    wanting = {one.producer_id: one for one in producers.values() if one.batches and one.batches[0].base_sequence > 0}
    if not wanting:
        return
    for batch in islice(_before(log, offset), _LOOKED_AT_MAX):
        producer = wanting.get(batch.producer_id)
        if producer is None or batch.is_control or batch.last_offset >= producer.batches[0].base_offset:
            continue
        if batch.producer_epoch == producer.epoch:
            delta = batch.last_offset - batch.base_offset
            producer.batches.appendleft(
                ProducerBatch(batch.last_sequence, batch.last_offset, delta, batch.max_timestamp)
            )
            if len(producer.batches) < BATCHES_KEPT and batch.base_sequence > 0:
                continue
        del wanting[batch.producer_id]
        if not wanting:
            return


def _before(log: Log, offset: int) -> Iterator[Batch]:
    """The batches that end before `offset`, the last one first; none of a segment that cannot be read, nor before it."""
    following = log.end.offset
    for segment in reversed(log.segments):
        if segment.base_offset < offset:
            try:
                yield from _backwards(segment, offset if offset < following else None)
            except CorruptFileError:
                return
        following = segment.base_offset


def _backwards(segment: Segment, offset: int | None) -> Iterator[Batch]:
    """The segment's batches from the one before `offset`, or from its last one. A small one's indexes are left alone."""
    end = segment.size_bytes
    first = None if offset is None else segment.find(offset)
    if first is not None:
        end = first.position
    if end > _SMALL_BYTES:
        offset_index, _ = segment.indexes()
        for slot in range(offset_index.entries - 1, -1, -1):
            position = offset_index.entry(slot).position
            if position < end:
                yield from _reversed(segment.headers(position, end))
                end = position
    yield from _reversed(segment.headers(0, end))


def _reversed(batches: Iterator[Batch]) -> Iterator[Batch]:
    return reversed(deque(batches, maxlen=_LOOKED_AT_MAX))


def replay(producers: Producers, segment: Segment, start_offset: int) -> None:
    """Takes the segment's batches from `start_offset` on into the producers' state."""
    position = 0
    if start_offset > segment.base_offset:
        found = segment.find(start_offset)
        if found is None:
            return
        position = found.position
    for header in segment.headers(position):
        if header.producer_id < 0:
            continue
        marker = None
        if header.is_control:
            data = segment.file.pread(header.size_bytes, header.position)
            marker = end_marker(data, header._replace(position=0))
        completed = producers.update(header, marker)
        if completed is not None:
            producers.complete(completed)
