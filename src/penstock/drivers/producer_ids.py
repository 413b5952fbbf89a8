"""Producer ids, drawn from blocks of 1,000 that the store hands out: no id is given twice, whoever crashes."""

from __future__ import annotations

from collections.abc import Callable

from penstock.drivers.store import Submitter
from penstock.metadata import layout
from penstock.metadata.store import Committed, Create, Refused, SetData, StoreError, Transaction

BLOCK = 1_000
BELIEVED_MAX = 2**62
"""No broker gives ids so high: what stands in a log with a higher one a client made up, and from it on hardly any would be left."""

Given = Callable[[int | StoreError], object]


class ProducerIds:
    def __init__(self, node_id: int, store: Submitter, newest_block: bytes | None) -> None:
        self._node_id = node_id
        self._store = store
        self._block_end = -1 if newest_block is None else layout.decode_producer_ids(newest_block)[1]
        self._exists = newest_block is not None
        self._next = self._last = -1
        self._waiting: list[Given] = []

    def take(self, given: Given) -> None:
        """Calls back with an id, at once while the block lasts."""
        if self._next != -1 and self._next <= self._last:
            self._next += 1
            given(self._next - 1)
            return
        self._waiting.append(given)
        if len(self._waiting) == 1:
            self._ask()

    def pass_over(self, producer_id: int) -> None:
        """An id that is in use, in a directory that another broker wrote perhaps: it and those below are never given."""
        if self._block_end < producer_id <= BELIEVED_MAX:
            self._block_end = producer_id
            self._next = self._last = -1

    def _ask(self) -> None:
        start, end = self._block_end + 1, self._block_end + BLOCK
        data = layout.encode_producer_ids(self._node_id, start, end)
        operation: Create | SetData = (
            SetData(path=layout.PRODUCER_IDS, data=data)
            if self._exists
            else Create(path=layout.PRODUCER_IDS, data=data)
        )
        self._store.submit(Transaction(operations=(operation,)), lambda event: self._confirmed(event, start, end))

    def _confirmed(self, event: Committed | Refused, start: int, end: int) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(event, Refused):
            for given in waiting:
                given(event.error)
            return
        self._exists = True
        if self._block_end >= start:  # passed over while it was on its way
            start = end + 1
        self._block_end, self._next, self._last = max(end, self._block_end), start, end
        for given in waiting:
            self.take(given)
