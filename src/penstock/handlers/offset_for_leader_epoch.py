"""OffsetForLeaderEpoch (key 23), versions 2-4, flexible from 4.

Behaviour: where the records of a leader epoch end, so that a client or follower learns where its log parted (KIP-101, 320).
Versions: 3 replica id; 4 flexible.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.missing import held_partition


def handle_offset_for_leader_epoch(request: Any, context: Context) -> Any:
    response = context.response
    topics = []
    for topic in request.topics:
        partitions = tuple(_partition(response, topic.topic, entry, context) for entry in topic.partitions)
        topics.append(response.topics.make(topic=topic.topic, partitions=partitions))
    return response.make(throttle_time=timedelta(), topics=tuple(topics))


def _partition(response: Any, topic: str, entry: Any, context: Context) -> Any:
    services = context.services
    error_code, epoch, end_offset = ErrorCode.none, -1, -1
    try:
        if not services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.TOPIC, topic):
            raise TopicAuthorisationError(f"{context.peer.principal} may not describe topic {topic}")
        partition = held_partition(services, topic, entry.partition)
        partition.check_leader(entry.current_leader_epoch)
        log = partition.log
        epoch, end_offset = log.leader_epochs.end_offset_for(entry.leader_epoch, log.end_offset)
    except PenstockError as error:
        error_code = code_of(error)
    return response.topics.partitions.make(
        error_code=error_code, partition=entry.partition, leader_epoch=epoch, end_offset=end_offset
    )
