"""The offsets of a log beside its end (row S12): start, recovery point, high watermark, last stable offset.

Invariants, asserted in `check` and nowhere else:
- start <= recovery point <= end;
- start <= last stable offset <= high watermark <= end; the high watermark falls only where the log is cut.
Who may call: `partition_log`.
"""

from __future__ import annotations

from penstock.storage.log import Log, Place
from penstock.storage.producer_state import Producers


class LogOffsets:
    __slots__ = ("_last_stable", "_log", "_producers", "high_watermark", "recovery_point", "start")

    def __init__(self, log: Log, producers: Producers, *, start: int, recovery_point: int, high_watermark: int) -> None:
        self._log = log
        self._producers = producers
        self._last_stable: Place | None = None
        self.start = start
        self.recovery_point = recovery_point
        self.high_watermark = log.place(high_watermark)
        self.check()

    def check(self) -> None:
        start, end, stable = self.start, self._log.end.offset, self.last_stable().offset
        assert start <= self.recovery_point <= end, (start, self.recovery_point, end)
        assert start <= stable <= self.high_watermark.offset <= end, (start, stable, self.high_watermark.offset, end)

    def last_stable(self) -> Place:
        """Where the first open transaction begins, or the high watermark; never below the start."""
        unstable = self._producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark.offset:
            return self.high_watermark
        unstable = max(unstable, self.start)
        if self._last_stable is None or self._last_stable.offset != unstable:
            self._last_stable = self._log.place(unstable)
        return self._last_stable

    def raise_high_watermark(self, offset: int) -> bool:
        """Never back and never past the end; says whether it moved."""
        end = self._log.end
        if offset > end.offset:
            offset = end.offset
        if offset <= self.high_watermark.offset:
            return False
        self.high_watermark = end if offset == end.offset else self._log.place(offset)
        self._producers.passed_high_watermark(offset)
        return True

    def raise_start(self, offset: int) -> bool:
        """The log begins at `offset`; what must not lie below it comes along. Says whether that was news."""
        if offset <= self.start:
            return False
        self.start = offset
        self.recovery_point = max(self.recovery_point, offset)
        if self.high_watermark.offset < offset:
            self.high_watermark = self._log.place(offset)
        self._producers.forget_below(offset)
        self._last_stable = None
        self.check()
        return True

    def lower_recovery_point(self, offset: int) -> bool:
        """Nothing at or above `offset` counts as flushed any more; says whether that was news."""
        lower = max(offset, self.start)
        if lower >= self.recovery_point:
            return False
        self.recovery_point = lower
        return True

    def cut_to_end(self) -> None:
        """The log was truncated: nothing lies beyond its end. The producers are as they then are."""
        end = self._log.end
        self.recovery_point = min(self.recovery_point, end.offset)
        self.start = min(self.start, end.offset)
        if self.high_watermark.offset >= end.offset:
            self.high_watermark = end
        self._last_stable = None
        self.check()

    def restart(self) -> None:
        """The log is empty: everything is its end."""
        end = self._log.end
        self.start = self.recovery_point = end.offset
        self.high_watermark = end
        self._last_stable = None
        self.check()

    def segments_changed(self) -> None:
        """Segments took the place of others: the same offsets lie elsewhere."""
        self.high_watermark = self._log.place(self.high_watermark.offset)
        self._last_stable = None
