"""A client that follows a fetch session knows what a client without one is told."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.replication.fetch_sessions import NO_FOLLOWER, FetchSessions, Found, Session, Wanted

PARTITIONS = 4


def wanted(number: int, offset: int = 0) -> Wanted:
    return Wanted("t", bytes(16), number, offset, 1000, -1, -1, -1)


class SessionAgainstFullFetches(RuleBasedStateMachine):
    follower_id = NO_FOLLOWER

    def __init__(self) -> None:
        super().__init__()
        numbers = count(1)
        self.sessions = FetchSessions(ManualClock(), 10, lambda: next(numbers))
        self.state = {number: [0, 0] for number in range(PARTITIONS)}  # high watermark, log start
        self.known: dict[int, tuple[int, int]] = {}
        self.followed: set[int] = set()
        self.session = (0, 0)
        self.live: Session | None = None

    def touch(self, number: int) -> None:
        """Of a consumer's session nobody says what changed: it is looked at all."""

    @rule(number=st.integers(0, PARTITIONS - 1), by=st.integers(1, 3))
    def high_watermark_moves(self, number: int, by: int) -> None:
        self.state[number][0] += by
        self.touch(number)

    @rule(number=st.integers(0, PARTITIONS - 1))
    def log_start_moves(self, number: int) -> None:
        self.state[number][1] = self.state[number][0]
        self.touch(number)

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
            follower_id=self.follower_id,
        )
        self.live = context.session
        self.followed = (self.followed | add) - drop if epoch else set(add)
        for number in drop:
            self.known.pop(number, None)
        asked = context.wanted
        read = [one.partition for one in asked]
        self.check_read(set(read), add)
        found = [Found(self.state[number][0], self.state[number][1], False, False) for number in read]
        for number, selected in zip(read, context.select(asked, found), strict=True):
            if selected:
                self.known[number] = (self.state[number][0], self.state[number][1])
        self.session = (context.session_id, epoch + 1) if context.session_id else (0, 0)
        if not context.session_id:
            self.followed, self.known = set(), {}
        assert self.known == {number: (self.state[number][0], self.state[number][1]) for number in self.followed}

    def check_read(self, read: set[int], _named: set[int]) -> None:
        assert read == self.followed

    @invariant()
    def one_session_at_most(self) -> None:
        assert len(self.sessions) == (1 if self.session[0] else 0)


SessionAgainstFullFetches.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestSessionAgainstFullFetches = SessionAgainstFullFetches.TestCase


class FollowersSession(SessionAgainstFullFetches):
    """Looks only at what was named or touched, and tells as much."""

    follower_id = 3

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[int] = set()

    def touch(self, number: int) -> None:
        if self.live is not None and self.live.touch(("t", number)) is not None:
            self.touched.add(number)

    def check_read(self, read: set[int], named: set[int]) -> None:
        assert read == (named | self.touched) & self.followed
        self.touched.clear()


FollowersSession.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestFollowersSession = FollowersSession.TestCase


def test_what_an_earlier_leader_told_counts_no_more_in_a_new_epoch() -> None:
    """The follower asks anew of a leader that leads again: what it was told last may have been lost with its own cut."""
    sessions = FetchSessions(ManualClock(), 10, lambda: 1)
    told = [Found(5, 2, False, False)]
    first = sessions.begin(0, 0, [wanted(0)], [], uses_topic_ids=False, follower_id=3)
    assert first.select(first.wanted, told) == [True]
    same = sessions.begin(1, 1, [wanted(0, 1)], [], uses_topic_ids=False, follower_id=3)
    assert same.select(same.wanted, told) == [False]
    later = sessions.begin(1, 2, [wanted(0)._replace(leader_epoch=4)], [], uses_topic_ids=False, follower_id=3)
    assert later.select(later.wanted, told) == [True]


class Listener:
    ended = 0

    def end(self) -> None:
        self.ended += 1


def test_a_follower_has_one_session_and_what_did_not_fit_into_an_answer_stays_due() -> None:
    numbers = count(1)
    sessions = FetchSessions(ManualClock(), 10, lambda: next(numbers))
    begun = sessions.begin(0, 0, [wanted(0), wanted(1)], [], uses_topic_ids=False, follower_id=3)
    assert begun.session is not None
    begun.session.listener = listener = Listener()
    nothing, data = Found(0, 0, False, False), Found(0, 0, True, True)
    begun.select(begun.wanted, [data, nothing._replace(is_done=False)])
    again = sessions.begin(begun.session_id, 1, [], [], uses_topic_ids=False, follower_id=3)
    assert [one.partition for one in again.wanted] == [1]
    assert again.session is not None
    again.session.touch(("t", 0))
    assert [one.partition for one in again.wanted] == [1, 0], "as it is now, not as it was when the request came"
    sessions.begin(0, 0, [wanted(0)], [], uses_topic_ids=False, follower_id=4)
    assert (len(sessions), listener.ended) == (2, 0)
    sessions.begin(0, 0, [wanted(0)], [], uses_topic_ids=False, follower_id=3)
    assert (len(sessions), listener.ended) == (2, 1)
