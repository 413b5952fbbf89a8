"""Both stores under one hand: a request, and everything that was said until its answer."""

import time
from pathlib import Path
from typing import Protocol

from penstock.base.clock import SystemClock
from penstock.base.files import SystemFiles
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.store import Answered, Committed, Event, Read, ReadKind, Refused, Stat, Transaction
from penstock.metadata.zookeeper import ZooKeeperStore

ANSWER_SECONDS_MAX = 60
SESSION_TIMEOUT_MS = 20_000


class AskedStore(Protocol):
    def ask(self, request: Transaction | Read) -> list[Event]:
        """What was said until the answer, which is the last of it."""

    def close(self) -> None: ...


class AskedEmbedded:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.store = EmbeddedStore(SystemFiles(), str(directory), SystemClock())

    def ask(self, request: Transaction | Read) -> list[Event]:
        self.store.submit(request)
        self.store.synced(self.store.journal_position)
        return self.store.take_events()

    def close(self) -> None:
        self.store.close()


class AskedZooKeeper:
    def __init__(self, connect: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.store = ZooKeeperStore(
            connect, session_timeout_ms=session_timeout_ms, clock=SystemClock(), wake=lambda: None
        )
        self.store.connect(ANSWER_SECONDS_MAX * 1000)
        self.store.take_events()

    def ask(self, request: Transaction | Read) -> list[Event]:
        self.store.alive()
        token = self.store.submit(request)
        heard: list[Event] = []
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while time.monotonic() < deadline:
            heard += self.store.take_events()
            if heard and isinstance(heard[-1], Answered | Committed | Refused) and heard[-1].token == token:
                return heard
            time.sleep(0.0002)
        raise TimeoutError(f"{request} was not answered: {heard}")

    def close(self) -> None:
        self.store.close()


def owner(store: AskedStore, path: str) -> int | None:
    """The session that a node belongs to, 0 where it outlives them; None where there is no node."""
    event = store.ask(Read(kind=ReadKind.EXISTS, path=path))[-1]
    assert isinstance(event, Answered)
    return event.result.ephemeral_owner if isinstance(event.result, Stat) else None
