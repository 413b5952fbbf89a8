"""Small batches of clients for one log, taken one after the other and written together (docs/decisions/0006).

Invariants: until `write` nothing of the log has changed; then all of it has, or, where the write fails, nothing but the
file's unknown tail, and the directory is offline. Nobody may touch the log between the first `take` and `write`.
Who may call: `partition_log` makes it, `replication.partition` hands it on.
"""

from __future__ import annotations

from penstock.records.batch import Batch
from penstock.records.produce_kernels import placed_batch
from penstock.storage.append import timestamp_bounds
from penstock.storage.directory_health import DirectoryHealth
from penstock.storage.log import Log
from penstock.storage.producer_state import Origin, Producers

BYTES_MAX = 64 * 1024
"""With so much taken nothing more is: they are joined, and larger batches gain nothing by that."""


class ShortAppend:
    """`take` never refuses: what is not plainly good is left to `PartitionLog.append_as_leader`, which finds out why."""

    __slots__ = (
        "_batches_max",
        "_data",
        "_flush_offset",
        "_health",
        "_jitter_ms",
        "_leader_epoch",
        "_log",
        "_newest_ms",
        "_now_ms",
        "_of_producers",
        "_oldest_ms",
        "_placed",
        "_producers",
        "end_offset",
        "size_bytes",
    )

    def __init__(
        self,
        log: Log,
        producers: Producers,
        health: DirectoryHealth,
        *,
        leader_epoch: int,
        flush_offset: int,
        jitter_ms: int,
        now_ms: int,
    ) -> None:
        """An append up to `flush_offset` would ask for a flush."""
        self._log = log
        self._producers = producers
        self._health = health
        self._leader_epoch = leader_epoch
        self._flush_offset = flush_offset
        self._jitter_ms = jitter_ms
        self._now_ms = now_ms
        self._oldest_ms, self._newest_ms = timestamp_bounds(log.config, now_ms)
        self._batches_max = log.active.batches_max
        self._data: list[bytes] = []
        self._placed: list[tuple[int, int, int]] = []
        """Of each batch: last offset, greatest timestamp, size."""
        self._of_producers: dict[int, Batch] = {}
        self.end_offset = log.end.offset
        """Behind what was taken."""
        self.size_bytes = 0

    @property
    def count(self) -> int:
        """Batches that were taken."""
        return len(self._data)

    def take(self, frame: bytes, start: int, end: int) -> int:
        """The base offset that the batch at frame[start:end] gets; -1 where it is not taken. Its producer's errors are raised."""
        log, base_offset = self._log, self.end_offset
        config = log.config
        placed = placed_batch(
            frame,
            start,
            end,
            self._oldest_ms,
            self._newest_ms,
            config.max_message_bytes,
            config.compact,
            base_offset,
            self._leader_epoch,
            Batch,
        )
        if placed is None or len(self._data) >= self._batches_max or self.size_bytes > BYTES_MAX:
            return -1
        data, last_offset, max_timestamp, batch = placed
        size_bytes = end - start
        try:
            is_full = log.should_roll(
                self.size_bytes + size_bytes, max_timestamp, last_offset, self._jitter_ms, self._now_ms
            )
        except OSError as error:  # it may read when the segment began
            raise self._health.fail(error) from error
        if is_full or size_bytes > config.segment_bytes or last_offset + 1 >= self._flush_offset:
            return -1
        if batch is not None:
            # What a producer sends next is checked against what it sent before, and that counts when it is written.
            if batch.producer_id in self._of_producers or self._producers.check(batch, Origin.CLIENT) is not None:
                return -1
            self._of_producers[batch.producer_id] = batch
        self._data.append(data)
        self._placed.append((last_offset, max_timestamp, size_bytes))
        self.end_offset = last_offset + 1
        self.size_bytes += size_bytes
        return base_offset

    def write(self) -> None:
        """Writes what was taken, and moves the log's end behind it. StorageError where that fails."""
        self._health.check()  # another log of the directory may have failed since
        data = self._data
        try:
            self._log.append_placed(data[0] if len(data) == 1 else b"".join(data), self._placed)
        except OSError as error:
            raise self._health.fail(error) from error
        for batch in self._of_producers.values():
            self._producers.update(batch)
