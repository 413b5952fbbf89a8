"""A hierarchical timing wheel: timers are added and cancelled in constant time, however many there are.

What it is: a level has `slots` buckets, each as wide as the level's tick; the next level's tick is the width of the one
below it. A timer stands in the lowest level that reaches its deadline, and falls to lower ones as time comes near.

Invariants:
- a timer expires in the first `advance` whose time is not before its deadline, never earlier, and once;
- a bucket holds only timers of one stretch of time, so it can be emptied as a whole;
- `next_wake_ms` is never after the earliest deadline.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

P = TypeVar("P")


class Timer(Generic[P]):
    """One timer; a handle to cancel it by."""

    __slots__ = ("_bucket", "deadline_ms", "payload")

    def __init__(self, payload: P, deadline_ms: int) -> None:
        self.payload = payload
        self.deadline_ms = deadline_ms
        self._bucket: _Bucket[P] | None = None

    @property
    def waiting(self) -> bool:
        return self._bucket is not None


class _Bucket(Generic[P]):
    __slots__ = ("start_ms", "timers")

    def __init__(self) -> None:
        self.start_ms = -1
        self.timers: dict[Timer[P], None] = {}

    def __lt__(self, other: _Bucket[P]) -> bool:
        """Buckets of one start are equal to the heap."""
        return False


class _Level(Generic[P]):
    __slots__ = ("buckets", "now_ms", "tick_ms", "width_ms")

    def __init__(self, tick_ms: int, slots: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.width_ms = tick_ms * slots
        self.now_ms = now_ms - now_ms % tick_ms
        self.buckets: list[_Bucket[P]] = [_Bucket() for _ in range(slots)]


class TimingWheel(Generic[P]):
    """Timers by deadline. Pure: time is what `advance` is told."""

    def __init__(self, now_ms: int, tick_ms: int = 1, slots: int = 20) -> None:
        self._slots = slots
        self._levels: list[_Level[P]] = [_Level(tick_ms, slots, now_ms)]
        self._order: list[tuple[int, _Bucket[P]]] = []
        self._count = 0

    def __len__(self) -> int:
        """Timers that wait."""
        return self._count

    def add(self, payload: P, deadline_ms: int) -> Timer[P]:
        """A timer. One whose deadline has passed expires in the next `advance`."""
        timer = Timer(payload, deadline_ms)
        self._count += 1
        lowest = self._levels[0]
        self._place(timer, max(deadline_ms, lowest.now_ms + lowest.tick_ms))
        return timer

    def cancel(self, timer: Timer[P]) -> bool:
        """Whether it was still waiting."""
        bucket = timer._bucket
        if bucket is None:
            return False
        del bucket.timers[timer]
        timer._bucket = None
        self._count -= 1
        return True

    def next_wake_ms(self) -> int | None:
        """When to call `advance` next, or None while nothing waits."""
        while self._order and not self._order[0][1].timers:
            _start_ms, bucket = heapq.heappop(self._order)
            bucket.start_ms = -1
        return self._order[0][0] if self._order else None

    def advance(self, now_ms: int) -> list[P]:
        """Moves time, and returns what expired, earliest first."""
        expired: list[P] = []
        while self._order and self._order[0][0] <= now_ms:
            start_ms, bucket = heapq.heappop(self._order)
            self._move_clock(start_ms)
            timers, bucket.timers = bucket.timers, {}
            bucket.start_ms = -1
            for timer in timers:
                if timer.deadline_ms <= start_ms:
                    timer._bucket = None
                    self._count -= 1
                    expired.append(timer.payload)
                else:
                    self._place(timer, timer.deadline_ms)
        self._move_clock(now_ms)
        return expired

    def _move_clock(self, now_ms: int) -> None:
        for level in self._levels:
            if now_ms < level.now_ms + level.tick_ms:
                return
            level.now_ms = now_ms - now_ms % level.tick_ms

    def _place(self, timer: Timer[P], at_ms: int) -> None:
        index = 0
        while True:
            if index == len(self._levels):
                below = self._levels[-1]
                self._levels.append(_Level(below.width_ms, self._slots, below.now_ms))
            level = self._levels[index]
            if at_ms < level.now_ms + level.width_ms:
                break
            index += 1
        number = at_ms // level.tick_ms
        bucket = level.buckets[number % self._slots]
        start_ms = number * level.tick_ms
        if bucket.start_ms != start_ms:
            assert not bucket.timers, "a bucket is emptied before it is used again"
            bucket.start_ms = start_ms
            heapq.heappush(self._order, (start_ms, bucket))
        bucket.timers[timer] = None
        timer._bucket = bucket
