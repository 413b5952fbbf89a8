"""DescribeTransactions (key 65), version 0, flexible.

Behaviour: how each transactional id stands: producer, epoch, state, start, timeout, partitions.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.error_map import code_of
from penstock.handlers.groups import may_topic
from penstock.handlers.transactions import check_transactional_id

_EPOCH = datetime.fromtimestamp(0, UTC)


def handle_describe_transactions(request: Any, context: Context) -> Any:
    states = tuple(_describe(transactional_id, context) for transactional_id in request.transactional_ids)
    return context.response.make(throttle_time=timedelta(), transaction_states=states)


def _describe(transactional_id: str, context: Context) -> Any:
    shape = context.response.transaction_states
    try:
        check_transactional_id(context, Action.DESCRIBE, transactional_id)
        if transactional_id == "":
            raise InvalidRequestError("a transactional id is not empty")
        found = context.services.transactions.find(transactional_id).shard.describe(transactional_id)
    except PenstockError as error:
        return shape.make(
            error_code=code_of(error),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=timedelta(),
            transaction_start_time=_EPOCH,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(found.partitions):
        if may_topic(context, Action.DESCRIBE, topic):
            topics.setdefault(topic, []).append(number)
    return shape.make(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout=timedelta(milliseconds=found.timeout_ms),
        transaction_start_time=_EPOCH + timedelta(milliseconds=found.start_ms),
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=tuple(shape.topics.make(topic=name, partitions=tuple(numbers)) for name, numbers in topics.items()),
    )
