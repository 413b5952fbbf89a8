"""Operations are finished once, watched by their keys, and leave nothing behind."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.purgatory.purgatory import Operation, Purgatory

KEYS = "abcd"


class Wait(Operation[str]):
    """Ready when each of its keys has been seen `needed` times in all."""

    __slots__ = ("ended", "needed", "seen")

    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed
        self.seen = 0
        self.ended: list[str] = []

    def is_ready(self, key: str | None) -> bool:
        self.seen += key is not None
        return self.seen >= self.needed

    def finish(self) -> None:
        self.ended.append("finished")

    def expire(self) -> None:
        self.ended.append("expired")


class PurgatoryAgainstAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.purgatory: Purgatory[str] = Purgatory("test", self.now)
        self.waiting: list[tuple[Wait, frozenset[str], int]] = []
        self.all: list[Wait] = []

    @rule(
        keys=st.sets(st.sampled_from(KEYS), min_size=1),
        needed=st.integers(0, 3),
        wait_ms=st.integers(1, 3_000),
    )
    def wait(self, keys: set[str], needed: int, wait_ms: int) -> None:
        operation = Wait(needed)
        self.all.append(operation)
        finished = self.purgatory.finish_or_watch(operation, sorted(keys) * 2, self.now + wait_ms)
        assert finished == (needed == 0)
        if not finished:
            self.waiting.append((operation, frozenset(keys), self.now + wait_ms))

    @rule(key=st.sampled_from(KEYS))
    def check(self, key: str) -> None:
        due = [entry for entry in self.waiting if key in entry[1] and entry[0].seen + 1 >= entry[0].needed]
        assert self.purgatory.check(key) == len(due)
        assert all(entry[0].ended == ["finished"] for entry in due)
        self.waiting = [entry for entry in self.waiting if entry not in due]

    @rule(by=st.integers(1, 2_000))
    def pass_time(self, by: int) -> None:
        self.now += by
        due = [entry for entry in self.waiting if entry[2] <= self.now]
        assert self.purgatory.expire(self.now) == len(due)
        assert all(entry[0].ended == ["expired"] for entry in due)
        self.waiting = [entry for entry in self.waiting if entry not in due]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.waiting))
        assert self.purgatory.drop(entry[0])
        assert not self.purgatory.drop(entry[0])
        self.waiting.remove(entry)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        # KAFKA-664
        assert self.purgatory.waiting == len(self.waiting)
        assert self.purgatory.watched == sum(len(entry[1]) for entry in self.waiting)
        assert self.purgatory.keys == len(frozenset().union(*(entry[1] for entry in self.waiting)))
        assert all(len(operation.ended) <= 1 for operation in self.all)


PurgatoryAgainstAModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPurgatoryAgainstAModel = PurgatoryAgainstAModel.TestCase


class DropsAnother(Wait):
    __slots__ = ("other", "purgatory")

    def __init__(self, purgatory: Purgatory[str]) -> None:
        super().__init__(1)
        self.purgatory = purgatory
        self.other: Wait | None = None

    def finish(self) -> None:
        super().finish()
        if self.other is not None:
            self.purgatory.drop(self.other)

    def expire(self) -> None:
        super().expire()
        if self.other is not None:
            self.purgatory.drop(self.other)


def test_an_operation_dropped_by_its_neighbours_end_is_not_ended() -> None:
    for end in ("check", "expire"):
        purgatory: Purgatory[str] = Purgatory("test", 0)
        first, second = DropsAnother(purgatory), Wait(1)
        first.other = second
        purgatory.finish_or_watch(first, "a", 10)
        purgatory.finish_or_watch(second, "a", 10)
        assert (purgatory.check("a") if end == "check" else purgatory.expire(10)) == 1
        assert second.ended == []
        assert purgatory.watched == purgatory.waiting == 0


def test_a_listener_hears_of_every_check_and_may_finish_what_waits_for_no_key() -> None:
    purgatory: Purgatory[str] = Purgatory("test", 0)
    operation = Wait(100)
    heard: list[str] = []

    def listener(key: str) -> None:
        heard.append(key)
        if len(heard) == 2:
            assert purgatory.finish(operation)

    purgatory.listen("a", listener)
    assert purgatory.is_watched("a")
    assert not purgatory.finish_or_watch(operation, (), 50)
    purgatory.check("a")
    assert operation.ended == []
    purgatory.check("b")
    purgatory.check("a")
    assert (heard, operation.ended, purgatory.waiting) == (["a", "a"], ["finished"], 0)
    assert not purgatory.finish(operation), "once"
    assert purgatory.expire(100) == 0
    purgatory.unlisten("a", listener)
    purgatory.unlisten("a", listener)
    assert not purgatory.is_watched("a")
    purgatory.check("a")
    assert len(heard) == 2
