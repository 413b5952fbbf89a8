"""What must become true before a produce request is acknowledged (row B4)."""

from __future__ import annotations

from typing import NamedTuple

from penstock.replication.errors import NotEnoughReplicasAfterAppendError, NotLeaderOrFollowerError
from penstock.replication.partition import ACKS_ALL, Partition
from penstock.replication.wait_for_partitions import WaitForPartitions


class AwaitedAppend(NamedTuple):
    """An append that succeeded and is not acknowledged yet."""

    partition: Partition
    leader_epoch: int
    end_offset: int
    acks: int


class WaitForAcks(WaitForPartitions[AwaitedAppend]):
    """Waits until every append is acknowledged or has failed."""

    __slots__ = ()

    def _is_done(self, awaited: AwaitedAppend) -> bool:
        return acknowledged(awaited)


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
