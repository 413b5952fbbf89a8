"""What a leader knows of its followers, and which of them are in sync (row R2).

Invariants:
- while a change is with the controller, every member of the old and of the new set counts for the high watermark (the
  maximal ISR): whichever of the two stands in the end, nothing was called committed that one of its members lacks;
- there is one change at a time, and what the store confirmed never gives way to what was confirmed before it;
- a follower's fetch of an earlier life of its broker (an older broker epoch) changes nothing (KAFKA-15221).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

NO_BROKER_EPOCH = -1
UNKNOWN_OFFSET = -1


class Follower:
    """One remote replica as its leader sees it."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, now_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.end_offset = UNKNOWN_OFFSET
        """Where its last fetch began: it has everything before that."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = now_ms
        """When it last had everything that the leader had. A new leader gives each a whole lag time."""
        self.fetched_ms = now_ms
        self.leader_end_offset = UNKNOWN_OFFSET
        """The leader's end at the last fetch."""

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """It asked for what follows `offset`. Says whether its end moved."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset:
            # It has what there was when it last asked: busy partitions always are a little further by now.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        moved = offset != self.end_offset
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = now_ms
        return moved

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """An idle follower that has everything stays in sync for ever (KAFKA-7152)."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


class Proposal(NamedTuple):
    """A change of the ISR that a leader asks the controller for."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Of each member, as it fetched; -1 where the leader does not know it."""


class Followers:
    """The followers of one partition during one leader epoch."""

    __slots__ = (
        "_by_id",
        "_local_id",
        "_start_offset",
        "has_eligible",
        "isr",
        "maximal",
        "partition_epoch",
        "proposal",
    )

    def __init__(
        self,
        local_id: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        partition_epoch: int,
        now_ms: int,
        *,
        start_offset: int,
        has_eligible: bool = False,
    ) -> None:
        self._local_id = local_id
        self._start_offset = start_offset
        """The leader's end when it began to lead. Not where its epoch begins in the log: one that was killed may lead again in the epoch that it led in
        before, and knows no more than its last checkpoint said of what was committed in it."""
        self._by_id = {one: Follower(one, now_ms) for one in replicas if one != local_id}
        self.isr = isr
        self.maximal: tuple[int, ...] = isr
        self.partition_epoch = partition_epoch
        self.proposal: Proposal | None = None
        self.has_eligible = has_eligible
        """Whether the controller may still elect one who left: nothing that they lack may be committed."""

    def __iter__(self) -> Iterator[Follower]:
        return iter(self._by_id.values())

    def get(self, broker_id: int) -> Follower | None:
        return self._by_id.get(broker_id)

    def use_replicas(self, replicas: tuple[int, ...], now_ms: int) -> None:
        """The assignment changed within the epoch."""
        for one in replicas:
            if one != self._local_id and one not in self._by_id:
                self._by_id[one] = Follower(one, now_ms)
        for gone in self._by_id.keys() - set(replicas):
            del self._by_id[gone]

    def smallest_end(self, leader_end_offset: int) -> int:
        """What every member of the maximal ISR has; -1 while one of them has not said."""
        smallest = leader_end_offset
        for member in self.maximal:
            follower = self._by_id.get(member)
            if follower is not None and follower.end_offset < smallest:
                smallest = follower.end_offset
        return smallest

    # Changes.
    def propose_expand(self, follower: Follower, leader_epoch: int, high_watermark: int) -> Proposal | None:
        """A follower joins when it has everything that may be committed: what the leader had when it began to lead (KAFKA-7128), and what was since."""
        if self.proposal is not None or follower.broker_id in self.isr:
            return None
        if follower.end_offset < high_watermark or follower.end_offset < self._start_offset:
            return None
        return self._propose(leader_epoch, (*self.isr, follower.broker_id))

    def propose_shrink(
        self, leader_epoch: int, leader_end_offset: int, now_ms: int, lag_ms_max: int
    ) -> Proposal | None:
        """Members that fell behind leave."""
        if self.proposal is not None:
            return None
        kept = tuple(
            one
            for one in self.isr
            if one == self._local_id
            or (
                (known := self._by_id.get(one)) is not None
                and known.is_caught_up(leader_end_offset, now_ms, lag_ms_max)
            )
        )
        return None if len(kept) == len(self.isr) else self._propose(leader_epoch, kept)

    def _propose(self, leader_epoch: int, isr: tuple[int, ...]) -> Proposal:
        epochs = tuple(
            NO_BROKER_EPOCH if (known := self._by_id.get(one)) is None else known.broker_epoch for one in isr
        )
        self.proposal = Proposal(leader_epoch, self.partition_epoch, isr, epochs)
        self.maximal = (*self.isr, *(one for one in isr if one not in self.isr))
        return self.proposal

    def confirm(self, isr: tuple[int, ...], partition_epoch: int, *, has_eligible: bool = False) -> bool:
        """What the store has. Says whether that was news; anything older than what is known here is not."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.isr = self.maximal = isr
        self.partition_epoch = partition_epoch
        self.has_eligible = has_eligible
        self.proposal = None
        return True

    def withdraw(self) -> None:
        """The controller refused for certain: the old set stands."""
        self.proposal = None
        self.maximal = self.isr
