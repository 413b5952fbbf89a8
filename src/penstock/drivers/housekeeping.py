"""What is done on schedule: checkpoints, flushes behind the writes, retention, removal of files, expiry.

State is read and changed on the loop; what waits for the disk runs on threads. A job of one kind is not started again
while it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.files import Files
from penstock.drivers.flushes import Flushes
from penstock.drivers.loop import Loop, Timer
from penstock.replication.partitions import Partitions
from penstock.storage import checkpoints, names
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.upkeep import retain

logger = logging.getLogger(__name__)

TIDY_INTERVAL_MS = 1_000


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
        values: Mapping[str, int],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._files = files
        self._directories = directories
        self._partitions = partitions
        self._flushes = flushes
        self._producer_expiration_ms = values["producer.id.expiration.ms"]
        self._timers: dict[str, Timer] = {}
        self._running: set[str] = set()
        self._stopped = False
        self._schedule = {
            "high watermarks": (values["replica.high.watermark.checkpoint.interval.ms"], self._high_watermarks),
            "recovery points": (values["log.flush.offset.checkpoint.interval.ms"], self._recovery_points),
            "log starts": (values["log.flush.start.offset.checkpoint.interval.ms"], self._log_starts),
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
    def _write(self, name: str, offset_of: Callable[[PartitionLog], int | None]) -> None:
        if name in self._running:
            return
        jobs = []
        for state in self._directories.directories:
            if state.health.failure is not None:
                continue
            offsets = {}
            for partition, log in self._directories.logs.items():
                offset = offset_of(log) if self._directories.home(partition) is state else None
                if offset is not None:
                    offsets[partition] = offset
            jobs.append(partial(checkpoints.write_offsets, self._files, f"{state.path}/{name}", offsets))

        def write_all() -> None:
            for job in jobs:
                job()

        self._running.add(name)
        self._loop.run_in_thread(write_all, partial(self._written, name))

    def _written(self, name: str, outcome: object) -> None:
        self._running.discard(name)
        if isinstance(outcome, BaseException):
            logger.error("%s could not be written: %s", name, outcome)

    def _high_watermarks(self) -> None:
        self._write(names.HIGH_WATERMARKS, lambda log: log.high_watermark)

    def _recovery_points(self) -> None:
        self._write(names.RECOVERY_POINTS, lambda log: log.recovery_point)

    def _log_starts(self) -> None:
        def start(log: PartitionLog) -> int | None:
            return log.log_start_offset if log.log_start_offset > log.log.segments[0].base_offset else None

        self._write(names.LOG_STARTS, start)

    # Upkeep.
    def _retention(self) -> None:
        for partition in self._partitions:
            try:
                retain(partition.log, self._clock)
            except PenstockError:
                logger.exception("retention of %s failed", partition.topic_partition)

    def _expiry(self) -> None:
        for partition in self._partitions:
            partition.log.expire_producers(self._producer_expiration_ms)

    def _tidy(self) -> None:
        """Flushes what was rolled or has waited for `flush.ms`, and unlinks files whose delay has passed."""
        paths: list[str] = []
        for partition in self._partitions:
            log = partition.log
            if log.log.active.base_offset > log.recovery_point or log.flush_interval_passed():
                self._flushes.ask(partition)
            if log.pending_deletes:
                paths += log.take_due_deletes()
        if paths:
            self._loop.run_in_thread(partial(self._unlink, paths), partial(self._written, "unlinks"))

    def _unlink(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self._files.remove(path)
            except FileNotFoundError:
                continue
