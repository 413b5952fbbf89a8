"""Carries changes of ISRs to the controller, and looks for followers that fell behind (row R2).

Everything proposed meanwhile goes in one AlterPartition request; one is on its way at a time. An outcome that is not known is
asked for again: the controller answers a change that stands already as done.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import IneligibleReplicaError
from penstock.controller.peer_requests import IsrChange, IsrChanged, IsrMember
from penstock.drivers.loop import Loop, Timer
from penstock.replication.isr import Proposal
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

RETRY_MS = 200


class IsrChannel(Protocol):
    """The way to the controller, wherever it is now."""

    def alter(
        self, changes: Sequence[IsrChange], done: Callable[[Sequence[IsrChanged] | PenstockError], object]
    ) -> None: ...


class IsrDriver:
    def __init__(
        self,
        *,
        node_id: int,
        loop: Loop,
        clock: Clock,
        partitions: Partitions,
        channel: IsrChannel,
        lag_ms_max: int,
        broker_epoch: Callable[[], int],
        moved: Callable[[TopicPartition], object],
    ) -> None:
        """`moved` hears of partitions whose high watermark moved with their ISR."""
        self._node_id = node_id
        self._loop = loop
        self._clock = clock
        self._partitions = partitions
        self._channel = channel
        self._lag_ms_max = lag_ms_max
        self._broker_epoch = broker_epoch
        self._moved = moved
        self._waiting: dict[TopicPartition, tuple[Partition, Proposal]] = {}
        self._is_asking = False
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(max(self._lag_ms_max // 2, 1), self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for one in self._partitions:
            proposal = one.propose_shrink(now_ms, self._lag_ms_max)
            if proposal is not None:
                logger.info("%s: the ISR shrinks from %s to %s", one.topic_partition, one.isr, proposal.isr)
                self.propose(one, proposal)
        self.start()

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self._waiting[partition.topic_partition] = partition, proposal
        if not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        """One request for all that is still wanted."""
        self._waiting = {
            key: (one, proposal) for key, (one, proposal) in self._waiting.items() if _is_wanted(one, proposal)
        }
        self._is_asking = bool(self._waiting)
        if self._is_asking:
            asked = dict(self._waiting)
            changes = [self._change(*wanted) for wanted in asked.values()]
            self._channel.alter(changes, partial(self._answered, asked))

    def _change(self, partition: Partition, proposal: Proposal) -> IsrChange:
        members = tuple(
            IsrMember(broker_id=one, broker_epoch=self._broker_epoch() if one == self._node_id else epoch)
            for one, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
        )
        return IsrChange(
            topic_id=uuid.UUID(bytes=partition.topic_id),
            partition=partition.topic_partition.partition,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            new_isr=members,
        )

    def _answered(
        self,
        asked: dict[TopicPartition, tuple[Partition, Proposal]],
        answer: Sequence[IsrChanged] | PenstockError,
    ) -> None:
        if isinstance(answer, PenstockError):
            logger.info("the controller could not be asked for a change of ISRs: %s", answer)
            self._loop.call_later(RETRY_MS, self._ask)
            return
        by_id = {
            (one.topic_id, one.topic_partition.partition): (key, one, proposal)
            for key, (one, proposal) in asked.items()
        }
        retry = False
        for changed in answer:
            key, partition, proposal = by_id.get((changed.topic_id.bytes, changed.partition), (None, None, None))
            if key is None or partition is None or proposal is None:
                continue
            retry |= self._changed(key, partition, proposal, changed)
        self._loop.call_later(RETRY_MS, self._ask) if retry else self._loop.call_soon(self._ask)

    def _changed(self, key: TopicPartition, partition: Partition, proposal: Proposal, changed: IsrChanged) -> bool:
        """Takes an answer in. Says whether to ask the same again."""
        if not _is_wanted(partition, proposal):
            return False
        if changed.error is None:
            self._waiting.pop(key, None)
            moved = partition.confirm_isr(
                changed.leader_epoch, changed.isr, changed.partition_epoch, has_eligible=changed.has_eligible
            )
            if moved:
                self._moved(key)
            return False
        if isinstance(changed.error, IneligibleReplicaError):
            self._waiting.pop(key, None)
            if partition.withdraw_isr():
                self._moved(key)
            return False
        logger.info("%s: the ISR could not become %s: %s", key, proposal.isr, changed.error)
        return True


def _is_wanted(partition: Partition, proposal: Proposal) -> bool:
    """Whether the partition still waits for this very change."""
    return partition.followers is not None and partition.followers.proposal is proposal
