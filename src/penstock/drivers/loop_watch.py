"""How long the loop's turns are: a timer that is late by as much as the turn that held it up."""

from __future__ import annotations

from penstock.base.clock import Clock
from penstock.base.metrics import Histogram
from penstock.drivers.loop import Loop, Timer

TICK_MS = 20


class LoopWatch:
    """Samples the loop fifty times a second. A turn longer than a tick is always seen, less a tick at the most."""

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._timer: Timer | None = None
        self._due_us = 0
        self.lateness = Histogram()
        self._longest_us = 0

    def start(self) -> None:
        self._due_us = self._clock.monotonic_us() + TICK_MS * 1000
        self._timer = self._loop.call_later(TICK_MS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        late_us = max(self._clock.monotonic_us() - self._due_us, 0)
        self.lateness.add(late_us)
        self._longest_us = max(self._longest_us, late_us)
        self.start()

    def take_longest_us(self) -> int:
        """The longest since somebody last asked."""
        longest_us, self._longest_us = self._longest_us, 0
        return longest_us
