"""Fetch sessions (KIP-227): a client names its partitions once, then only what changed, and is answered alike.

Invariants:
- a session's epoch is the one its next request must carry, so a lost or repeated request is noticed;
- a partition is left out of an answer only if it has no data, no error, and nothing the client was not told before;
- there are never more than `slots_max` sessions; one that makes room was idle for long, or is smaller than the newcomer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

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


Key = tuple[str | bytes, int]


class _Cached:
    __slots__ = ("sent_high_watermark", "sent_log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1


class _Session:
    __slots__ = ("created_ms", "epoch", "is_privileged", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, is_privileged: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[Key, _Cached] = {}

    def key(self, wanted: Wanted) -> Key:
        return (wanted.topic_id if self.uses_topic_ids else wanted.topic, wanted.partition)


class FetchContext:
    """One request of a session, or of none: what to read, and what of the answer to send."""

    __slots__ = ("_session", "is_incremental", "session_id", "wanted")

    def __init__(self, wanted: list[Wanted], session: _Session | None, *, is_incremental: bool) -> None:
        self.wanted = wanted
        self._session = session
        self.is_incremental = is_incremental
        self.session_id = NO_SESSION if session is None else session.session_id

    def select(self, found: list[Found]) -> list[bool]:
        """Which of the partitions to send, in the order of `wanted`; remembers what the client now knows."""
        session = self._session
        if session is None:
            return [True] * len(found)
        selected = []
        for wanted, state in zip(self.wanted, found, strict=True):
            key = session.key(wanted)
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
            if state.has_data and self.is_incremental:
                # To the end: the next answer's budget goes to the others first.
                session.partitions[key] = session.partitions.pop(key)
        return selected


class FetchSessions:
    def __init__(self, clock: Clock, slots_max: int, new_id: Callable[[], int]) -> None:
        self._clock = clock
        self._slots_max = slots_max
        self._new_id = new_id
        self._sessions: dict[int, _Session] = {}
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
        is_privileged: bool,
    ) -> FetchContext:
        """Takes a request in. Errors stand for the whole request."""
        if epoch in (FIRST_EPOCH, LAST_EPOCH):
            self._sessions.pop(session_id, None)
            session = None
            if epoch == FIRST_EPOCH and wanted:
                session = self._maybe_create(wanted, uses_topic_ids, is_privileged)
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
            del self._sessions[session_id]
            return FetchContext([], None, is_incremental=False)
        return FetchContext([cached.wanted for cached in session.partitions.values()], session, is_incremental=True)

    @staticmethod
    def _update(
        session: _Session, wanted: list[Wanted], forgotten: Iterable[TopicPartition | tuple[bytes, int]]
    ) -> None:
        for one in wanted:
            cached = session.partitions.get(session.key(one))
            if cached is None:
                session.partitions[session.key(one)] = _Cached(one)
            else:
                cached.wanted = one
        for key in forgotten:
            session.partitions.pop((key[0], key[1]), None)

    def _maybe_create(self, wanted: list[Wanted], uses_topic_ids: bool, is_privileged: bool) -> _Session | None:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots_max and not self._maybe_evict(len(wanted), is_privileged, now_ms):
            return None
        session_id = self._new_id()
        while session_id <= 0 or session_id in self._sessions:
            session_id = self._new_id()
        session = _Session(session_id, uses_topic_ids, is_privileged, now_ms)
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
        del self._sessions[oldest.session_id]
        self.evictions += 1
        return True
