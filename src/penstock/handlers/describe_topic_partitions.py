"""DescribeTopicPartitions (key 75), version 0, flexible from 0.

Behaviour: topics in the order of their names, a bounded number of partitions at a time; the answer's cursor says where the
    next request goes on (KIP-966). No topic named means all of them.
Versions: 0 only.
Differs from Kafka: eligible leader replicas are not told.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.metadata import why_no_topic
from penstock.handlers.operations import NOT_ASKED, allowed_operations
from penstock.handlers.partitions import partition_fields
from penstock.metadata.image import INTERNAL_TOPICS

_NO_ID = uuid.UUID(int=0)


def handle_describe_topic_partitions(request: Any, context: Context) -> Any:
    image = context.services.image
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    named = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (named and first not in named)):
        return _refused(request, context)
    names = [name for name in sorted(named or image.topics) if name >= first]
    visible = [name for name in names if _may_describe(name, context)]
    left = max(min(request.response_partition_limit, context.services.settings.describe_partitions_max), 1)
    topics: list[Any] = []
    following = None
    for name in visible:
        if left == 0:
            following = (name, 0)
            break
        start = cursor.partition_index if cursor is not None and name == first else 0
        topic = image.topics.get(name)
        if topic is None:
            if named:
                topics.append(_topic(name, why_no_topic(name), (), context))
            continue
        numbers = [number for number in topic.partitions if number >= start]
        topics.append(_topic(name, ErrorCode.none, numbers[:left], context))
        if len(numbers) > left:
            following = (name, numbers[left])
            break
        left -= len(numbers)
    if named:
        hidden = (name for name in names if name not in visible)
        topics += (_topic(name, ErrorCode.topic_authorization_failed, (), context) for name in hidden)
    return _answer(topics, following, context)


def _may_describe(name: str, context: Context) -> bool:
    return context.services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.TOPIC, name)


def _topic(name: str, error_code: ErrorCode, numbers: Any, context: Context) -> Any:
    image, shape = context.services.image, context.response.topics
    topic = image.topics[name] if error_code == ErrorCode.none else None
    operations = NOT_ASKED
    if error_code != ErrorCode.topic_authorization_failed:
        operations = allowed_operations(context, Resource.TOPIC, name)
    return shape.make(
        error_code=error_code,
        name=name,
        topic_id=_NO_ID if topic is None else topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=tuple(
            shape.partitions.make(
                **partition_fields(image, topic, number), eligible_leader_replicas=(), last_known_elr=()
            )
            for number in numbers
            if topic is not None
        ),
        topic_authorized_operations=operations,
    )


def _refused(request: Any, context: Context) -> Any:
    shape = context.response.topics
    topics = [
        shape.make(
            error_code=ErrorCode.invalid_request,
            name=topic.name,
            topic_id=_NO_ID,
            is_internal=False,
            partitions=(),
            topic_authorized_operations=NOT_ASKED,
        )
        for topic in request.topics
    ]
    return _answer(topics, None, context)


def _answer(topics: list[Any], following: tuple[str, int] | None, context: Context) -> Any:
    response = context.response
    cursor = None
    if following is not None:
        cursor = response.next_cursor.make(topic_name=following[0], partition_index=following[1])
    return response.make(throttle_time=timedelta(), topics=tuple(topics), next_cursor=cursor)
