"""Appends that need much work first (recompression): done on a thread, written in the order in which they came.

While one of a partition's appends is on a thread, the later ones wait behind it, the light ones too: a producer's batches
keep their order. The other partitions do not notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.files import ReadableBuffer
from penstock.base.ids import TopicPartition
from penstock.drivers.loop import Loop
from penstock.replication.append import AppendOutcome
from penstock.replication.partition import Partition
from penstock.storage.append import Prepared, is_heavy, prepare_leader
from penstock.storage.producer_state import Origin

Done = Callable[[AppendOutcome], object]


class _Entry:
    """One append in its partition's queue. `ready` is None while a thread works on it."""

    __slots__ = ("acks", "done", "partition", "ready")

    def __init__(
        self, partition: Partition, acks: int, done: Done, ready: ReadableBuffer | Prepared | BaseException | None
    ) -> None:
        self.partition = partition
        self.acks = acks
        self.done = done
        self.ready = ready


class HeavyAppends:
    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._queues: dict[TopicPartition, deque[_Entry]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any partition's appends wait for one on a thread."""
        return bool(self._queues)

    def must_wait(self, partition: Partition, records: ReadableBuffer) -> bool:
        """Whether these records go through `append` here, and not straight to their partition."""
        return (bool(self._queues) and partition.topic_partition in self._queues) or is_heavy(
            records, partition.log.config
        )

    def append(self, partition: Partition, records: ReadableBuffer, acks: int, done: Done) -> None:
        """Appends when the partition's earlier appends are done; `done` hears of it, never before this returns."""
        config = partition.log.config
        heavy = is_heavy(records, config)
        entry = _Entry(partition, acks, done, None if heavy else records)
        self._queues.setdefault(partition.topic_partition, deque()).append(entry)
        if heavy:
            prepare = partial(prepare_leader, records, config, Origin.CLIENT, self._clock.wall_ms())
            self._loop.run_in_thread(prepare, partial(self._prepared, entry))

    def _prepared(self, entry: _Entry, outcome: Prepared | BaseException) -> None:
        entry.ready = outcome
        key = entry.partition.topic_partition
        queue = self._queues[key]
        while queue and queue[0].ready is not None:
            first = queue.popleft()
            if not queue:
                del self._queues[key]
            first.done(_append(first))


def _append(entry: _Entry) -> AppendOutcome:
    ready = entry.ready
    if isinstance(ready, BaseException) and not isinstance(ready, PenstockError):
        ready = PenstockError(f"an append could not be prepared: {ready!r}")
    if isinstance(ready, PenstockError):
        return AppendOutcome(None, ready)
    assert ready is not None
    assert not isinstance(ready, BaseException)
    try:
        if isinstance(ready, Prepared):
            return AppendOutcome(entry.partition.append_prepared(ready, entry.acks), None)
        return AppendOutcome(entry.partition.append(ready, entry.acks), None)
    except PenstockError as error:
        return AppendOutcome(None, error)
