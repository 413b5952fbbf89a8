"""Why a partition is not here: its log directory failed, or there is none of this name."""

from __future__ import annotations

from penstock.base.errors import PenstockError, StorageError
from penstock.handlers.services import Services
from penstock.replication.errors import UnknownTopicOrPartitionError


def why_missing(services: Services, topic: str, number: int) -> PenstockError:
    if services.node_id in services.image.offline_replicas.get((topic, number), ()):
        return StorageError(f"partition {number} of topic {topic} lies in a log directory that is offline")
    return UnknownTopicOrPartitionError(f"there is no partition {number} of topic {topic} here")
