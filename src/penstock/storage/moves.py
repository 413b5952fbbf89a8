"""A replica moved between two log directories of one broker.

What it is: a copy of the log in a directory `T-P.UUID-future` of the target, as Kafka calls it, filled as a follower is
    filled, batch by batch.
A crash leaves a `-future` directory beside the log it was copied from: the move is begun anew. Or alone: then the old
    log was taken away after the copy was whole and on disk, and the copy takes its place.
Who may call: `copy` runs on a thread, one at a time for each move; everything else on the loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import StorageError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints, names
from penstock.storage.directory_state import DirectoryState
from penstock.storage.load import LoadRequest
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog

COPY_BYTES = 1 << 20


class Stretch(NamedTuple):
    copy: Callable[[], None]
    is_last: bool
    """Whether the copy then has everything there is now."""


class Move:
    """One replica on its way."""

    def __init__(self, directories: LogDirectories, files: Files, source: PartitionLog, target: DirectoryState) -> None:
        self.partition = source.partition
        self.source = source
        self.target = target
        self._directories = directories
        self._files = files
        self._cuts = source.cuts
        self._path = ""
        self.future: PartitionLog | None = None

    def begin(self, unique: uuid.UUID) -> None:
        """Makes the empty copy. OSError means the target's disk. On a thread or the loop, before anything else."""
        source = self.source
        self._path = f"{self.target.path}/{names.future_directory(self.partition, unique)}"
        self._files.make_directory(self._path)
        if source.topic_id is not None:
            checkpoints.write_topic_id(self._files, self._path, source.topic_id)
        self._files.sync_directory(self.target.path)
        request = LoadRequest(self.partition, self._path, source.config, clean=True)
        self.future = self._directories.open_log(self.target, request)
        self.future.topic_id = source.topic_id

    @property
    def is_void(self) -> bool:
        """Whether the log was cut since: the copy may hold what it lost, or what was read while it was written anew."""
        return self.source.cuts != self._cuts

    @property
    def offset_lag(self) -> int:
        return self.source.end_offset - (0 if self.future is None else self.future.end_offset)

    def next_stretch(self) -> Stretch | None:
        """What is to be copied next; None when the copy has everything there is now."""
        source, future = self.source, self.future
        assert future is not None
        if future.end_offset < source.log_start_offset:
            self._skip_to_start()
        if future.end_offset >= source.end_offset:
            return None
        end = source.log.end
        found = source.log.read(future.end_offset, min(COPY_BYTES, source.config.segment_bytes), end, 2**31 - 1)
        assert found is not None, "there are records between the ends of copy and log"
        part = found.slice

        def copy() -> None:
            data = part.file.pread(part.length, part.position)
            if len(data) < part.length:
                raise StorageError(f"{source.directory} was cut while it was copied")
            future.append_as_follower(data)

        reaches_end = part.position + part.length >= end.position
        return Stretch(copy, found.segment.base_offset == end.segment_base and reaches_end)

    def _skip_to_start(self) -> None:
        """What retention took meanwhile, or before: the copy starts with the batch that holds the log's start."""
        source, future = self.source, self.future
        assert future is not None
        start = source.log_start_offset
        found = source.log.read(start, 1, source.log.end, 2**31 - 1) if start < source.end_offset else None
        first = start if found is None else min(found.first.base_offset, start)
        if first > future.end_offset:
            future.truncate_fully(first)

    def finish(self) -> tuple[PartitionLog, Callable[[], None]]:
        """The copy, which has everything, becomes the partition's log. Waits for the disk, shortly: all but the tail was
        flushed before. The returned job removes the old files, off the loop."""
        source, future, directories = self.source, self.future, self._directories
        assert future is not None
        assert future.end_offset == source.end_offset
        future.raise_log_start(source.log_start_offset)
        future.producers = source.producers  # also those whose batches are gone
        future.leader_epochs.clear()
        for entry in source.leader_epochs.entries:
            future.leader_epochs.assign(entry.epoch, entry.start_offset)
        future.close()
        future.abandon()
        self._remember_start()
        request = LoadRequest(
            self.partition,
            f"{self.target.path}/{names.partition_directory(self.partition)}",
            source.config,
            clean=True,
            recovery_point=future.recovery_point,
            log_start_offset=source.log_start_offset,
            high_watermark=source.high_watermark,
        )
        # The old log first: of the two only the copy is left then, and that is what a start recognises it by.
        remove_old = directories.delete(self.partition)
        sync_names = directories.sync_names()
        assert sync_names is not None
        sync_names()
        try:
            self._files.rename(self._path, request.directory)
            self._files.sync_directory(self.target.path)
            log = directories.open_log(self.target, request)
        except OSError as error:
            raise self.target.health.fail(error) from error
        log.topic_id = source.topic_id
        log.epoch = source.epoch + 1
        log.assign_epoch(source.leader_epochs.latest)  # also one in which nothing was written: loading leaves it out
        directories.settle(self.partition, log, self.target)
        return log, remove_old

    def _remember_start(self) -> None:
        """A start within a segment is remembered before the copy counts: deleted records stay deleted."""
        path = f"{self.target.path}/{names.LOG_STARTS}"
        try:
            known = checkpoints.read_offsets(self._files, path)
            checkpoints.write_offsets(self._files, path, {**known, self.partition: self.source.log_start_offset})
        except OSError as error:
            raise self.target.health.fail(error) from error

    def cancel(self) -> Callable[[], None] | None:
        """Gives up; the returned job removes the copy, off the loop."""
        future, path = self.future, self._path
        if future is None:
            return None
        future.abandon()
        return lambda: self._directories.remove_tree(path)


def take_unfinished(
    directories: LogDirectories, is_expected: Callable[[TopicPartition, uuid.UUID | None], bool], files: Files
) -> dict[TopicPartition, DirectoryState]:
    """What crashes left of moves. Returns the partitions whose move is to begin anew, with the directory they go to.

    `is_expected` says whether a partition with this topic id should be on this broker.
    """
    again: dict[TopicPartition, DirectoryState] = {}
    for state, name, partition in _found(directories, files):
        path = f"{state.path}/{name}"
        topic_id = checkpoints.read_topic_id(files, path)
        if partition in directories.logs:
            directories.remove_tree(path)
            again[partition] = state
        elif directories.offline:
            continue  # the log it is copied from may lie there
        elif is_expected(partition, topic_id):
            files.rename(path, f"{state.path}/{names.partition_directory(partition)}")
            files.sync_directory(state.path)
            log = directories.open_log(state, directories.request_for(state, partition))
            log.topic_id = topic_id
            directories.settle(partition, log, state)
        else:
            directories.remove_tree(path)
    return again


def _found(directories: LogDirectories, files: Files) -> list[tuple[DirectoryState, str, TopicPartition]]:
    return [
        (state, name, partition)
        for state in directories.directories
        for name in files.list(state.path)
        if (partition := names.parse_future_directory(name)) is not None and files.is_directory(f"{state.path}/{name}")
    ]
