"""Drives the embedded store: syncs its journal on a thread, and hands events out in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.drivers.loop import Loop
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image
from penstock.metadata.journal import Journal
from penstock.metadata.store import Committed, Event, Refused, Transaction

logger = logging.getLogger(__name__)

Done = Callable[[Committed | Refused], object]


class Submitter(Protocol):
    """Takes transactions; the driver of one node's store, or of a cluster's."""

    def submit(self, transaction: Transaction, done: Done) -> None: ...


class StoreDriver:
    """The image changes when a transaction is confirmed, then `applied` hears of its topics, then its submitter.

    `prepare` may ask for a job on a thread before any of that: what is slow about the events that come next.
    """

    def __init__(
        self,
        store: EmbeddedStore,
        image: Image,
        loop: Loop,
        *,
        prepare: Callable[[list[Event]], Callable[[], object] | None],
        applied: Callable[[set[str]], object],
        failed: Callable[[str], object],
    ) -> None:
        self._store = store
        self._image = image
        self._loop = loop
        self._prepare = prepare
        self._applied = applied
        self._failed = failed
        self._waiting: dict[int, Done] = {}
        self._syncing = False

    def submit(self, transaction: Transaction, done: Done) -> None:
        try:
            token = self._store.submit(transaction)
        except OSError as error:
            self._failed(f"the metadata journal cannot be written: {error}")
            return
        self._waiting[token] = done
        if not self._syncing:
            self._loop.call_soon(self._sync)
            self._syncing = True

    def _sync(self) -> None:
        if not self._store.sync_due:
            rewrite = self._store.begin_rewrite()
            if rewrite is None:
                self._syncing = False
            else:
                self._loop.run_in_thread(rewrite, self._drafted)
            self._hand_out(self._store.take_events())
            return
        position = self._store.journal_position
        self._loop.run_in_thread(self._store.sync, lambda outcome: self._synced(position, outcome))

    def _drafted(self, outcome: Journal | BaseException) -> None:
        """A new journal stands beside the old one. What is submitted meanwhile is confirmed after it took its place."""
        if isinstance(outcome, BaseException):
            logger.warning("the metadata journal could not be written anew, and goes on as it is: %s", outcome)
            self._store.drop_rewrite()
            self._sync()
            return
        try:
            place = self._store.swap_journal(outcome)
        except OSError as error:
            self._failed(f"the metadata journal cannot be written: {error}")
            return
        position = self._store.journal_position
        self._loop.run_in_thread(place, lambda placed: self._synced(position, placed))

    def _synced(self, position: int, outcome: BaseException | None) -> None:
        if outcome is not None:
            self._failed(f"the metadata journal cannot be synced: {outcome}")
            return
        self._store.synced(position)
        events = self._store.take_events()
        job = self._prepare(events)
        if job is None:
            self._prepared(events, None)
        else:
            self._loop.run_in_thread(job, partial(self._prepared, events))

    def _prepared(self, events: list[Event], outcome: object) -> None:
        if isinstance(outcome, BaseException):
            # Whoever carries the events out meets it again, and knows what it means.
            logger.warning("what was confirmed could not be prepared: %s", outcome)
        self._hand_out(events)
        self._sync()

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Committed):
                self._applied(self._image.apply(event))
            if isinstance(event, Committed | Refused):
                done = self._waiting.pop(event.token, None)
                if done is not None:
                    done(event)
