"""Follows leaders: one fetcher and one connection for each broker that leads something which is followed here (row R1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.drivers.flushes import Flushes
from penstock.drivers.loop import Loop, Timer
from penstock.replication.fetcher import Asked, Cut, Cutter, Fetcher, Got, LeaderOffsets
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

Answers = Callable[[list[Got] | PenstockError], object]
Offsets = Callable[[LeaderOffsets | PenstockError], object]


class Values(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


class LeaderChannel(Protocol):
    """A way to one leader. Each call is answered once, with an error where the leader cannot be reached."""

    def fetch(self, asked: list[Asked], done: Answers) -> None: ...

    def offsets(self, asked: Asked, done: Offsets) -> None:
        """Where the leader's log begins and ends, its end not bounded by the high watermark."""

    def close(self) -> None:
        """No call is answered any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    backoff_ms: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int

    @classmethod
    def read(cls, config: Values) -> FollowerSettings:
        return cls(
            backoff_ms=config["replica.fetch.backoff.ms"],
            wait_ms_max=config["replica.fetch.wait.max.ms"],
            bytes_min=config["replica.fetch.min.bytes"],
            bytes_max=config["replica.fetch.response.max.bytes"],
            partition_bytes_max=config["replica.fetch.max.bytes"],
        )


class _Followed:
    """One leader."""

    __slots__ = ("channel", "fetcher", "is_asking", "timer")

    def __init__(self, fetcher: Fetcher, channel: LeaderChannel) -> None:
        self.fetcher = fetcher
        self.channel = channel
        self.is_asking = False
        self.timer: Timer | None = None


class Followers:
    def __init__(
        self,
        *,
        loop: Loop,
        clock: Clock,
        cutter: Cutter,
        flushes: Flushes,
        backoff_ms: int,
        open_channel: Callable[[int], LeaderChannel],
        moved: Callable[[TopicPartition], object],
    ) -> None:
        """`open_channel` gets a leader's id, `moved` hears of partitions whose end or high watermark moved."""
        self._loop = loop
        self._clock = clock
        self._cutter = cutter
        self._flushes = flushes
        self._backoff_ms = backoff_ms
        self._open_channel = open_channel
        self._moved = moved
        self._leaders: dict[int, _Followed] = {}
        self._leader_of: dict[TopicPartition, int] = {}

    @property
    def leaders(self) -> dict[int, int]:
        """How many partitions follow each leader."""
        return {leader: len(followed.fetcher) for leader, followed in self._leaders.items()}

    def stop(self) -> None:
        for leader in list(self._leaders):
            self._close(leader)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Before its role changes. What is on its way from the leader counts no more."""
        leader = self._leader_of.pop(topic_partition, None)
        if leader is not None:
            self._leaders[leader].fetcher.remove(topic_partition)

    def follow(self, partition: Partition) -> None:
        """Follows the partition's leader from now on. Raises where the log cannot be made ready for that."""
        leader = partition.leader
        assert leader >= 0
        assert not partition.is_leader
        followed = self._leaders.get(leader)
        if followed is None:
            fetcher = Fetcher(leader, self._cutter, self._backoff_ms)
            followed = self._leaders[leader] = _Followed(fetcher, self._open_channel(leader))
        cut = followed.fetcher.add(partition)
        if cut is not None:
            self._prepare(followed, cut)
        self._leader_of[partition.topic_partition] = leader
        self._wake(leader)

    def is_followed(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._leader_of

    def close_idle(self) -> None:
        """Lets go of leaders of whom nothing is followed any more."""
        for leader, followed in list(self._leaders.items()):
            if not len(followed.fetcher):
                self._close(leader)

    def _close(self, leader: int) -> None:
        followed = self._leaders.pop(leader)
        followed.channel.close()
        if followed.timer is not None:
            followed.timer.cancel()

    def _wake(self, leader: int) -> None:
        self._loop.call_soon(partial(self._ask, leader))

    def _ask(self, leader: int) -> None:
        followed = self._leaders.get(leader)
        if followed is None or followed.is_asking:
            return
        if followed.timer is not None:
            followed.timer.cancel()
            followed.timer = None
        now_ms = self._now_ms()
        asked = followed.fetcher.ask(now_ms)
        if asked:
            followed.is_asking = True
            followed.channel.fetch(asked, partial(self._answered, followed, asked))
            return
        ready_ms = followed.fetcher.ready_ms()
        if ready_ms is not None:
            followed.timer = self._loop.call_later(max(ready_ms - now_ms, 1), partial(self._ask, leader))

    def _answered(self, followed: _Followed, asked: list[Asked], answer: list[Got] | PenstockError) -> None:
        leader = followed.fetcher.leader_id
        if self._leaders.get(leader) is not followed:
            return
        followed.is_asking = False
        now_ms = self._now_ms()
        if isinstance(answer, PenstockError):
            logger.info("broker %d cannot be followed for now: %s", leader, answer)
            followed.fetcher.failed(now_ms)
        else:
            taken = followed.fetcher.take(asked, answer, now_ms)
            for partition in taken.appended:
                if partition.log.flush_due:
                    self._flushes.ask(partition)
            for topic_partition in taken.moved:
                self._moved(topic_partition)
            for cut in taken.cuts:
                self._prepare(followed, cut)
            for one in taken.outside:
                followed.channel.offsets(one, partial(self._found, followed, one))
        self._ask(leader)  # at once: the question says what was taken, and somebody waits for that

    def _found(self, followed: _Followed, asked: Asked, offsets: LeaderOffsets | PenstockError) -> None:
        leader = followed.fetcher.leader_id
        if self._leaders.get(leader) is not followed:
            return
        self._cut(followed, asked.topic_partition, followed.fetcher.take_offsets(asked, offsets, self._now_ms()))

    # Cutting.
    def _prepare(self, followed: _Followed, cut: Cut) -> None:
        """Lets a thread write what must be on disk before a log is cut."""
        self._loop.run_in_thread(cut.job, partial(self._prepared, followed, cut))

    def _prepared(self, followed: _Followed, cut: Cut, outcome: BaseException | None) -> None:
        if self._leaders.get(followed.fetcher.leader_id) is not followed:
            return
        failure = outcome if isinstance(outcome, Exception) else None
        done = followed.fetcher.go_on(cut, failure, self._now_ms())
        self._cut(followed, cut.place.partition.topic_partition, done)

    def _cut(self, followed: _Followed, topic_partition: TopicPartition, done: bool | Cut) -> None:
        if isinstance(done, Cut):
            self._prepare(followed, done)
        elif done:
            self._moved(topic_partition)
        self._wake(followed.fetcher.leader_id)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()
