"""What must become true before a produce request is acknowledged (row B4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.purgatory.purgatory import Operation
from penstock.replication.errors import NotEnoughReplicasAfterAppendError, NotLeaderOrFollowerError
from penstock.replication.partition import ACKS_ALL, Partition


class AwaitedAppend(NamedTuple):
    """An append that succeeded and is not acknowledged yet."""

    partition: Partition
    leader_epoch: int
    end_offset: int
    acks: int


class WaitForAcks(Operation[TopicPartition]):
    """Waits until every append is acknowledged or has failed. Holds offsets, never the request's bytes."""

    __slots__ = ("_answer", "_open", "errors", "timed_out")

    def __init__(self, appends: list[AwaitedAppend], answer: Callable[[WaitForAcks], None]) -> None:
        super().__init__()
        self._open = {append.partition.topic_partition: append for append in appends}
        self._answer = answer
        self.errors: dict[TopicPartition, PenstockError] = {}
        self.timed_out: frozenset[TopicPartition] = frozenset()

    @property
    def keys(self) -> list[TopicPartition]:
        return list(self._open)

    def is_ready(self, key: TopicPartition | None) -> bool:
        for topic_partition in list(self._open) if key is None else (key,):
            append = self._open.get(topic_partition)
            if append is None:
                continue
            try:
                if not acknowledged(append):
                    continue
            except PenstockError as error:
                self.errors[topic_partition] = error
            del self._open[topic_partition]
        return not self._open

    def finish(self) -> None:
        self._answer(self)

    def expire(self) -> None:
        self.timed_out = frozenset(self._open)
        self._answer(self)


def acknowledged(append: AwaitedAppend) -> bool:
    """Whether an append counts as done; an error if it never will.

    A new epoch of the same leader, as when a follower stops, takes nothing back: what is in the log stays there.
    """
    partition = append.partition
    partition.log.check_online()
    if not partition.is_leader or partition.led_since > append.leader_epoch:
        raise NotLeaderOrFollowerError(f"{partition.topic_partition} is led by broker {partition.leader} now")
    if partition.log.recovery_point < append.end_offset <= partition.flush_offset:
        return False
    if append.acks != ACKS_ALL:
        return True
    if partition.log.high_watermark < append.end_offset:
        return False
    if len(partition.isr) < partition.effective_min_isr:
        raise NotEnoughReplicasAfterAppendError(
            f"{partition.topic_partition} was written, but only {len(partition.isr)} replicas are in sync"
        )
    return True
