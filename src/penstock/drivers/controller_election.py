"""Who is the controller (row C1): the first broker that makes `/controller`, in the same transaction as it raises the epoch."""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock.drivers.cluster_store import ClusterStore
from penstock.metadata import layout
from penstock.metadata.store import Create, Refused, SetData, Transaction

logger = logging.getLogger(__name__)


class Office(NamedTuple):
    """Held by this broker: the epoch, and the version of its node that fences every write."""

    epoch: int
    version: int


class Holder(NamedTuple):
    """Another broker has it."""

    broker_id: int


async def stand_for_controller(store: ClusterStore, node_id: int, wall_ms: int) -> Office | Holder | None:
    """Stands where nobody is controller. Whatever comes of it, `/controller` is watched; None means: ask again."""
    found = await store.data(layout.CONTROLLER, watch=True)
    if found is not None and found.stat.ephemeral_owner != store.session_id:
        return Holder(layout.decode_controller(found.data))
    epoch = await store.data(layout.CONTROLLER_EPOCH)
    if found is not None:
        assert epoch is not None
        return Office(int(epoch.data), epoch.stat.version)  # it was elected, and the answer was lost
    if epoch is None:
        await store.commit_one(Create(path=layout.CONTROLLER_EPOCH, data=b"0"))
        return None
    elected = int(epoch.data) + 1
    outcome = await store.commit(
        Transaction(
            operations=(
                Create(path=layout.CONTROLLER, data=layout.encode_controller(node_id, wall_ms), ephemeral=True),
                SetData(path=layout.CONTROLLER_EPOCH, data=b"%d" % elected, version=epoch.stat.version),
            )
        )
    )
    if isinstance(outcome, Refused):
        logger.info("another broker may have been elected: %s", outcome.error)
        return None
    await store.data(layout.CONTROLLER, watch=True)
    return Office(elected, epoch.stat.version + 1)
