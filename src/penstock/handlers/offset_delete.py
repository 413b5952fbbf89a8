"""OffsetDelete (key 47), version 0.

Behaviour: removes a group's offsets in topics that no member consumes; the answer waits for the records.
Versions: 0 only, plain.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, check_topic, code

Outcomes = dict[tuple[str, int], PenstockError | None]


def handle_offset_delete(request: Any, context: Context) -> Any:
    groups = context.services.groups
    outcomes: Outcomes = {}
    asked: list[tuple[str, int]] = []
    try:
        check_group(context, Action.DELETE, request.group_id)
        led = groups.find(request.group_id)
        for topic in request.topics:
            _add(topic, context, outcomes, asked)
        decision, decided = led.shard.delete_offsets(request.group_id, asked)
    except PenstockError as error:
        return context.response.make(error_code=code(error), throttle_time=timedelta(), topics=())
    outcomes.update(((one.topic, one.partition), one.error) for one in decided)
    pending: Pending[Any] = Pending()
    groups.run(led, decision, lambda error: pending.resolve(_answer(request, outcomes, error, context)))
    return pending


def _add(topic: Any, context: Context, outcomes: Outcomes, asked: list[tuple[str, int]]) -> None:
    numbers = [entry.partition_index for entry in topic.partitions]
    try:
        check_topic(context, Action.READ, topic.name)
    except PenstockError as error:
        outcomes.update(((topic.name, number), error) for number in numbers)
        return
    asked += ((topic.name, number) for number in numbers)


def _answer(request: Any, outcomes: Outcomes, failure: PenstockError | None, context: Context) -> Any:
    response = context.response
    if failure is not None:
        return response.make(error_code=code(failure), throttle_time=timedelta(), topics=())
    topics = tuple(
        response.topics.make(
            name=topic.name,
            partitions=tuple(
                response.topics.partitions.make(
                    partition_index=entry.partition_index,
                    error_code=code(outcomes.get((topic.name, entry.partition_index))),
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return response.make(error_code=ErrorCode.none, throttle_time=timedelta(), topics=topics)
