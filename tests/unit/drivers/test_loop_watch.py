"""The loop's longest turn is seen from a timer that comes late."""

from __future__ import annotations

from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.drivers.loop_watch import TICK_MS, LoopWatch


def test_a_turn_that_holds_the_loop_up_is_seen_once() -> None:
    clock = ManualClock()
    loop = ManualLoop(clock)
    watch = LoopWatch(loop, clock)
    watch.start()
    loop.advance(10 * TICK_MS)
    assert watch.take_longest_us() == 0
    clock.advance(TICK_MS + 70)  # a callback that took this long
    loop.advance(1)
    assert watch.take_longest_us() == 70_000
    assert watch.take_longest_us() == 0
    assert watch.lateness.count == 11


def test_a_stopped_watch_leaves_no_timer() -> None:
    clock = ManualClock()
    loop = ManualLoop(clock)
    watch = LoopWatch(loop, clock)
    watch.start()
    watch.stop()
    loop.advance(10 * TICK_MS)
    assert watch.lateness.count == 0
