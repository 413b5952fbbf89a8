"""Questions about time (row S8): which offset a timestamp leads to, and where the newest record lies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.records import payload
from penstock.records.batch import Batch
from penstock.storage.cleaner import uncompressed
from penstock.storage.partition_log import PartitionLog
from penstock.storage.segment import Segment


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    """The first record at or after `timestamp`, in offset order; None where no record is that late."""
    log.check_online()
    try:
        for segment in log.log.segments:
            if segment.size_bytes and segment.largest.timestamp >= timestamp:
                found = _search(segment, timestamp, log.log_start_offset)
                if found is not None:
                    return found
    except OSError as error:
        raise log.failed(error) from error
    return None


def _search(segment: Segment, timestamp: int, log_start_offset: int) -> FoundOffset | None:
    offset_index, time_index = segment.indexes()
    start_offset = max(time_index.look_up(timestamp).offset, log_start_offset)
    for header in segment.headers(offset_index.look_up(start_offset).position):
        if header.max_timestamp >= timestamp and header.last_offset >= log_start_offset:
            for offset, stamp in batch_timestamps(segment, header):
                if stamp >= timestamp and offset >= log_start_offset:
                    return FoundOffset(stamp, offset, header.leader_epoch)
    return None


def offset_of_max_timestamp(log: PartitionLog) -> FoundOffset | None:
    """The first record with the largest timestamp in the log, at or above its start; None where no record has one."""
    log.check_online()
    try:
        return _newest_of_all(log)
    except OSError as error:
        raise log.failed(error) from error


def _newest_of_all(log: PartitionLog) -> FoundOffset | None:
    best: FoundOffset | None = None
    segments = [segment for segment in log.log.from_offset(log.log_start_offset) if segment.size_bytes]
    for segment in sorted(segments, key=lambda candidate: -candidate.largest.timestamp):
        if segment.largest.timestamp < (0 if best is None else best.timestamp):
            break
        found = _newest(segment, log.log_start_offset)
        if found is not None and (best is None or (-found.timestamp, found.offset) < (-best.timestamp, best.offset)):
            best = found
    return best


def _newest(segment: Segment, log_start_offset: int) -> FoundOffset | None:
    """The same for one segment: by its time index, or by a walk where that points at what nobody can read any more."""
    largest = segment.largest
    header = segment.find(largest.offset)
    if header is not None:
        for offset, stamp in batch_timestamps(segment, header):
            if stamp == largest.timestamp and offset >= log_start_offset:
                return FoundOffset(stamp, offset, header.leader_epoch)
    best: FoundOffset | None = None
    for header in segment.headers(0):
        if header.last_offset < log_start_offset or header.max_timestamp <= (-1 if best is None else best.timestamp):
            continue
        for offset, stamp in batch_timestamps(segment, header):
            if offset >= log_start_offset and stamp > (-1 if best is None else best.timestamp):
                best = FoundOffset(stamp, offset, header.leader_epoch)
    return best


def batch_timestamps(segment: Segment, header: Batch) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record of a batch. One batch only: not for hot paths."""
    data = segment.file.pread(header.size_bytes, header.position)
    return record_timestamps(data, header._replace(position=0))


def record_timestamps(data: bytes, batch: Batch) -> Iterator[tuple[int, int]]:
    """The same of a batch of `data`."""
    body, start, end = uncompressed(data, batch)
    rows = payload.columns(body, start, end, batch.record_count)
    for slot in range(batch.record_count):
        stamp = batch.base_timestamp + rows.timestamp_delta[slot]
        yield (
            batch.base_offset + rows.offset_delta[slot],
            batch.max_timestamp if batch.is_log_append_time else stamp,
        )
