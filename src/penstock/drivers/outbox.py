"""What the controller has to tell brokers: to each one thing at a time, in order, again until it was heard or does not matter.

Who was not told everything is told nothing else: it would take a piece for all there is.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from penstock.controller.errors import StaleBrokerEpochError, StaleControllerEpochError
from penstock.controller.peer_requests import LeaderAndIsr, PeerAnswer, PeerRequest, PeerRequests, RequestType
from penstock.drivers.loop import Loop

logger = logging.getLogger(__name__)

RETRY_MS = 100

Answered = Callable[[int, PeerRequest, PeerAnswer], object]


class PeerChannel(Protocol):
    """The controller's ways to brokers."""

    def send(self, broker_id: int, request: PeerRequest, done: Callable[[PeerAnswer], object]) -> None:
        """`done` gets the broker's answer, or one that says why there is none; once."""

    def forget(self, broker_id: int) -> None:
        """The broker is gone, or lives anew."""


class _Wait:
    """For what was said last to each broker, by the time somebody began to wait."""

    __slots__ = ("go_on", "last")

    def __init__(self, go_on: Callable[[], object], last: dict[int, PeerRequest]) -> None:
        self.go_on = go_on
        self.last = last


class Outbox:
    def __init__(
        self, loop: Loop, channel: PeerChannel, is_wanted: Callable[[int, PeerRequest], bool], answered: Answered
    ) -> None:
        """`is_wanted` says whether a request still matters; `answered` hears of every answer that a broker gave."""
        self._loop = loop
        self._channel = channel
        self._is_wanted = is_wanted
        self._answered = answered
        self._queues: dict[int, deque[PeerRequest]] = {}
        self._busy: set[int] = set()
        self._lives: Counter[int] = Counter()
        """How often each broker was forgotten: what was under way to it then is not heard of any more."""
        self._waits: list[_Wait] = []
        self._serial = 0
        self._introduced: set[int] = set()
        """Brokers that were told everything, or will be before anything else."""

    def put(self, requests: PeerRequests) -> None:
        for kind in (requests.leader_and_isr, requests.update_metadata, requests.stop_replica):
            for broker_id, request in kind.items():
                if isinstance(request, LeaderAndIsr) and request.type is RequestType.FULL:
                    self._introduced.add(broker_id)
                if broker_id in self._introduced:
                    self._serial += 1
                    numbered = replace(request, serial=self._serial)
                    self._queues.setdefault(broker_id, deque()).append(numbered)
        for broker_id in list(self._queues):
            self._next(broker_id)

    def when_heard(self, go_on: Callable[[], object], wait_ms_max: int) -> None:
        """Calls back when everybody has heard all that was put so far, and not later than that."""
        wait = _Wait(go_on, {broker_id: queue[-1] for broker_id, queue in self._queues.items() if queue})
        self._waits.append(wait)
        self._end_waits()
        if wait in self._waits:
            self._loop.call_later(wait_ms_max, partial(self._end, wait))

    def _end_waits(self) -> None:
        for wait in list(self._waits):
            for broker_id, last in list(wait.last.items()):
                if not any(one is last for one in self._queues.get(broker_id, ())):
                    del wait.last[broker_id]
            if not wait.last:
                self._end(wait)

    def _end(self, wait: _Wait) -> None:
        if wait in self._waits:
            self._waits.remove(wait)
            wait.go_on()

    def forget(self, broker_id: int) -> None:
        self._queues.pop(broker_id, None)
        self._busy.discard(broker_id)
        self._introduced.discard(broker_id)
        self._lives[broker_id] += 1
        self._channel.forget(broker_id)
        self._end_waits()

    def clear(self) -> None:
        """Nothing more is said: another controller was elected."""
        for broker_id in self._queues.keys() | self._busy | self._introduced:
            self.forget(broker_id)

    def _next(self, broker_id: int) -> None:
        if broker_id in self._busy:
            return
        queue = self._queues.get(broker_id)
        while queue and not self._is_wanted(broker_id, queue[0]):
            queue.popleft()
        if not queue:
            self._queues.pop(broker_id, None)
            return
        self._busy.add(broker_id)
        request, life = queue[0], self._lives[broker_id]

        def done(answer: PeerAnswer) -> None:
            if life == self._lives[broker_id]:
                self._heard(broker_id, request, answer)

        self._channel.send(broker_id, request, done)

    def _heard(self, broker_id: int, request: PeerRequest, answer: PeerAnswer) -> None:
        stale = isinstance(answer.error, StaleControllerEpochError | StaleBrokerEpochError)
        if answer.error is not None and not stale and self._is_wanted(broker_id, request):
            logger.info("broker %d did not answer the controller, which asks again: %s", broker_id, answer.error)
            self._loop.call_later(RETRY_MS, partial(self._again, broker_id, self._lives[broker_id]))
            return
        self._busy.discard(broker_id)
        queue = self._queues.get(broker_id)
        if queue and queue[0] is request:
            queue.popleft()
        self._answered(broker_id, request, answer)
        self._next(broker_id)
        self._end_waits()

    def _again(self, broker_id: int, life: int) -> None:
        if life == self._lives[broker_id]:
            self._busy.discard(broker_id)
            self._next(broker_id)
