"""Looks after partitions that no trusted replica can lead, and asks how long the logs of their members are."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.base.clock import Clock
from penstock.base.ids import TopicPartition
from penstock.controller.cluster import Cluster
from penstock.controller.recovery import find_leaderless, find_stuck
from penstock.drivers.log_ends import Ends, LogEndsChannel, ask_log_ends
from penstock.drivers.loop import Loop, Timer

logger = logging.getLogger(__name__)

LOOK_AGAIN_MS = 1_000


class LongestLogs:
    """`look` when brokers came or went; from then on it looks by itself for as long as a partition has no leader."""

    def __init__(
        self,
        *,
        loop: Loop,
        clock: Clock,
        channel: LogEndsChannel,
        cluster: Callable[[], Cluster | None],
        told: Callable[[Ends], object],
        timeout_ms: int,
    ) -> None:
        """`cluster` gives None while this broker is not the controller, `told` gets what members said of their logs."""
        self._loop = loop
        self._clock = clock
        self._channel = channel
        self._cluster = cluster
        self._told = told
        self._timeout_ms = timeout_ms
        self._since_ms: dict[TopicPartition, int] = {}
        """When each partition without a leader was first seen so."""
        self._timer: Timer | None = None

    @property
    def overdue(self) -> set[TopicPartition]:
        """Partitions that have waited long enough for members that are away."""
        now_ms = self._clock.monotonic_ms()
        return {key for key, since_ms in self._since_ms.items() if now_ms - since_ms >= self._timeout_ms}

    def look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def _look(self) -> None:
        self._timer = None
        cluster = self._cluster()
        now_ms = self._clock.monotonic_ms()
        leaderless = [] if cluster is None else find_leaderless(cluster)
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in leaderless}
        if cluster is None or not leaderless:
            return
        self._timer = self._loop.call_later(LOOK_AGAIN_MS, self._look)
        stuck = find_stuck(cluster, self.overdue)
        if stuck:
            logger.warning("%d partitions have no replica that can be trusted: the longest log will lead", len(stuck))
            ask_log_ends(self._channel, stuck, self._told)
