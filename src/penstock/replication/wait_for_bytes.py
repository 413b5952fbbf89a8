"""What must become true before a fetch is answered (row B5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.purgatory.purgatory import Operation
from penstock.replication.partition import Partition
from penstock.storage.answers import Bound


class AwaitedBytes(NamedTuple):
    partition: Partition
    leader_epoch: int
    offset: int
    bytes_max: int


class _Answered(Operation[TopicPartition]):
    """Ends with a call, and lets go of what it called: that holds this too, and only a collection would find the two."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Callable[[], None]) -> None:
        super().__init__()
        self._answer: Callable[[], None] | None = answer

    def finish(self) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        answer()

    def expire(self) -> None:
        self.finish()


class WaitForBytes(_Answered):
    """Waits until enough bytes can be read, or a partition has something else to say.

    A check looks at the one partition that changed: each keeps what it could give when it was last seen.
    """

    __slots__ = ("_available", "_bound", "_bytes_min", "_seen", "_wanted")

    def __init__(self, wanted: list[AwaitedBytes], bytes_min: int, bound: Bound, answer: Callable[[], None]) -> None:
        super().__init__(answer)
        self._wanted = {one.partition.topic_partition: one for one in wanted}
        self._seen: dict[TopicPartition, int] = {}
        self._available = 0
        self._bytes_min = bytes_min
        self._bound = bound

    @property
    def keys(self) -> list[TopicPartition]:
        return list(self._wanted)

    def also(self, wanted: AwaitedBytes) -> None:
        """One more partition, or another place in it, from its next check on."""
        self._wanted[wanted.partition.topic_partition] = wanted

    def is_ready(self, key: TopicPartition | None) -> bool:
        for topic_partition in list(self._wanted) if key is None else (key,):
            wanted = self._wanted.get(topic_partition)
            if wanted is None:
                continue
            size = self._size(wanted)
            if size is None:
                return True
            self._available += size - self._seen.get(topic_partition, 0)
            self._seen[topic_partition] = size
        return self._available >= self._bytes_min

    def _size(self, wanted: AwaitedBytes) -> int | None:
        """Bytes that a read would give now; None where the client must hear something else at once."""
        partition = wanted.partition
        if partition.leader < 0 or partition.leader_epoch != wanted.leader_epoch:
            return None
        try:
            partition.log.check_online()
            if wanted.offset >= partition.readable_end(self._bound):
                return 0 if wanted.offset <= partition.log.end_offset else None
            found = partition.log.read(
                wanted.offset, bytes_max=wanted.bytes_max, bound=self._bound, minimum_one=True
            ).slice
        except PenstockError:
            return None
        return 0 if found is None else min(found.length, wanted.bytes_max)


class WaitForChange(_Answered):
    """Waits until whoever listens to the partitions says that there is something: any byte is enough."""

    __slots__ = ()

    def is_ready(self, key: TopicPartition | None) -> bool:
        return False
