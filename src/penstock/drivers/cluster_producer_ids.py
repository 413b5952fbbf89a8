"""Producer ids in a cluster: every broker takes blocks from the same node, each against the version that it read."""

from __future__ import annotations

from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.producer_ids import BLOCK, ProducerIds
from penstock.drivers.steps import run_steps
from penstock.metadata import layout
from penstock.metadata.store import (
    BadVersionError,
    Committed,
    Create,
    NodeExistsError,
    Refused,
    SetData,
    StoreError,
    Transaction,
)


class ClusterProducerIds(ProducerIds):
    def __init__(self, node_id: int, store: ClusterStore) -> None:
        super().__init__(node_id, store, None)
        self._cluster_store = store

    def _ask(self) -> None:
        run_steps(self._take_block(), lambda _none: None)

    async def _take_block(self) -> None:
        outcome: Committed | Refused | None = None
        start = end = 0
        while outcome is None:
            try:
                node = await self._cluster_store.data(layout.PRODUCER_IDS)
            except StoreError as error:
                outcome = Refused(token=0, index=0, error=error)
                break
            before = b"" if node is None else node.data  # Kafka makes the node with nothing in it
            newest = layout.decode_producer_ids(before)[1] if before else -1
            start = max(newest, self._block_end) + 1
            end = start + BLOCK - 1
            path, data = layout.PRODUCER_IDS, layout.encode_producer_ids(self._node_id, start, end)
            operation: Create | SetData = (
                Create(path=path, data=data)
                if node is None
                else SetData(path=path, data=layout.written_over(path, before, data), version=node.stat.version)
            )
            outcome = await self._cluster_store.commit(Transaction(operations=(operation,)))
            if isinstance(outcome, Refused) and isinstance(outcome.error, BadVersionError | NodeExistsError):
                outcome = None  # another broker took that block
        self._confirmed(outcome, start, end)
