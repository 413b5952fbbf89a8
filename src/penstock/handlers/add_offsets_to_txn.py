"""AddOffsetsToTxn (key 25), versions 0-4, flexible from 3.

Behaviour: the partition of `__consumer_offsets` that holds the group becomes part of the transaction; the topic is created
    first where it is missing, and the answer waits for it.
Versions: 2 PRODUCER_FENCED; 3 flexible; 4 new error codes. In transactions V2 nobody sends it.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import InvalidRequestError
from penstock.coordinator.transactions.messages import AddPartitions, ProducerStamp
from penstock.drivers.groups import TOPIC
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group
from penstock.handlers.transactions import at_once_or_later, check_transactional_id, client_code

FENCED_FROM = 2


def handle_add_offsets_to_txn(request: Any, context: Context) -> Any:
    try:
        check_transactional_id(context, Action.WRITE, request.transactional_id)
        check_group(context, Action.READ, request.group_id)
        if request.transactional_id == "":
            raise InvalidRequestError("a transactional id is not empty")
    except PenstockError as error:
        return _answer(context, error)
    return at_once_or_later(lambda done: context.services.groups.with_topic(partial(_add, request, context, done)))


def _add(request: Any, context: Context, done: Callable[[Any], None], missing: PenstockError | None) -> None:
    if missing is not None:
        done(_answer(context, missing))
        return
    partition = TopicPartition(TOPIC, context.services.groups.partition_of(request.group_id))
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    asked = AddPartitions(request.transactional_id, producer, (partition,), 0)
    context.services.transactions.add_partitions(asked, lambda error: done(_answer(context, error)))


def _answer(context: Context, error: PenstockError | None) -> Any:
    code = ErrorCode.none if error is None else client_code(error, context, FENCED_FROM)
    return context.response.make(throttle_time=timedelta(), error_code=code)
