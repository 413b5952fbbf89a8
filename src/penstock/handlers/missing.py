"""Why a partition is not here: its log directory failed, other brokers have it, or there is none of this name."""

from __future__ import annotations

from penstock.base.errors import PenstockError, StorageError
from penstock.handlers.services import Services
from penstock.replication.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from penstock.replication.partition import Partition


def why_missing(services: Services, topic: str, number: int) -> PenstockError:
    if services.node_id in services.image.offline_replicas.get((topic, number), ()):
        return StorageError(f"partition {number} of topic {topic} lies in a log directory that is offline")
    if services.cluster is not None and services.image.partition(topic, number) is not None:
        return NotLeaderOrFollowerError(f"partition {number} of topic {topic} is on other brokers")
    return UnknownTopicOrPartitionError(f"there is no partition {number} of topic {topic} here")


def held_partition(services: Services, topic: str, number: int) -> Partition:
    """A partition of this broker; an error says why it is not here."""
    partition = services.partitions.find(topic, number)
    if partition is None:
        raise why_missing(services, topic, number)
    return partition
