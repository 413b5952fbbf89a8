"""Log directories that fail: their partitions go offline with them, the others go on, the last one ends the broker.

A directory fails once and for good: an fsync that failed has thrown the dirty pages away, and one that succeeds after it
proves nothing. Whoever waits for one of its partitions is answered at once (rows B5, B10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from penstock.base.ids import TopicPartition
from penstock.drivers.delayed import Delayed
from penstock.replication.partition import Partition
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories

logger = logging.getLogger(__name__)


class Failures:
    """`went_offline` hears of the partitions once for each directory, `all_failed` once at the end."""

    def __init__(
        self,
        directories: LogDirectories,
        waits: Iterable[Delayed[TopicPartition]],
        *,
        went_offline: Callable[[list[TopicPartition]], object],
        all_failed: Callable[[str], object],
    ) -> None:
        self._directories = directories
        self._waits = tuple(waits)
        self._went_offline = went_offline
        self._all_failed = all_failed
        self._known: set[str] = set()

    def partition_failed(self, partition: Partition, error: BaseException) -> None:
        """A job for this partition failed on its thread. One that was deleted meanwhile takes nothing with it."""
        key = partition.topic_partition
        if self._directories.get(key) is partition.log:
            self.directory_failed(self._directories.home(key), error)

    def directory_failed(self, state: DirectoryState, error: BaseException) -> None:
        state.health.fail(error if isinstance(error, OSError) else OSError(str(error)))
        self.look()

    def look(self) -> None:
        """Takes notice of directories that failed where nobody could tell: in an append, a read, a roll."""
        for state in self._directories.directories:
            failure = state.health.failure
            if failure is None or state.path in self._known:
                continue
            self._known.add(state.path)
            logger.error("%s", failure)
            self._directories.offline[state.path] = failure
            lost = [key for key in self._directories.logs if self._directories.home(key) is state]
            for key in lost:
                for waits in self._waits:
                    waits.changed(key)
            if len(self._known) == len(self._directories.directories):
                self._all_failed(f"every log directory has failed; the last: {failure}")
            elif lost:
                self._went_offline(lost)
