"""The calls that only brokers make to one another, and their controller to them."""

from __future__ import annotations

from penstock.handlers.alter_partition import handle_alter_partition
from penstock.handlers.api import kio_api
from penstock.handlers.controlled_shutdown import handle_controlled_shutdown
from penstock.handlers.leader_and_isr import handle_leader_and_isr
from penstock.handlers.stop_replica import handle_stop_replica
from penstock.handlers.update_metadata import handle_update_metadata

BETWEEN_BROKERS = (
    kio_api(4, "LeaderAndIsr", 7, 7, 4, handle_leader_and_isr),
    kio_api(5, "StopReplica", 4, 4, 2, handle_stop_replica),
    kio_api(6, "UpdateMetadata", 8, 8, 6, handle_update_metadata),
    kio_api(7, "ControlledShutdown", 3, 3, 3, handle_controlled_shutdown),
    kio_api(56, "AlterPartition", 3, 3, 0, handle_alter_partition),
)
