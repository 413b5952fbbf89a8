"""DescribeProducers (key 61), version 0, flexible.

Behaviour: what a partition's leader remembers of its producers, and where their open transactions begin.
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
from penstock.handlers.missing import why_missing


def handle_describe_producers(request: Any, context: Context) -> Any:
    response = context.response
    topics = tuple(
        response.topics.make(
            name=topic.name,
            partitions=tuple(_partition(topic.name, number, context) for number in topic.partition_indexes),
        )
        for topic in request.topics
    )
    return response.make(throttle_time=timedelta(), topics=topics)


def _partition(topic: str, number: int, context: Context) -> Any:
    services, shape = context.services, context.response.topics.partitions
    try:
        if not services.authoriser.allows(context.peer.principal, Action.READ, Resource.TOPIC, topic):
            raise TopicAuthorisationError(f"{context.peer.principal} may not read topic {topic}")
        partition = services.partitions.find(topic, number)
        if partition is None:
            raise why_missing(services, topic, number)
        partition.check_leader(-1)
    except PenstockError as error:
        return shape.make(
            partition_index=number, error_code=code_of(error), error_message=str(error), active_producers=()
        )
    producers = tuple(
        shape.active_producers.make(
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.last_timestamp,
            coordinator_epoch=one.coordinator_epoch,
            current_txn_start_offset=one.transaction_first_offset,
        )
        for one in partition.log.producers.values()
    )
    return shape.make(partition_index=number, error_code=ErrorCode.none, error_message=None, active_producers=producers)
