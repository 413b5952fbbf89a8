"""The timing wheel against a plain list of deadlines."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.purgatory.timing_wheel import Timer, TimingWheel

START = 5_003


class WheelAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.wheel: TimingWheel[int] = TimingWheel(START)
        self.model: dict[int, int] = {}
        self.timers: dict[int, Timer[int]] = {}
        self.number = 0

    @rule(after=st.one_of(st.integers(-5, 30), st.integers(0, 500), st.integers(0, 200_000), st.integers(0, 2**40)))
    def add(self, after: int) -> None:
        self.number += 1
        self.timers[self.number] = self.wheel.add(self.number, self.now + after)
        self.model[self.number] = self.now + after

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.timers)))
        assert self.wheel.cancel(self.timers[number]) == (number in self.model)
        self.model.pop(number, None)

    @rule(by=st.one_of(st.integers(0, 3), st.integers(0, 50), st.integers(0, 10_000), st.integers(0, 2**38)))
    def advance(self, by: int) -> None:
        # A deadline that had passed when it was added expires with the next tick.
        self.now += max(by, 1)
        expired = self.wheel.advance(self.now)
        due = sorted(number for number, deadline in self.model.items() if deadline <= self.now)
        assert sorted(expired) == due
        for number in expired:
            del self.model[number]

    @rule()
    def wake_when_it_asks(self) -> None:
        wake = self.wheel.next_wake_ms()
        if wake is not None:
            self.advance(max(wake - self.now, 1))

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.wheel) == len(self.model)
        wake = self.wheel.next_wake_ms()
        assert (wake is None) == (not self.model)
        assert wake is None or wake <= max(min(self.model.values()), self.now + 1)


WheelAgainstAList.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWheelAgainstAList = WheelAgainstAList.TestCase


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50))
def test_following_its_own_wake_ups_no_timer_is_late(delays: list[int]) -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    for delay in delays:
        wheel.add(delay, delay)
    seen: list[int] = []
    turns = 0
    while (wake := wheel.next_wake_ms()) is not None:
        turns += 1
        for delay in wheel.advance(wake):
            assert delay == wake
            seen.append(delay)
    assert seen == sorted(delays)
    assert turns <= len(delays) * 5, "one turn for each level a timer falls through, at most"


def test_a_hundred_thousand_timers_of_one_minute_stand_in_few_buckets() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    timers = [wheel.add(number, 60_000 + number % 100) for number in range(100_000)]
    assert len(wheel._order) < 100
    for timer in timers:
        assert wheel.cancel(timer)
    assert wheel.next_wake_ms() is None
