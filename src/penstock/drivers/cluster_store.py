"""Drives a cluster's store: hands its events out in order, on the loop, and keeps its session alive while the loop turns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.drivers.loop import Loop, Timer
from penstock.drivers.steps import Reply
from penstock.metadata.store import (
    Answered,
    Committed,
    ConnectionLostError,
    Event,
    Node,
    NoNodeError,
    Operation,
    Read,
    ReadKind,
    Refused,
    Result,
    SessionChanged,
    SessionState,
    Store,
    StoreError,
    Transaction,
    Watched,
)

logger = logging.getLogger(__name__)

Done = Callable[[Committed | Refused], object]
ALIVE_MS = 200
_REFUSED = Refused(token=0, index=0, error=ConnectionLostError("there is no connection to the store for now"))


class SessionStore(Store, Protocol):
    """A store whose session can end."""

    @property
    def session_id(self) -> int: ...

    def alive(self) -> None:
        """The owner's loop turned."""


class ClusterStore:
    """`submit` is StoreDriver's; reads, watches and the session's fate beside it. Everything calls back on the loop.

    While there is no connection nothing is asked: what would be is refused, and whoever needs it hears when there is one again.
    """

    def __init__(self, store: SessionStore, loop: Loop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: dict[int, Callable[[Committed | Refused | Answered], object]] = {}
        self._watchers: list[Callable[[str], object]] = []
        self._listeners: list[Callable[[SessionState], object]] = []
        self._timer: Timer | None = None
        self.is_connected = True

    @property
    def session_id(self) -> int:
        return self._store.session_id

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._store.alive()
        self._timer = self._loop.call_later(ALIVE_MS, self._tick)

    def on_watch(self, watcher: Callable[[str], object]) -> None:
        """Hears of every path that a watch told of."""
        self._watchers.append(watcher)

    def on_session(self, listener: Callable[[SessionState], object]) -> None:
        self._listeners.append(listener)

    # Asking.
    def submit(self, transaction: Transaction, done: Done) -> None:
        if not self.is_connected:
            self._loop.call_soon(lambda: done(_REFUSED))
            return
        self._waiting[self._store.submit(transaction)] = done  # type: ignore[assignment]
        self._loop.call_soon(self.hand_out)

    def commit(self, transaction: Transaction) -> Reply[Committed | Refused]:
        reply: Reply[Committed | Refused] = Reply()
        self.submit(transaction, reply.give)
        return reply

    async def commit_one(self, operation: Operation) -> Committed | StoreError:
        outcome = await self.commit(Transaction(operations=(operation,)))
        return outcome.error if isinstance(outcome, Refused) else outcome

    def ask(self, request: Read) -> Reply[Result | StoreError]:
        reply: Reply[Result | StoreError] = Reply()
        if not self.is_connected:
            self._loop.call_soon(lambda: reply.give(_REFUSED.error))
            return reply

        def answered(event: Committed | Refused | Answered) -> None:
            assert not isinstance(event, Committed)
            reply.give(event.error if isinstance(event, Refused) else event.result)

        self._waiting[self._store.submit(request)] = answered
        self._loop.call_soon(self.hand_out)
        return reply

    async def data(self, path: str, *, watch: bool = False) -> Node | None:
        """None where there is no such node; other refusals are raised."""
        found = await self.ask(Read(kind=ReadKind.DATA, path=path, watch=watch))
        if isinstance(found, NoNodeError):
            return None
        if isinstance(found, StoreError):
            raise found
        assert isinstance(found, Node)
        return found

    async def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        found = await self.ask(Read(kind=ReadKind.CHILDREN, path=path, watch=watch))
        if isinstance(found, NoNodeError):
            return ()
        if isinstance(found, StoreError):
            raise found
        assert isinstance(found, tuple)
        return found

    async def all_data(self, paths: list[str], *, watch: bool = False) -> dict[str, Node]:
        """Those of these nodes that are there, asked for at once."""
        asked = [(path, self.ask(Read(kind=ReadKind.DATA, path=path, watch=watch))) for path in paths]
        found: dict[str, Node] = {}
        failed: StoreError | None = None
        for path, reply in asked:
            result = await reply
            if isinstance(result, Node):
                found[path] = result
            elif isinstance(result, StoreError) and not isinstance(result, NoNodeError):
                failed = result
        if failed is not None:
            raise failed
        return found

    # Hearing.
    def hand_out(self) -> None:
        """Gives out what the store has to say; on the loop. Whoever fails at it takes nothing from those after it."""
        failures: list[Exception] = []
        for event in self._store.take_events():
            for tell in self._listening(event):
                try:
                    tell()
                except Exception as error:
                    failures.append(error)
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("what the store said", failures)

    def _listening(self, event: Event) -> list[Callable[[], object]]:
        if isinstance(event, Watched):
            return [partial(watcher, event.path) for watcher in self._watchers]
        if isinstance(event, SessionChanged):
            logger.info("the session with the store is %s", event.state.value)
            self.is_connected = event.state is SessionState.CONNECTED
            return [partial(listener, event.state) for listener in self._listeners]
        done = self._waiting.pop(event.token, None)
        return [] if done is None else [partial(done, event)]
