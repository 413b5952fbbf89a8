"""Flushes that somebody waits for: one at a time for each partition, on a thread; the high watermark follows."""

from __future__ import annotations

from penstock.base.errors import StorageError
from penstock.base.ids import TopicPartition
from penstock.drivers.delayed import Delayed
from penstock.drivers.failures import Failures
from penstock.drivers.loop import Loop
from penstock.replication.partition import Partition
from penstock.storage.flush import FlushJob


class Flushes:
    def __init__(self, loop: Loop, waits: tuple[Delayed[TopicPartition], ...], failures: Failures) -> None:
        self._loop = loop
        self._failures = failures
        self._waits = waits
        self._running: set[TopicPartition] = set()

    def ask(self, partition: Partition) -> None:
        """Flushes the partition soon; what is appended while a flush runs is covered by the next."""
        if partition.topic_partition in self._running or not _is_online(partition):
            return
        self._running.add(partition.topic_partition)
        job = partition.log.flush_job()
        self._loop.run_in_thread(job.run, lambda outcome: self._done(partition, job, outcome))

    def _done(self, partition: Partition, job: FlushJob, outcome: BaseException | None) -> None:
        key = partition.topic_partition
        self._running.discard(key)
        if outcome is not None:
            self._failures.partition_failed(partition, outcome)
            return
        if not partition.log.flushed(job):
            return
        partition.maybe_move_high_watermark()
        for waits in self._waits:
            waits.changed(key)
        if partition.flush_offset > partition.log.recovery_point:
            self.ask(partition)


def _is_online(partition: Partition) -> bool:
    """A failed directory is never flushed again: an fsync after one that failed proves nothing."""
    try:
        partition.log.check_online()
    except StorageError:
        return False
    return True
