"""The store of one node: the tree in memory, a journal on disk.

A transaction is decided and journalled when it is submitted, and confirmed when the journal is synced: the events of
one sync come together, in order. What was confirmed survives a loss of power, what was submitted survives kill -9.
The one session ends with the process: on opening, ephemeral nodes of earlier ones are removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.base.clock import Clock
from penstock.base.files import Files
from penstock.metadata.journal import Entry, Journal, draft_journal, open_journal, place_journal, write_journal
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
        self._files = files
        self._path = path = f"{directory}/{JOURNAL_NAME}"
        self._earlier_bytes = 0
        """What the journals before this one count for in positions, which never fall."""
        self._since: list[Entry] | None = None
        """What was appended since a rewrite began; None where none is under way."""
        self._is_unplaced = False
        journal, entries, self.cut = open_journal(files, path)
        for entry in entries:
            self._tree.replay(entry.effects, entry.zxid, entry.wall_ms)
        self._journal = self._rewritten(files, path, journal)
        self.synced_position = self._journal.position
        self._end_earlier_sessions()

    def _rewritten(self, files: Files, path: str, journal: Journal) -> Journal:
        whole = self._whole_tree(journal.position)
        if whole is None:
            return journal
        journal.close()
        return write_journal(files, path, [whole])

    def _whole_tree(self, journal_bytes: int) -> Entry | None:
        """The tree as one entry, where a journal of this size has outgrown it."""
        snapshot = tuple(self._tree.walk())
        size = sum(len(node.path) + len(node.data) + 80 for node in snapshot)
        self._rewrite_at_bytes = max(REWRITE_BYTES_MIN, REWRITE_FACTOR * size)
        if journal_bytes < self._rewrite_at_bytes:
            return None
        return Entry(self._tree.zxid, self._clock.wall_ms(), snapshot)

    # A rewrite while the store is in use: begin (loop), draft (thread), swap (loop), place (thread), synced (loop).
    def begin_rewrite(self) -> Callable[[], Journal] | None:
        """Where the journal has outgrown the tree: a job that drafts a new one on any thread, for `swap_journal`."""
        if self._since is not None or self._journal.position < self._rewrite_at_bytes:
            return None
        whole = self._whole_tree(self._journal.position)
        if whole is None:
            return None
        self._since = []
        return partial(draft_journal, self._files, self._path, [whole])

    def drop_rewrite(self) -> None:
        """The draft could not be written: the journal goes on as it is, and is tried again at twice its size."""
        self._since = None
        self._rewrite_at_bytes = 2 * self._journal.position

    def swap_journal(self, draft: Journal) -> Callable[[], None]:
        """Appends go to the draft from now on. Nothing of it is confirmed before the returned job has put it in place,
        and `synced` was called with the position at which this returned."""
        assert self._since is not None
        end = self.journal_position
        for entry in self._since:
            draft.append(entry)
        self._since = None
        old, self._journal = self._journal, draft
        self._earlier_bytes = end - draft.position
        self._is_unplaced = True

        def place() -> None:
            self._place()
            old.close()

        return place

    def _place(self) -> None:
        self._journal.sync()
        place_journal(self._files, self._path)
        self._is_unplaced = False

    def _end_earlier_sessions(self) -> None:
        paths = self._tree.ephemerals(None)
        if paths:
            self.submit(Transaction(operations=tuple(Delete(path=path) for path in reversed(paths))))
            self.sync()
            self.synced(self.journal_position)
            self._events.clear()

    @property
    def journal_position(self) -> int:
        return self._earlier_bytes + self._journal.position

    @property
    def sync_due(self) -> bool:
        """Whether events wait for a sync."""
        return self.synced_position < self.journal_position

    def submit(self, request: Transaction | Read) -> int:
        self._token += 1
        token = self._token
        if isinstance(request, Read):
            self._read(request, token)
            return token
        now_ms = self._clock.wall_ms()
        outcome = self._tree.commit(request, SESSION, now_ms)
        position = self.journal_position
        if isinstance(outcome, Refusal):
            self._events.append((position, Refused(token=token, index=outcome.index, error=outcome.error)))
            return token
        results, effects = outcome
        if effects:
            entry = Entry(self._tree.zxid, now_ms, effects)
            self._journal.append(entry)
            position = self.journal_position
            if self._since is not None:
                self._since.append(entry)
        for fired in self._tree.fire(effects):
            self._events.append((position, Watched(path=fired.path, change=fired.change)))
        self._events.append((position, Committed(token=token, transaction=request, results=results)))
        return token

    def _read(self, request: Read, token: int) -> None:
        position = self.journal_position
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
        if self._is_unplaced:
            self._place()
        self._journal.close()
