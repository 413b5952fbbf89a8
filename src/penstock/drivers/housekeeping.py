"""What is done on schedule: checkpoints, flushes behind the writes, retention, removal of files, expiry.

State is read and changed on the loop; what waits for the disk runs on threads. A job of one kind is not started again
while it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.files import Files
from penstock.drivers.failures import Failures
from penstock.drivers.flushes import Flushes
from penstock.drivers.loop import Loop, Timer
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage import names
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories
from penstock.storage.upkeep import remove_files, retain

logger = logging.getLogger(__name__)

TIDY_INTERVAL_MS = 1_000


class Values(Protocol):
    """Settings by name, as they are when they are asked for."""

    def __getitem__(self, name: str, /) -> Any: ...


class Housekeeping:
    def __init__(
        self,
        *,
        loop: Loop,
        clock: Clock,
        files: Files,
        directories: LogDirectories,
        partitions: Partitions,
        flushes: Flushes,
        failures: Failures,
        values: Values,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._files = files
        self._directories = directories
        self._partitions = partitions
        self._flushes = flushes
        self._failures = failures
        self._values = values
        self._timers: dict[str, Timer] = {}
        self._running: set[str] = set()
        self._stopped = False
        self._schedule: dict[str, tuple[int, Callable[[], None]]] = {
            "high watermarks": (
                values["replica.high.watermark.checkpoint.interval.ms"],
                partial(self._write, names.HIGH_WATERMARKS),
            ),
            "recovery points": (
                values["log.flush.offset.checkpoint.interval.ms"],
                partial(self._write, names.RECOVERY_POINTS),
            ),
            "log starts": (
                values["log.flush.start.offset.checkpoint.interval.ms"],
                partial(self._write, names.LOG_STARTS),
            ),
            "retention": (values["log.retention.check.interval.ms"], self._retention),
            "expiry": (max(values["producer.id.expiration.ms"] // 10, 1), self._expiry),
            "tidy": (TIDY_INTERVAL_MS, self._tidy),
        }

    def start(self) -> None:
        for name in self._schedule:
            self._plan(name)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _plan(self, name: str) -> None:
        interval_ms, _ = self._schedule[name]
        self._timers[name] = self._loop.call_later(min(interval_ms, 2**31), partial(self._run, name))

    def _run(self, name: str) -> None:
        if self._stopped:
            return
        try:
            self._schedule[name][1]()
        except PenstockError:
            logger.exception("housekeeping (%s) failed", name)
        self._plan(name)

    # Checkpoints.
    def _write(self, name: str) -> None:
        for state in self._online():
            frozen = self._directories.freeze(state, name)
            self._run_for(state, frozen.file.path, frozen.write)

    def _online(self) -> list[DirectoryState]:
        return [state for state in self._directories.directories if state.health.failure is None]

    def _run_for(self, state: DirectoryState, key: str, job: Callable[[], None]) -> None:
        """One job of this key at a time. A disk that refuses takes its directory offline."""
        if key in self._running:
            return

        def ended(outcome: BaseException | None) -> None:
            self._running.discard(key)
            if outcome is not None:
                self._failures.directory_failed(state, outcome)

        self._running.add(key)
        self._loop.run_in_thread(job, ended)

    # Upkeep.
    def _retention(self) -> None:
        for partition in self._partitions:
            if self._home(partition).health.failure is not None:
                continue
            try:
                retain(partition.log, self._clock)
            except PenstockError:
                logger.exception("retention of %s failed", partition.topic_partition)

    def _expiry(self) -> None:
        for partition in self._partitions:
            partition.log.expire_producers(self._values["producer.id.expiration.ms"])

    def _tidy(self) -> None:
        """Flushes what was rolled or has waited for `flush.ms`, and unlinks files whose delay has passed."""
        self._failures.look()
        for partition in self._partitions:
            log, state = partition.log, self._home(partition)
            if state.health.failure is not None:
                continue
            if log.log.active.base_offset > log.recovery_point or log.flush_interval_passed():
                self._flushes.ask(partition)
            unlinks = f"{log.directory}/*"
            if log.removals.pending and unlinks not in self._running:
                self._run_for(state, unlinks, partial(remove_files, self._files, log.removals.take_due()))

    def _home(self, partition: Partition) -> DirectoryState:
        return self._directories.home(partition.topic_partition)
