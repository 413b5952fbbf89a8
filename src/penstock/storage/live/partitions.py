"""The partitions of a log directory, seen from beside its broker: which there are, whose they are, where they begin and end."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from penstock.base.errors import CorruptFileError, LogDirectoryError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition, topic_id_text
from penstock.storage import checkpoints, directory_contents, names
from penstock.storage.live.errors import LiveLogError
from penstock.storage.live.read import LOG_END, read_batches
from penstock.storage.live.segments import last_indexed_offset, list_segments
from penstock.storage.live.transactions import last_stable_offset
from penstock.storage.timestamps import record_timestamps


class LivePartition(NamedTuple):
    """A partition of a log directory."""

    log_directory: str
    partition: TopicPartition

    @property
    def directory(self) -> str:
        return f"{self.log_directory}/{names.partition_directory(self.partition)}"


def find_partitions(files: Files, log_directory: str) -> list[LivePartition]:
    """All of a log directory; LiveLogError where it is none, or cannot be read."""
    try:
        return [LivePartition(log_directory, one) for one in directory_contents.partitions_in(files, log_directory)]
    except OSError as error:
        raise LiveLogError(f"{log_directory}: {error.strerror}") from error
    except LogDirectoryError as error:
        raise LiveLogError(str(error)) from error


def check_owner(files: Files, place: LivePartition, *, cluster_id: str | None, node_id: int, topic_id: bytes) -> None:
    """LiveLogError unless the directory is that broker's, of that cluster, and the log that topic's."""
    path = place.log_directory
    try:
        if not files.is_directory(path):
            raise LiveLogError(f"{path} is no directory of this machine")
        owner = directory_contents.owner_of(files, path)
        for what, found, wanted in (("cluster", owner.cluster_id, cluster_id), ("node", owner.node_id, str(node_id))):
            if found is None or found != wanted:
                says = f"says {found}" if found is not None else "does not say"
                raise LiveLogError(f"{path}/{names.META_PROPERTIES} {says}, where {what} {wanted} is asked for")
        if not files.is_directory(place.directory):
            raise LiveLogError(f"{place.directory} is not there")
        known = checkpoints.read_topic_id(files, place.directory)
    except CorruptFileError as error:
        raise LiveLogError(str(error)) from error
    except OSError as error:
        raise LiveLogError(f"{error.filename or path}: {error.strerror}") from error
    wanted_id = uuid.UUID(bytes=topic_id)
    if known != wanted_id:
        says = "is missing" if known is None else f"says {topic_id_text(known)}"
        raise LiveLogError(
            f"{place.directory}/{names.PARTITION_METADATA} {says}, where topic id {topic_id_text(wanted_id)} is asked for"
        )


def start_offset(files: Files, place: LivePartition) -> int:
    """Where the log begins: its first segment, or later if records were deleted up to an offset."""
    segments = list_segments(files, place.directory).segments
    if not segments:
        raise LiveLogError(f"{place.directory} holds no segment")
    remembered = directory_contents.read_offsets(files, f"{place.log_directory}/{names.LOG_STARTS}")
    return max(segments[0].base_offset, remembered.get(place.partition, 0))


def high_watermark(files: Files, place: LivePartition) -> int:
    """What the broker wrote down last: up to `replica.high.watermark.checkpoint.interval.ms` ago (5 s)."""
    path = f"{place.log_directory}/{names.HIGH_WATERMARKS}"
    known = directory_contents.read_offsets(files, path).get(place.partition)
    if known is None:
        raise LiveLogError(f"{path} does not name {place.partition}: endingOffsets=log_end reads up to the log's end")
    return known


def log_end_offset(files: Files, place: LivePartition) -> int:
    """One past the last whole batch."""
    end = start_offset(files, place)
    segments = list_segments(files, place.directory).segments
    near = max(end, last_indexed_offset(files, place.directory, segments[-1]))
    end = max(end, segments[-1].base_offset)
    for stretch in read_batches(files, place.directory, near, LOG_END):
        end = stretch.batches[-1].end_offset
    return end


def stable_offset(files: Files, place: LivePartition, end_offset: int) -> int:
    """The last stable offset, if the high watermark were at `end_offset`."""
    begin = start_offset(files, place)
    return last_stable_offset(files, place.directory, begin, end_offset) if begin < end_offset else end_offset


def offset_at_time(files: Files, place: LivePartition, timestamp: int, end_offset: int) -> int | None:
    """The first record at or after `timestamp`, in offset order; None where none below `end_offset` is that late."""
    begin = start_offset(files, place)
    for stretch in read_batches(files, place.directory, begin, end_offset, time_ms_min=timestamp):
        for batch in stretch.batches:
            if batch.is_control or batch.max_timestamp < timestamp:
                continue
            for offset, stamp in record_timestamps(stretch.data, batch):
                if stamp >= timestamp and begin <= offset < end_offset:
                    return offset
    return None
