"""DeleteRecords (key 21), versions 0-2, flexible from 2.

Behaviour: raises a partition's log start to the offset asked for; -1 means the high watermark. Answers the new start.
Versions: 2 flexible.
Differs from Kafka: nothing known on one node.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import OffsetOutOfRangeError, PenstockError
from penstock.base.ids import InvalidTopicError
from penstock.controller.errors import PolicyViolationError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.missing import held_partition
from penstock.metadata.image import INTERNAL_TOPICS

HIGH_WATERMARK = -1


def handle_delete_records(request: Any, context: Context) -> Any:
    response = context.response
    topics = []
    for topic in request.topics:
        partitions = tuple(_partition(response, topic.name, entry, context) for entry in topic.partitions)
        topics.append(response.topics.make(name=topic.name, partitions=partitions))
    return response.make(throttle_time=timedelta(), topics=tuple(topics))


def _partition(response: Any, topic: str, entry: Any, context: Context) -> Any:
    low_watermark, error_code = -1, ErrorCode.none
    try:
        low_watermark = _delete(topic, entry.partition_index, entry.offset, context)
    except PenstockError as error:
        error_code = code_of(error)
    return response.topics.partitions.make(
        partition_index=entry.partition_index, low_watermark=low_watermark, error_code=error_code
    )


def _delete(topic: str, number: int, offset: int, context: Context) -> int:
    services = context.services
    if not services.authoriser.allows(context.peer.principal, Action.DELETE, Resource.TOPIC, topic):
        raise TopicAuthorisationError(f"{context.peer.principal} may not delete from topic {topic}")
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic} is written by the broker only")
    partition = held_partition(services, topic, number)
    partition.check_leader(-1)
    if not partition.log.config.delete:
        raise PolicyViolationError(f"records of {topic} go by compaction: its cleanup.policy has no delete")
    log = partition.log
    wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise OffsetOutOfRangeError(wanted, log.log_start_offset, log.high_watermark)
    return log.delete_records(wanted)
