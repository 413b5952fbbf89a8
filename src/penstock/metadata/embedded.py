"""The store of one node: the tree in memory, a journal on disk.

A transaction is decided and journalled when it is submitted, and confirmed when the journal is synced: the events of
one sync come together, in order. What was confirmed survives a loss of power, what was submitted survives kill -9.
The one session ends with the process: on opening, ephemeral nodes of earlier ones are removed.
"""

from __future__ import annotations

from collections import deque

from penstock.base.clock import Clock
from penstock.base.files import Files
from penstock.metadata.journal import Entry, Journal, open_journal, write_journal
from penstock.metadata.store import (
    Answered,
    Committed,
    Delete,
    Event,
    Read,
    Refusal,
    Refused,
    StoreError,
    Transaction,
    Watched,
)
from penstock.metadata.tree import Kept, Tree

JOURNAL_NAME = ".penstock-metadata"
SESSION = 1
REWRITE_BYTES_MIN = 1 << 20
REWRITE_FACTOR = 4


class EmbeddedStore:
    """A Store. Its owner calls `sync` (in any thread) and then `synced` (in its own) to let events out."""

    def __init__(self, files: Files, directory: str, clock: Clock) -> None:
        self._clock = clock
        self._tree = Tree()
        self._token = 0
        self._events: deque[tuple[int, Event]] = deque()
        path = f"{directory}/{JOURNAL_NAME}"
        journal, entries, self.cut = open_journal(files, path)
        for entry in entries:
            self._tree.replay(entry.effects, entry.zxid, entry.wall_ms)
        self._journal = self._rewritten(files, path, journal)
        self.synced_position = self._journal.position
        self._end_earlier_sessions()

    def _rewritten(self, files: Files, path: str, journal: Journal) -> Journal:
        snapshot = tuple(self._tree.walk())
        size = sum(len(node.path) + len(node.data) + 80 for node in snapshot)
        if journal.position < max(REWRITE_BYTES_MIN, REWRITE_FACTOR * size):
            return journal
        journal.close()
        return write_journal(files, path, [Entry(self._tree.zxid, self._clock.wall_ms(), snapshot)])

    def _end_earlier_sessions(self) -> None:
        paths = self._tree.ephemerals(None)
        if paths:
            self.submit(Transaction(operations=tuple(Delete(path=path) for path in reversed(paths))))
            self.sync()
            self.synced(self.journal_position)
            self._events.clear()

    @property
    def journal_position(self) -> int:
        return self._journal.position

    @property
    def sync_due(self) -> bool:
        """Whether events wait for a sync."""
        return self.synced_position < self._journal.position

    def submit(self, request: Transaction | Read) -> int:
        self._token += 1
        token = self._token
        if isinstance(request, Read):
            self._read(request, token)
            return token
        now_ms = self._clock.wall_ms()
        outcome = self._tree.commit(request, SESSION, now_ms)
        position = self._journal.position
        if isinstance(outcome, Refusal):
            self._events.append((position, Refused(token=token, index=outcome.index, error=outcome.error)))
            return token
        results, effects = outcome
        if effects:
            position = self._journal.append(Entry(self._tree.zxid, now_ms, effects))
        for fired in self._tree.fire(effects):
            self._events.append((position, Watched(path=fired.path, change=fired.change)))
        self._events.append((position, Committed(token=token, transaction=request, results=results)))
        return token

    def _read(self, request: Read, token: int) -> None:
        position = self._journal.position
        try:
            result = self._tree.read(request, SESSION)
        except StoreError as error:
            self._events.append((position, Refused(token=token, index=0, error=error)))
        else:
            self._events.append((position, Answered(token=token, result=result)))

    def sync(self) -> None:
        """Returns when what was journalled before the call is on disk. Slow: never on an event loop."""
        self._journal.sync()

    def synced(self, position: int) -> None:
        """`sync` returned, and was called when the journal ended at `position`."""
        self.synced_position = max(self.synced_position, position)

    def take_events(self) -> list[Event]:
        ready: list[Event] = []
        while self._events and self._events[0][0] <= self.synced_position:
            ready.append(self._events.popleft()[1])
        return ready

    def nodes(self) -> list[Kept]:
        """Every node, parents first: what an image is first made of."""
        return list(self._tree.walk())

    def close(self) -> None:
        self._journal.sync()
        self._journal.close()
