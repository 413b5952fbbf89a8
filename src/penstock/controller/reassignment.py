"""Replicas of a partition changed by hand (KIP-455).

On one node every reassignment that can be granted ends at once: its replicas are this broker, and it is in sync.
"""

from __future__ import annotations

from penstock.base.ids import TopicPartition
from penstock.controller.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
)
from penstock.metadata import layout
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.layout import TopicNode
from penstock.metadata.store import SetData, Transaction


def decide_reassignment(
    image: Image, key: TopicPartition, replicas: tuple[int, ...] | None, *, may_change_factor: bool
) -> Transaction:
    """What to write so that `replicas` hold the partition, in this order; None cancels, and there is nothing to cancel."""
    topic = image.topics[key.topic]
    present: PartitionImage = topic.partitions[key.partition]
    if replicas is None:
        raise NoReassignmentInProgressError(f"{key} is not being reassigned")
    _check(image, key, replicas)
    if not may_change_factor and len(replicas) != len(present.replicas):
        raise InvalidReplicationFactorError(f"{key} has {len(present.replicas)} replicas, and is to keep that number")
    if set(replicas) != set(present.replicas):
        raise InvalidReplicaAssignmentError(f"{key} cannot be moved to brokers {list(replicas)}")
    if replicas == present.replicas:
        return Transaction(operations=())
    assigned = {number: state.replicas for number, state in topic.partitions.items()} | {key.partition: replicas}
    node = TopicNode(topic_id=topic.topic_id, replicas=assigned)
    return Transaction(operations=(SetData(path=layout.topic_path(key.topic), data=layout.encode_topic(node)),))


def _check(image: Image, key: TopicPartition, replicas: tuple[int, ...]) -> None:
    if not replicas:
        raise InvalidReplicaAssignmentError(f"{key} needs at least one replica")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignmentError(f"{key} names a broker twice: {list(replicas)}")
    unknown = [broker for broker in replicas if broker not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignmentError(f"{key} names brokers that are not there: {unknown}")
