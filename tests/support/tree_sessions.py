"""Sessions of one ZooKeeper-shaped tree, without a server: each request is done at once, and answered when the loop looks."""

from __future__ import annotations

from collections.abc import Callable

from penstock.metadata.store import (
    Answered,
    Committed,
    ConnectionLostError,
    Delete,
    Event,
    Operation,
    Read,
    Refusal,
    Refused,
    SessionChanged,
    SessionState,
    StoreError,
    Transaction,
    Watched,
)
from penstock.metadata.tree import Tree


class TreeServer:
    def __init__(self) -> None:
        self.tree = Tree()
        self.sessions: dict[int, TreeSession] = {}
        self._next_id = 1

    def open(self, notify: Callable[[], object] = lambda: None) -> TreeSession:
        session = TreeSession(self, self._next_id, notify)
        self.sessions[self._next_id] = session
        self._next_id += 1
        return session

    def commit(self, operations: tuple[Operation, ...], session_id: int) -> tuple[object, ...] | Refusal:
        outcome = self.tree.commit(Transaction(operations=operations), session_id, 0)
        if isinstance(outcome, Refusal):
            return outcome
        results, effects = outcome
        for fired in self.tree.fire(effects):
            if fired.session in self.sessions:
                self.sessions[fired.session].tell(Watched(path=fired.path, change=fired.change))
        return results

    def end(self, session: TreeSession) -> None:
        """As ZooKeeper ends a session that it does not hear of; its owner does not know that yet."""
        del self.sessions[session.session_id]
        self.tree.drop_watches(session.session_id)
        gone = tuple(Delete(path=path) for path in self.tree.ephemerals(session.session_id))
        if gone:
            self.commit(gone, session.session_id)


class TreeSession:
    def __init__(self, server: TreeServer, session_id: int, notify: Callable[[], object]) -> None:
        self._server = server
        self.session_id = session_id
        self.notify = notify
        self._arrived: list[Event] = []
        self._tokens = 0
        self.loses_answers = False
        """To what it changes: that happens, and its owner does not hear of it."""

    def alive(self) -> None: ...

    def submit(self, request: Transaction | Read) -> int:
        self._tokens += 1
        self._arrived.append(self._carry_out(request, self._tokens))
        return self._tokens

    def _carry_out(self, request: Transaction | Read, token: int) -> Event:
        if isinstance(request, Read):
            try:
                return Answered(token=token, result=self._server.tree.read(request, self.session_id))
            except StoreError as error:
                return Refused(token=token, index=0, error=error)
        outcome = self._server.commit(request.operations, self.session_id)
        if self.loses_answers:
            return Refused(token=token, index=0, error=ConnectionLostError("the connection broke"))
        if isinstance(outcome, Refusal):
            return Refused(token=token, index=outcome.index, error=outcome.error)
        return Committed(token=token, transaction=request, results=outcome)  # type: ignore[arg-type]

    def tell(self, event: Event) -> None:
        self._arrived.append(event)
        self.notify()

    def take_events(self) -> list[Event]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def expire(self) -> None:
        """Its owner hears that it is over."""
        self.tell(SessionChanged(state=SessionState.EXPIRED))
