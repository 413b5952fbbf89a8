"""Who leads, after a broker came back."""

from __future__ import annotations

from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.layout import PartitionState
from penstock.metadata.store import Operation, SetData, Transaction


def decide_start_alone(image: Image, broker_id: int) -> Transaction:
    """The only broker of a cluster started: it leads what it held, in a new epoch.

    A new epoch, because a log that was cut by an unclean end may give offsets out again: clients that read the lost ones
    learn of it by the epoch (KIP-320).
    """
    operations: list[Operation] = []
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            if broker_id not in partition.replicas:
                continue
            state = PartitionState(leader=broker_id, leader_epoch=partition.leader_epoch + 1, isr=(broker_id,))
            operations.append(
                SetData(
                    path=layout.state_path(topic.name, number),
                    data=layout.encode_state(state),
                    version=partition.state_version,
                )
            )
    return Transaction(operations=tuple(operations))
