"""Replicas moved between log directories, while they are written and read (AlterReplicaLogDirs)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial

from penstock.base.errors import PenstockError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.drivers.failures import Failures
from penstock.drivers.loop import Loop
from penstock.replication.partitions import Partitions
from penstock.storage.directory_state import DirectoryState
from penstock.storage.flush import FlushJob
from penstock.storage.log_directories import LogDirectories
from penstock.storage.moves import Move

logger = logging.getLogger(__name__)


class Moves:
    """One copy at a time for each partition; the last stretch and the change of places happen in one turn of the loop."""

    def __init__(
        self,
        *,
        loop: Loop,
        files: Files,
        directories: LogDirectories,
        partitions: Partitions,
        failures: Failures,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._loop = loop
        self._files = files
        self._directories = directories
        self._partitions = partitions
        self._failures = failures
        self._new_id = new_id
        self._running: dict[TopicPartition, Move] = {}

    @property
    def running(self) -> Mapping[TopicPartition, Move]:
        return self._running

    def start(self, partition: TopicPartition, target: DirectoryState) -> None:
        """Begins to move a replica that is here. To where it is, or is going, is nothing new; elsewhere begins anew."""
        present = self._running.get(partition)
        if present is not None and present.target is target:
            return
        if present is not None:
            del self._running[partition]
        if self._directories.home(partition) is target:
            return
        move = Move(self._directories, self._files, self._directories.logs[partition], target)
        self._running[partition] = move
        self._loop.run_in_thread(partial(move.begin, self._new_id()), partial(self._copied, move))

    def _copied(self, move: Move, outcome: BaseException | None) -> None:
        """A stretch is copied, or could not be."""
        if self._running.get(move.partition) is not move or self._directories.get(move.partition) is not move.source:
            self._give_up(move)  # deleted meanwhile, or sent elsewhere
            return
        if move.is_void:
            self._give_up(move)
            self.start(move.partition, move.target)
            return
        if outcome is not None:
            logger.error("%s could not be moved to %s: %s", move.partition, move.target.path, outcome)
            if isinstance(outcome, OSError):
                self._failures.directory_failed(move.target, outcome)
            self._give_up(move)
            return
        try:
            self._go_on(move)
        except PenstockError as error:
            logger.error("%s could not be moved to %s: %s", move.partition, move.target.path, error)
            self._give_up(move)
            self._failures.look()

    def _go_on(self, move: Move) -> None:
        future = move.future
        assert future is not None
        stretch = move.next_stretch()
        if stretch is not None and not stretch.is_last:
            self._loop.run_in_thread(stretch.copy, partial(self._copied, move))
        elif future.recovery_point < future.end_offset:
            job = future.flush_job()
            self._loop.run_in_thread(job.run, partial(self._flushed, move, job))
        else:
            while stretch is not None:
                stretch.copy()
                stretch = move.next_stretch()
            self._finish(move)

    def _flushed(self, move: Move, job: FlushJob, outcome: BaseException | None) -> None:
        if outcome is None and move.future is not None:
            move.future.flushed(job)
        self._copied(move, outcome)

    def _finish(self, move: Move) -> None:
        log, remove_old = move.finish()
        del self._running[move.partition]
        partition = self._partitions.find(*move.partition)
        if partition is not None:
            partition.log = log
        logger.info("%s lies in %s now", move.partition, move.target.path)
        self._loop.run_in_thread(remove_old, partial(_report, move))

    def _give_up(self, move: Move) -> None:
        if self._running.get(move.partition) is move:
            del self._running[move.partition]
        remove = move.cancel()
        if remove is not None:
            self._loop.run_in_thread(remove, partial(_report, move))


def _report(move: Move, outcome: object) -> None:
    if isinstance(outcome, BaseException):
        logger.error("files of %s were left behind: %s", move.partition, outcome)
