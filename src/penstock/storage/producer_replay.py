"""Producer state from the log itself: snapshots first, then the batches after them."""

from __future__ import annotations

from penstock.base.errors import CorruptFileError
from penstock.base.files import ReadableBuffer
from penstock.records.batch import Batch, records_slice
from penstock.records.build import ControlType, read_control, read_end_marker
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import Snapshots
from penstock.storage.producer_state import EndMarker, Producers
from penstock.storage.segment import Segment


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
    for segment in log.from_offset(start_offset):
        replay(producers, segment, start_offset)


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
