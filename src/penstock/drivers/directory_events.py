"""Tells the controller that a log directory of this broker failed, through the store (Kafka's way): it asks then what is left."""

from __future__ import annotations

from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.loop import Loop
from penstock.metadata import layout
from penstock.metadata.store import Committed, Create, Refused, Transaction

AGAIN_MS = 500
_PREFIX = f"{layout.LOG_DIRECTORY_EVENTS}/log_dir_event_"


class DirectoryEvents:
    def __init__(self, node_id: int, store: ClusterStore, loop: Loop) -> None:
        self._node_id = node_id
        self._store = store
        self._loop = loop
        self._is_stopped = False

    def tell(self) -> None:
        """Again until it is written: without it nobody else leads what the directory held."""
        if not self._is_stopped:
            data = layout.encode_log_directory_event(self._node_id)
            operation = Create(path=_PREFIX, data=data, sequential=True)
            self._store.submit(Transaction(operations=(operation,)), self._told)

    def _told(self, event: Committed | Refused) -> None:
        if isinstance(event, Refused):
            self._loop.call_later(AGAIN_MS, self.tell)

    def stop(self) -> None:
        self._is_stopped = True
