"""Logs that are made before they are needed: what is slow about creating many partitions, off the loop.

A job makes and syncs the directories and opens the logs; whoever creates a partition then takes its log from here. What
the job could not do is done at that moment, and meets the same error.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints, names
from penstock.storage.config import LogConfig
from penstock.storage.directory_state import DirectoryState
from penstock.storage.load import LoadRequest
from penstock.storage.partition_log import PartitionLog


class Wanted(NamedTuple):
    """What a partition's log must be made of."""

    topic_id: uuid.UUID | None
    config: LogConfig


class NewLog:
    __slots__ = ("log", "state", "wanted")

    def __init__(self, state: DirectoryState, wanted: Wanted) -> None:
        self.state = state
        self.wanted = wanted
        self.log: PartitionLog | None = None
        """None until its directory is made and synced, and it is open."""


class NewLogs:
    def __init__(self, files: Files, open_log: Callable[[DirectoryState, LoadRequest], PartitionLog]) -> None:
        self._files = files
        self._open_log = open_log
        self._prepared: dict[TopicPartition, NewLog] = {}

    def states(self) -> list[DirectoryState]:
        """Where those that are prepared will live."""
        return [new.state for new in self._prepared.values()]

    def prepare(
        self, wanted: Mapping[TopicPartition, Wanted], choose: Callable[[], DirectoryState]
    ) -> Callable[[], None] | None:
        """The job that makes these, for a thread; None where there are none."""
        for partition, one in wanted.items():
            self._drop(partition)
            self._prepared[partition] = NewLog(choose(), one)
        fresh = {partition: self._prepared[partition] for partition in wanted}
        return partial(self._make_all, fresh) if fresh else None

    def take(self, partition: TopicPartition, wanted: Wanted, choose: Callable[[], DirectoryState]) -> NewLog:
        """What was prepared, where it was prepared as it is wanted; else a new one whose log is still to be made."""
        new = self._prepared.get(partition)
        if new is None or new.wanted != wanted:
            self._drop(partition)
            return NewLog(choose(), wanted)
        return self._prepared.pop(partition)

    def make(self, partition: TopicPartition, new: NewLog) -> PartitionLog:
        """Here and now."""
        self._make_directory(partition, new)
        self._files.sync_directory(new.state.path)
        return self._open(partition, new)

    def drop_all(self) -> None:
        for partition in list(self._prepared):
            self._drop(partition)

    def _drop(self, partition: TopicPartition) -> None:
        new = self._prepared.pop(partition, None)
        if new is not None and new.log is not None:
            new.log.abandon()

    def _make_all(self, fresh: Mapping[TopicPartition, NewLog]) -> None:
        for partition, new in fresh.items():
            self._make_directory(partition, new)
        for state in {new.state for new in fresh.values()}:
            self._files.sync_directory(state.path)
        for partition, new in fresh.items():
            new.log = self._open(partition, new)

    def _make_directory(self, partition: TopicPartition, new: NewLog) -> None:
        path = _path(partition, new)
        if not self._files.exists(path):
            self._files.make_directory(path)
        if new.wanted.topic_id is not None:
            checkpoints.write_topic_id(self._files, path, new.wanted.topic_id)

    def _open(self, partition: TopicPartition, new: NewLog) -> PartitionLog:
        request = LoadRequest(partition, _path(partition, new), new.wanted.config, clean=True)
        log = self._open_log(new.state, request)
        log.topic_id = new.wanted.topic_id
        return log


def _path(partition: TopicPartition, new: NewLog) -> str:
    return f"{new.state.path}/{names.partition_directory(partition)}"
