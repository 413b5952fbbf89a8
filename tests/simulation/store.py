"""A simulated ZooKeeper: the pure tree, sessions that expire, answers that come late or never, watches in order with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.metadata import layout
from penstock.metadata.store import (
    Answered,
    Committed,
    ConnectionLostError,
    Delete,
    Event,
    Node,
    NoNodeError,
    Operation,
    Read,
    ReadKind,
    Refusal,
    Refused,
    SessionChanged,
    SessionState,
    StoreError,
    Transaction,
    Watched,
)
from penstock.metadata.tree import Effect, Tree
from tests.simulation.events import Events

SESSION_MS = 300
CHECK_MS = 50


class SimTree:
    """The ensemble: one mind, never away itself."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.tree = Tree()
        self._sessions: dict[int, SimSession] = {}
        self._next_id = 1
        self.cut_off: set[int] = set()
        """Brokers that cannot reach it."""
        events.at(CHECK_MS, self._expire)

    # What is there, whoever asks.
    def data(self, path: str) -> bytes | None:
        try:
            found = self.tree.read(Read(kind=ReadKind.DATA, path=path), 0)
        except NoNodeError:
            return None
        assert isinstance(found, Node)
        return found.data

    def children(self, path: str) -> tuple[str, ...]:
        found = self.tree.read(Read(kind=ReadKind.CHILDREN, path=path), 0)
        assert isinstance(found, tuple)
        return found

    def topic_configs(self) -> dict[str, dict[str, str]]:
        found = {name: layout.topic_config_path(name) for name in self.children(layout.TOPIC_CONFIGS)}
        return {name: layout.decode_config(path, self.data(path) or b"") for name, path in found.items()}

    def open(self, owner: int, notify: Callable[[], object]) -> SimSession:
        return SimSession(self, owner, notify)

    def begin(self, session: SimSession) -> int:
        session_id = self._next_id
        self._next_id += 1
        self._sessions[session_id] = session
        return session_id

    def _expire(self) -> None:
        now_ms = self.events.now_ms
        for session_id, session in list(self._sessions.items()):
            if now_ms - session.heard_ms > SESSION_MS:
                self.end(session_id)
        self.events.at(CHECK_MS, self._expire)

    def end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self.events.note(f"session of {session.owner} ended")
        self.tree.drop_watches(session_id)
        gone = tuple(Delete(path=path) for path in self.tree.ephemerals(session_id))
        if gone:
            self.commit(gone, session_id)

    def commit(self, operations: tuple[Operation, ...], session_id: int) -> tuple[object, ...] | Refusal:
        outcome = self.tree.commit(Transaction(operations=operations), session_id, self.events.clock.wall_ms())
        if isinstance(outcome, Refusal):
            return outcome
        results, effects = outcome
        self._fire(effects)
        return results

    def _fire(self, effects: tuple[Effect, ...]) -> None:
        for fired in self.tree.fire(effects):
            session = self._sessions.get(fired.session)
            if session is not None:
                session.tell(fired.session, Watched(path=fired.path, change=fired.change))

    def is_alive(self, session_id: int) -> bool:
        return session_id in self._sessions


class SimSession:
    """A broker's client of the store: it goes on with a new session where the old one expired."""

    def __init__(self, tree: SimTree, owner: int, notify: Callable[[], object]) -> None:
        self._tree = tree
        self._events = tree.events
        self.owner = owner
        self._notify = notify
        self.heard_ms = self._events.now_ms
        self.session_id = tree.begin(self)
        self._next_token = 1
        self._arrived: list[Event] = []
        self._waiting: set[int] = set()
        self._last_there_ms = self._last_back_ms = 0

    def alive(self) -> None:
        """The broker's loop turned: the store hears of it, if it can be reached."""
        if self.owner in self._tree.cut_off:
            return
        if self._tree.is_alive(self.session_id):
            self.heard_ms = self._events.now_ms
            return
        for token in sorted(self._waiting):
            self._arrive(Refused(token=token, index=0, error=ConnectionLostError("the session expired")))
        self._waiting.clear()
        self._arrive(SessionChanged(state=SessionState.EXPIRED))
        self.heard_ms = self._events.now_ms
        self.session_id = self._tree.begin(self)
        self._arrive(SessionChanged(state=SessionState.CONNECTED))

    def submit(self, request: Transaction | Read) -> int:
        token = self._next_token
        self._next_token += 1
        self._waiting.add(token)
        due_ms = max(self._events.now_ms + self._events.chance.randrange(3), self._last_there_ms)
        self._last_there_ms = due_ms
        self._events.at(due_ms - self._events.now_ms, partial(self._carry_out, self.session_id, token, request))
        return token

    def _carry_out(self, session_id: int, token: int, request: Transaction | Read) -> None:
        is_lost = self._events.chance.random() < 0.002 or self.owner in self._tree.cut_off
        if session_id != self.session_id or not self._tree.is_alive(session_id) or token not in self._waiting:
            return
        if is_lost and self._events.chance.random() < 0.5:
            self._lose(token)
            return
        event: Event
        if isinstance(request, Read):
            try:
                event = Answered(token=token, result=self._tree.tree.read(request, session_id))
            except StoreError as error:
                event = Refused(token=token, index=0, error=error)
        else:
            outcome = self._tree.commit(request.operations, session_id)
            if isinstance(outcome, Refusal):
                event = Refused(token=token, index=outcome.index, error=outcome.error)
            else:
                event = Committed(token=token, transaction=request, results=outcome)  # type: ignore[arg-type]
        if is_lost:
            self._lose(token)
        else:
            self._answer(session_id, token, event)

    def _lose(self, token: int) -> None:
        """Whether it happened the broker does not learn."""
        lost = Refused(token=token, index=0, error=ConnectionLostError("the connection broke"))
        self._answer(self.session_id, token, lost)

    def _answer(self, session_id: int, token: int, event: Event) -> None:
        self._back(partial(self._answered, session_id, token, event))

    def _answered(self, session_id: int, token: int, event: Event) -> None:
        if session_id == self.session_id and token in self._waiting:
            self._waiting.discard(token)
            self._arrive(event)

    def tell(self, session_id: int, event: Event) -> None:
        self._back(lambda: self._arrive(event) if session_id == self.session_id else None)

    def _back(self, arrive: Callable[[], object]) -> None:
        due_ms = max(self._events.now_ms + self._events.chance.randrange(3), self._last_back_ms)
        self._last_back_ms = due_ms
        self._events.at(due_ms - self._events.now_ms, arrive)

    def _arrive(self, event: Event) -> None:
        self._arrived.append(event)
        self._notify()

    def take_events(self) -> list[Event]:
        arrived, self._arrived = self._arrived, []
        return arrived
