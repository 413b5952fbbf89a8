"""The driver of delayed operations: checks after the change, timers at the deadline."""

from __future__ import annotations

from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.drivers.delayed import Delayed
from penstock.purgatory.purgatory import Operation


class Flag(Operation[str]):
    __slots__ = ("checks", "ended", "is_set")

    def __init__(self) -> None:
        super().__init__()
        self.is_set = False
        self.checks = 0
        self.ended = ""

    def is_ready(self, key: str | None) -> bool:
        self.checks += 1
        return self.is_set

    def finish(self) -> None:
        self.ended = "finished"

    def expire(self) -> None:
        self.ended = "expired"


def make() -> tuple[Delayed[str], ManualLoop]:
    clock = ManualClock()
    loop = ManualLoop(clock)
    return Delayed("test", clock, loop), loop


def test_many_changes_in_one_turn_are_one_check_after_it() -> None:
    delayed, loop = make()
    flag = Flag()
    assert not delayed.finish_or_wait(flag, "a", 100)
    flag.is_set = True
    for _ in range(5):
        delayed.changed("a")
    assert (flag.ended, flag.checks) == ("", 1)
    loop.turn()
    assert (flag.ended, flag.checks) == ("finished", 2)


def test_a_key_that_nobody_watches_costs_no_turn() -> None:
    delayed, loop = make()
    delayed.changed("a")
    assert loop._soon == []


def test_deadlines_are_kept_in_order_whatever_order_they_came_in() -> None:
    delayed, loop = make()
    flags = {wait_ms: Flag() for wait_ms in (500, 20, 3000, 1, 21)}
    for wait_ms, flag in flags.items():
        delayed.finish_or_wait(flag, "a", wait_ms)
    passed = 0
    for wait_ms in sorted(flags):
        loop.advance(wait_ms - 1 - passed)
        assert flags[wait_ms].ended == ""
        loop.advance(1)
        passed = wait_ms
        assert flags[wait_ms].ended == "expired"
    assert delayed.purgatory.waiting == 0


class ChangesAnother(Flag):
    """Its end makes another's condition true."""

    __slots__ = ("delayed", "other")

    def __init__(self, delayed: Delayed[str]) -> None:
        super().__init__()
        self.delayed = delayed
        self.other: Flag = self

    def finish(self) -> None:
        assert self.ended == ""
        super().finish()
        self.other.is_set = True
        self.delayed.changed("a")
        self.delayed.changed("b")


def test_two_whose_ends_change_what_the_other_waits_for_are_each_ended_once() -> None:
    # KAFKA-7697, 3994, 6042, 2253
    delayed, loop = make()
    one, two = ChangesAnother(delayed), ChangesAnother(delayed)
    for flag, other, key in ((one, two, "a"), (two, one, "b")):
        flag.other = other
        delayed.finish_or_wait(flag, key, 100)
    one.is_set = True
    delayed.changed("a")
    loop.turn()
    assert [one.ended, two.ended] == ["finished", "finished"]
    assert delayed.purgatory.waiting == 0
    loop.advance(200)


def test_one_that_is_true_at_once_never_waits() -> None:
    delayed, _ = make()
    flag = Flag()
    flag.is_set = True
    assert delayed.finish_or_wait(flag, "a", 100)
    assert delayed.purgatory.waiting == 0


def test_after_its_end_nothing_that_waits_is_ended() -> None:
    delayed, loop = make()
    flags = [Flag(), Flag()]
    delayed.finish_or_wait(flags[0], "a", 100)
    delayed.stop()
    delayed.finish_or_wait(flags[1], "a", 50)
    loop.advance(1000)
    assert [flag.ended for flag in flags] == ["", ""]
