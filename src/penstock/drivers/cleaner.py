"""Compaction on schedule (row S19): the dirtiest log first, its round on a thread, the result applied on the loop.

Logs are looked at one in a turn of the loop. A partition that fails is set aside until the next start and reported; the
others go on. A log that was deleted, cut or trimmed while its round ran drops the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.drivers.failures import Failures
from penstock.drivers.housekeeping import Values
from penstock.drivers.loop import Loop, Timer
from penstock.records.key_map import ENTRY_BYTES, LOAD_FACTOR
from penstock.storage import names
from penstock.storage.cleaner import CompactionResult
from penstock.storage.compaction import CleanRange
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.upkeep import apply_compaction, compaction_job, compaction_range

logger = logging.getLogger(__name__)

_MAP_BYTES_MIN = 64 * ENTRY_BYTES


class Cleaner:
    def __init__(
        self,
        *,
        loop: Loop,
        clock: Clock,
        files: Files,
        directories: LogDirectories,
        failures: Failures,
        values: Values,
        new_seed: Callable[[], bytes],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._files = files
        self._directories = directories
        self._failures = failures
        self._values = values
        self._new_seed = new_seed
        self._running: set[TopicPartition] = set()
        self._checkpointing: dict[str, bool] = {}
        """Directories whose checkpoint is being written, and whether it changed since."""
        self._aside: dict[TopicPartition, tuple[PartitionLog, str]] = {}
        self._timer: Timer | None = None
        self._looking = False
        self._stopped = False

    @property
    def _rounds_max(self) -> int:
        return int(self._values["log.cleaner.threads"]) if self._values["log.cleaner.enable"] else 0

    @property
    def _map_bytes(self) -> int:
        return max(int(self._values["log.cleaner.dedupe.buffer.size"]) // max(self._rounds_max, 1), _MAP_BYTES_MIN)

    @property
    def set_aside(self) -> dict[TopicPartition, str]:
        """Partitions that are not compacted any more, and why."""
        return {key: why for key, (log, why) in self._aside.items() if self._directories.get(key) is log}

    def start(self) -> None:
        if self._values["log.cleaner.enable"]:
            self._plan()

    def stop(self) -> None:
        """Begins no further round; one that is under way is not applied."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(min(max(self._values["log.cleaner.backoff.ms"], 1), 2**31), self._look)

    # Choosing.
    def _look(self) -> None:
        """Begins to look for the dirtiest log, unless that is under way or every thread is busy."""
        if self._stopped or self._looking or len(self._running) >= self._rounds_max:
            if not self._stopped and not self._running and not self._looking:
                self._plan()  # no threads now; there may be some later
            return
        self._looking = True
        waiting = [key for key, log in self._directories.logs.items() if log.config.compact]
        self._loop.call_soon(partial(self._look_at, waiting, None))

    def _look_at(self, waiting: list[TopicPartition], best: tuple[TopicPartition, CleanRange] | None) -> None:
        while waiting and not self._stopped:
            key = waiting.pop()
            wanted = self._range(key)
            if wanted is None:
                continue
            if best is None or wanted.dirty_ratio > best[1].dirty_ratio:
                best = key, wanted
            self._loop.call_soon(partial(self._look_at, waiting, best))
            return
        self._looking = False
        if self._stopped:
            return
        if best is None:
            self._plan()
            return
        self._begin(*best)
        self._look()

    def _range(self, key: TopicPartition) -> CleanRange | None:
        """What a round would clean of this log, where one is due."""
        log = self._directories.get(key)
        if log is None or key in self._running or self._is_aside(key, log):
            return None
        state = self._directories.home(key)
        if state.health.failure is not None:
            return None
        try:
            found = compaction_range(log, self._clock, state.cleaner_offsets.get(key))
        except (OSError, PenstockError) as error:
            self._failed(key, log, error)
            return None
        return found if found is not None and found.is_due(log.config) else None

    def _is_aside(self, key: TopicPartition, log: PartitionLog) -> bool:
        return key in self._aside and self._aside[key][0] is log

    # A round.
    def _begin(self, key: TopicPartition, wanted: CleanRange) -> None:
        log = self._directories.get(key)
        if log is None:
            return
        needed = int((wanted.end_offset - wanted.first_dirty_offset) * ENTRY_BYTES / LOAD_FACTOR) + _MAP_BYTES_MIN
        map_bytes = min(self._map_bytes, needed)
        try:
            job = compaction_job(log, self._files, self._clock, wanted, map_bytes=map_bytes, seed=self._new_seed())
        except (OSError, PenstockError) as error:
            self._failed(key, log, error)
            return
        self._running.add(key)
        self._loop.run_in_thread(job.run, partial(self._ended, key, log))

    def _ended(self, key: TopicPartition, log: PartitionLog, outcome: CompactionResult | BaseException) -> None:
        self._running.discard(key)
        if self._stopped or self._directories.get(key) is not log:
            self._look()
            return
        if isinstance(outcome, BaseException):
            self._failed(key, log, outcome)
        else:
            self._apply(key, log, outcome)
        self._look()

    def _apply(self, key: TopicPartition, log: PartitionLog, result: CompactionResult) -> None:
        try:
            applied = apply_compaction(log, self._files, result)
        except (OSError, PenstockError) as error:
            self._failed(key, log, error)
            return
        if not applied:
            logger.info("%s changed while it was compacted: the round counts for nothing", key)
            return
        logger.info(
            "compacted %s up to offset %d: %d bytes became %d, %d records went",
            key,
            result.clean_offset,
            result.bytes_read,
            result.bytes_written,
            result.records_removed,
        )
        state = self._directories.home(key)
        state.cleaner_offsets[key] = result.clean_offset
        self._checkpoint(state, log.directory)

    def _failed(self, key: TopicPartition, log: PartitionLog, error: BaseException) -> None:
        """An error of the disk takes the directory offline; any other stops the compaction of this partition."""
        state = self._directories.home(key)
        if isinstance(error, OSError):
            self._failures.directory_failed(state, error)
        elif state.health.failure is not None:
            self._failures.look()
        else:
            self._aside[key] = (log, str(error))
            logger.error("%s is not compacted any more: %s", key, error, exc_info=error)

    def _checkpoint(self, state: DirectoryState, directory: str) -> None:
        """The new names first: how far compaction came must not outlive what it did."""
        if state.path in self._checkpointing:
            self._checkpointing[state.path] = True
            return
        frozen = self._directories.freeze(state, names.CLEANER_OFFSETS)
        self._checkpointing[state.path] = False

        def write() -> None:
            if self._files.exists(directory):
                self._files.sync_directory(directory)
            frozen.write()

        def written(outcome: BaseException | None) -> None:
            changed = self._checkpointing.pop(state.path)
            if outcome is not None:
                self._failures.directory_failed(state, outcome)
            elif changed:
                self._checkpoint(state, directory)

        self._loop.run_in_thread(write, written)
