"""What must become true before records count as deleted: a replica that still has them could lead, and bring them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.purgatory.purgatory import Operation
from penstock.replication.partition import Partition


class AwaitedStart(NamedTuple):
    """A partition whose leader deleted what is before `offset`."""

    partition: Partition
    offset: int


class WaitForLogStart(Operation[TopicPartition]):
    """Waits until the replicas of brokers that are alive have raised their starts. A dead one raises its own when it follows again."""

    __slots__ = ("_answer", "_is_alive", "_open", "errors", "low_watermarks", "timed_out")

    def __init__(
        self,
        awaited: list[AwaitedStart],
        is_alive: Callable[[int], bool],
        answer: Callable[[WaitForLogStart], None],
    ) -> None:
        super().__init__()
        self._open = {one.partition.topic_partition: one for one in awaited}
        self._is_alive = is_alive
        self._answer = answer
        self.errors: dict[TopicPartition, PenstockError] = {}
        self.low_watermarks: dict[TopicPartition, int] = {}
        self.timed_out: frozenset[TopicPartition] = frozenset()

    @property
    def keys(self) -> list[TopicPartition]:
        return list(self._open)

    def is_ready(self, key: TopicPartition | None) -> bool:
        for topic_partition in list(self._open) if key is None else (key,):
            awaited = self._open.get(topic_partition)
            if awaited is None:
                continue
            try:
                if not self._has_gone(awaited):
                    continue
            except PenstockError as error:
                self.errors[topic_partition] = error
            del self._open[topic_partition]
        return not self._open

    def finish(self) -> None:
        self._answer(self)

    def expire(self) -> None:
        self.is_ready(None)  # nobody tells that a broker died
        self.timed_out = frozenset(self._open)
        self._answer(self)

    def _has_gone(self, awaited: AwaitedStart) -> bool:
        partition = awaited.partition
        partition.log.check_online()
        partition.check_leader(-1)
        lowest = partition.log.log_start_offset
        for follower in partition.followers or ():
            if follower.log_start_offset < lowest and self._is_alive(follower.broker_id):
                lowest = follower.log_start_offset
        self.low_watermarks[partition.topic_partition] = lowest
        return lowest >= awaited.offset
