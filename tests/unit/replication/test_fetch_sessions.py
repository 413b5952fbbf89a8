"""A client that follows a fetch session knows what a client without one is told."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.replication.fetch_sessions import FetchSessions, Found, Wanted

PARTITIONS = 4


def wanted(number: int, offset: int = 0) -> Wanted:
    return Wanted("t", bytes(16), number, offset, 1000, -1, -1, -1)


class SessionAgainstFullFetches(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        numbers = count(1)
        self.sessions = FetchSessions(ManualClock(), 10, lambda: next(numbers))
        self.state = {number: [0, 0] for number in range(PARTITIONS)}  # high watermark, log start
        self.known: dict[int, tuple[int, int]] = {}
        self.followed: set[int] = set()
        self.session = (0, 0)

    @rule(number=st.integers(0, PARTITIONS - 1), by=st.integers(1, 3))
    def high_watermark_moves(self, number: int, by: int) -> None:
        self.state[number][0] += by

    @rule(number=st.integers(0, PARTITIONS - 1))
    def log_start_moves(self, number: int) -> None:
        self.state[number][1] = self.state[number][0]

    @rule(add=st.sets(st.integers(0, PARTITIONS - 1)), drop=st.sets(st.integers(0, PARTITIONS - 1)))
    def fetch(self, add: set[int], drop: set[int]) -> None:
        session_id, epoch = self.session
        drop = drop & self.followed - add
        context = self.sessions.begin(
            session_id,
            epoch,
            [wanted(number) for number in sorted(add)],
            [TopicPartition("t", number) for number in drop] if epoch else [],
            uses_topic_ids=False,
            is_privileged=False,
        )
        self.followed = (self.followed | add) - drop if epoch else set(add)
        for number in drop:
            self.known.pop(number, None)
        read = [one.partition for one in context.wanted]
        assert set(read) == self.followed
        found = [Found(self.state[number][0], self.state[number][1], False, False) for number in read]
        for number, selected in zip(read, context.select(found), strict=True):
            if selected:
                self.known[number] = (self.state[number][0], self.state[number][1])
        self.session = (context.session_id, epoch + 1) if context.session_id else (0, 0)
        if not context.session_id:
            self.followed, self.known = set(), {}
        assert self.known == {number: (self.state[number][0], self.state[number][1]) for number in self.followed}

    @invariant()
    def one_session_at_most(self) -> None:
        assert len(self.sessions) == (1 if self.session[0] else 0)


SessionAgainstFullFetches.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestSessionAgainstFullFetches = SessionAgainstFullFetches.TestCase
