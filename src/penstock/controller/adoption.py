"""Logs found on disk that the metadata does not know: a directory of Apache Kafka's, or one whose journal was lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from penstock.base.ids import TopicPartition
from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.layout import PartitionState, TopicNode
from penstock.metadata.store import Create, Operation, Transaction


def decide_adopt(
    image: Image,
    found: Mapping[TopicPartition, uuid.UUID | None],
    epochs: Mapping[TopicPartition, int],
    broker_id: int,
    new_id: Callable[[], uuid.UUID],
) -> Transaction:
    """Topics for logs that belong to none, with the ids and epochs their files tell."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(found):
        if partition.topic not in image.topics and partition.topic not in image.deleting:
            by_topic.setdefault(partition.topic, []).append(partition)
    operations: list[Operation] = []
    for topic, partitions in by_topic.items():
        known = next((found[partition] for partition in partitions if found[partition] is not None), None)
        node = TopicNode(
            topic_id=known if known is not None else new_id(),
            replicas={partition.partition: (broker_id,) for partition in partitions},
        )
        path = layout.topic_path(topic)
        operations += (Create(path=path, data=layout.encode_topic(node)), Create(path=f"{path}/partitions"))
        for partition in partitions:
            state = PartitionState(leader=broker_id, leader_epoch=max(epochs[partition], 0), isr=(broker_id,))
            operations += (
                Create(path=f"{path}/partitions/{partition.partition}"),
                Create(path=layout.state_path(topic, partition.partition), data=layout.encode_state(state)),
            )
    return Transaction(operations=tuple(operations))
