"""The clock port. Wall time and monotonic time are different methods with unrelated values."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since the epoch. May jump either way."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment. Never falls; compare only with itself."""

    def monotonic_us(self) -> int:
        """The same clock in microseconds, to measure with."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


class ManualClock:
    """A clock that stands still until it is told to move. Wall and monotonic values are unrelated on purpose."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 5_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_us(self) -> int:
        return self._monotonic_ms * 1000

    def advance(self, ms: int) -> None:
        assert ms >= 0, "time passes forwards; use set_wall for a clock that jumps"
        self._wall_ms += ms
        self._monotonic_ms += ms

    def set_wall(self, wall_ms: int) -> None:
        """The wall clock jumps, as after an NTP step; monotonic time does not."""
        self._wall_ms = wall_ms
