"""What must become true before records count as deleted: a replica that still has them could lead, and bring them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.replication.partition import Partition
from penstock.replication.wait_for_partitions import WaitForPartitions


class AwaitedStart(NamedTuple):
    """A partition whose leader deleted what is before `offset`."""

    partition: Partition
    offset: int


class WaitForLogStart(WaitForPartitions[AwaitedStart]):
    """Waits until the replicas of brokers that are alive have raised their starts. A dead one raises its own when it follows again."""

    __slots__ = ("_is_alive", "low_watermarks")

    def __init__(
        self,
        awaited: list[AwaitedStart],
        is_alive: Callable[[int], bool],
        answer: Callable[[WaitForLogStart], object],
    ) -> None:
        super().__init__(awaited, answer)
        self._is_alive = is_alive
        self.low_watermarks: dict[TopicPartition, int] = {}

    def expire(self) -> None:
        self.is_ready(None)  # nobody tells that a broker died
        super().expire()

    def _is_done(self, awaited: AwaitedStart) -> bool:
        partition = awaited.partition
        partition.log.check_online()
        partition.check_leader(-1)
        lowest = partition.log.log_start_offset
        for follower in partition.followers or ():
            if follower.log_start_offset < lowest and self._is_alive(follower.broker_id):
                lowest = follower.log_start_offset
        self.low_watermarks[partition.topic_partition] = lowest
        return lowest >= awaited.offset
