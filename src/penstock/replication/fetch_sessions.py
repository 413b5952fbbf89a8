"""Fetch sessions (KIP-227): a client names its partitions once, then only what changed, and is answered alike.

Invariants:
- a session's epoch is the one its next request must carry, so a lost or repeated request is noticed;
- a partition is left out of an answer only if it has no data, no error, and nothing the client was not told before;
- there are never more than `slots_max` sessions; one that makes room was idle for long, or is smaller than the newcomer.

A follower's session also knows which of its partitions may have something new (`changed`), so that a request costs what changed and not what is
followed: those that the request names, those that somebody `touch`ed since, and those that could not be told of in the last answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition

NO_SESSION = 0
FIRST_EPOCH = 0
LAST_EPOCH = -1
EPOCH_MAX = 2**31 - 1
EVICTABLE_AFTER_MS = 120_000


class FetchSessionNotFoundError(PenstockError):
    """No session of this id: evicted, or of another broker (FETCH_SESSION_ID_NOT_FOUND)."""


class InvalidFetchSessionEpochError(PenstockError):
    """A request of the session was lost or repeated (INVALID_FETCH_SESSION_EPOCH)."""


class FetchSessionTopicIdError(PenstockError):
    """A session began with names and went on with ids, or the other way round (FETCH_SESSION_TOPIC_ID_ERROR)."""


class Wanted(NamedTuple):
    """One partition that a client wants to read."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    bytes_max: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


class Found(NamedTuple):
    """What an answer would say of a partition, as far as the session cares."""

    high_watermark: int
    log_start_offset: int
    must_tell: bool
    """It has data, an error, or something else that is always told."""
    has_data: bool
    is_done: bool = True
    """Of followers: there is nothing more to tell until the partition changes or is asked for anew."""


Key = tuple[str | bytes, int]


class Cached:
    """A session's partition, and what its client was last told."""

    __slots__ = ("sent_high_watermark", "sent_log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1


class SessionListener(Protocol):
    """Whoever watches the partitions of a follower's session."""

    def end(self) -> None:
        """The session is no more."""


NO_FOLLOWER = -1


class Session:
    __slots__ = (
        "changed",
        "created_ms",
        "epoch",
        "follower_id",
        "listener",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, follower_id: int, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.follower_id = follower_id
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[Key, Cached] = {}
        self.changed: dict[Key, None] | None = {} if self.is_privileged else None
        self.listener: SessionListener | None = None

    @property
    def is_privileged(self) -> bool:
        return self.follower_id != NO_FOLLOWER

    def key(self, wanted: Wanted) -> Key:
        return (wanted.topic_id if self.uses_topic_ids else wanted.topic, wanted.partition)

    def touch(self, key: Key) -> Wanted | None:
        """A partition may have something new. What its follower wants of it."""
        assert self.changed is not None
        cached = self.partitions.get(key)
        if cached is None:
            return None
        self.changed[key] = None
        return cached.wanted

    def wanted(self) -> list[Wanted]:
        """What may have something new."""
        keys = self.partitions if self.changed is None else self.changed
        return [self.partitions[key].wanted for key in keys]


class FetchContext:
    """One request of a session, or of none: what to read, and what of the answer to send."""

    __slots__ = ("_wanted", "is_incremental", "session", "session_id")

    def __init__(self, wanted: list[Wanted], session: Session | None, *, is_incremental: bool) -> None:
        self._wanted = wanted
        self.session = session
        self.is_incremental = is_incremental
        self.session_id = NO_SESSION if session is None else session.session_id

    @property
    def wanted(self) -> list[Wanted]:
        """Of a follower's session as it is now: more may have changed since the request came."""
        session = self.session
        return self._wanted if session is None or session.changed is None else session.wanted()

    def select(self, wanted: list[Wanted], found: list[Found]) -> list[bool]:
        """Which of the partitions to send, in the order of `wanted`; remembers what the client now knows."""
        session = self.session
        if session is None:
            return [True] * len(found)
        selected = []
        for one, state in zip(wanted, found, strict=True):
            key = session.key(one)
            cached = session.partitions.get(key)
            if cached is None:
                selected.append(True)
                continue
            changed = (
                cached.sent_high_watermark != state.high_watermark
                or cached.sent_log_start_offset != state.log_start_offset
            )
            cached.sent_high_watermark = state.high_watermark
            cached.sent_log_start_offset = state.log_start_offset
            selected.append(state.must_tell or changed or not self.is_incremental)
            if session.changed is not None:
                if state.is_done:
                    session.changed.pop(key, None)
            elif state.has_data and self.is_incremental:
                # To the end: the next answer's budget goes to the others first.
                session.partitions[key] = session.partitions.pop(key)
        return selected


class FetchSessions:
    def __init__(self, clock: Clock, slots_max: int, new_id: Callable[[], int]) -> None:
        self._clock = clock
        self._slots_max = slots_max
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: list[Wanted],
        forgotten: Iterable[TopicPartition | tuple[bytes, int]],
        *,
        uses_topic_ids: bool,
        follower_id: int = NO_FOLLOWER,
    ) -> FetchContext:
        """Takes a request in. Errors stand for the whole request. A follower has one session: with a new one the old one ends."""
        if epoch in (FIRST_EPOCH, LAST_EPOCH):
            self._end(session_id)
            session = None
            if epoch == FIRST_EPOCH and wanted:
                session = self._maybe_create(wanted, uses_topic_ids, follower_id)
            return FetchContext(wanted, session, is_incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionNotFoundError(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} changed between names and ids of topics")
        self._update(session, wanted, forgotten)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = self._clock.monotonic_ms()
        if not session.partitions:
            self._end(session_id)
            return FetchContext([], None, is_incremental=False)
        return FetchContext(session.wanted(), session, is_incremental=True)

    def _end(self, session_id: int) -> None:
        ended = self._sessions.pop(session_id, None)
        if ended is not None and ended.listener is not None:
            ended.listener.end()

    @staticmethod
    def _update(
        session: Session, wanted: list[Wanted], forgotten: Iterable[TopicPartition | tuple[bytes, int]]
    ) -> None:
        changed = session.changed
        for one in wanted:
            key = session.key(one)
            cached = session.partitions.get(key)
            if cached is None or cached.wanted.leader_epoch != one.leader_epoch:
                session.partitions[key] = Cached(one)  # what an earlier leader told counts no more
            else:
                cached.wanted = one
            if changed is not None:
                changed[key] = None
        for gone in forgotten:
            session.partitions.pop((gone[0], gone[1]), None)
            if changed is not None:
                changed.pop((gone[0], gone[1]), None)

    def _maybe_create(self, wanted: list[Wanted], uses_topic_ids: bool, follower_id: int) -> Session | None:
        now_ms = self._clock.monotonic_ms()
        is_privileged = follower_id != NO_FOLLOWER
        if is_privileged:
            for old in [one.session_id for one in self._sessions.values() if one.follower_id == follower_id]:
                self._end(old)
        if len(self._sessions) >= self._slots_max and not self._maybe_evict(len(wanted), is_privileged, now_ms):
            return None
        session_id = self._new_id()
        while session_id <= 0 or session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, uses_topic_ids, follower_id, now_ms)
        self._sessions[session_id] = session
        self._update(session, wanted, ())
        return session

    def _maybe_evict(self, size: int, is_privileged: bool, now_ms: int) -> bool:
        """Room for a session of this size, by the end of one idle for long, or of one that matters less."""
        oldest = min(self._sessions.values(), key=lambda session: session.used_ms, default=None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms <= EVICTABLE_AFTER_MS:
            candidates = [
                session
                for session in self._sessions.values()
                if (is_privileged and not session.is_privileged)
                or (
                    is_privileged == session.is_privileged
                    and len(session.partitions) < size
                    and now_ms - session.created_ms > EVICTABLE_AFTER_MS
                )
            ]
            smallest = min(candidates, key=lambda session: len(session.partitions), default=None)
            if smallest is None:
                return False
            oldest = smallest
        self._end(oldest.session_id)
        self.evictions += 1
        return True
