"""Simulated time: everything that will happen, in the order of its moment; chance comes from one seeded source."""

from __future__ import annotations

import heapq
import random
import uuid
from collections.abc import Callable
from typing import TypeVar

from penstock.base.clock import ManualClock

T = TypeVar("T")


class Event:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Events:
    def __init__(self, seed: int) -> None:
        self.clock = ManualClock()
        self.chance = random.Random(seed)
        self._heap: list[tuple[int, int, Event]] = []
        self._count = 0
        self.trace: list[str] = []
        self.ran: NodeLoop | None = None
        """Whose process did something in the last step; None if nobody's did."""

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ms()

    def note(self, text: str) -> None:
        """A line of the trace: one seed gives one trace."""
        self.trace.append(f"{self.now_ms - 5_000:7d} {text}")

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.chance.getrandbits(128))

    def at(self, delay_ms: int, callback: Callable[[], object]) -> Event:
        event = Event(callback)
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, event))
        return event

    def step(self) -> bool:
        """The next thing happens. Says whether there was one."""
        while self._heap:
            due_ms, _, event = heapq.heappop(self._heap)
            callback, event.callback = event.callback, None
            if callback is None:
                continue
            self.clock.advance(max(due_ms - self.now_ms, 0))
            self.ran = None
            callback()
            return True
        return False


class NodeLoop:
    """One broker's loop. It dies with its process, and stands still while that is paused."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.is_dead = False
        self._paused_until_ms = 0

    def pause(self, ms: int) -> None:
        self._paused_until_ms = self._events.now_ms + ms

    def _at(self, delay_ms: int, callback: Callable[[], object]) -> Event:
        def run() -> None:
            if self.is_dead:
                return
            wait_ms = self._paused_until_ms - self._events.now_ms
            if wait_ms > 0:
                self._events.at(wait_ms, run)
            else:
                self._events.ran = self
                callback()

        return self._events.at(delay_ms, run)

    def call_soon(self, callback: Callable[[], object]) -> object:
        return self._at(0, callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Event:
        return self._at(delay_ms, callback)

    def run_in_thread(self, job: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
        """The job happens at once, or a little later; its end is heard of later still."""

        def run() -> None:
            try:
                result: T | BaseException = job()
            except Exception as error:
                result = error
            self._at(self._events.chance.randrange(5), lambda: done(result))

        self._at(self._events.chance.randrange(5), run)
