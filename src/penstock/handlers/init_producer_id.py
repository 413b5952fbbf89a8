"""InitProducerId (key 22), versions 0-5, flexible from 2.

Behaviour: an idempotent producer gets a new id with epoch 0, from the broker's block of ids. A transactional one gets what its
    coordinator decides: the id of its transactional id with the next epoch, which fences whoever had the last. Where a
    transaction is open it is aborted first, and the producer is to ask again (CONCURRENT_TRANSACTIONS).
Versions: 2 flexible; 3 the producer's present id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 new error codes.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.coordinator.transactions.messages import InitProducerId, ProducerStamp
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import milliseconds
from penstock.handlers.transactions import at_once_or_later, check_transactional_id, client_code
from penstock.metadata.store import StoreError

FENCED_FROM = 4
NOBODY = ProducerStamp(-1, -1)


def handle_init_producer_id(request: Any, context: Context) -> Any:
    try:
        expected = _expected(request)
        if request.transactional_id is None:
            return at_once_or_later(partial(_idempotent, context))
        check_transactional_id(context, Action.WRITE, request.transactional_id)
        if request.transactional_id == "":
            raise InvalidRequestError("a transactional id is not empty")
    except PenstockError as error:
        return _answer(context, error)
    asked = InitProducerId(request.transactional_id, milliseconds(request.transaction_timeout), expected)

    def start(done: Callable[[Any], None]) -> None:
        context.services.transactions.init_producer_id(asked, lambda outcome: done(_answer(context, outcome)))

    return at_once_or_later(start)


def _expected(request: Any) -> ProducerStamp | None:
    stamp = ProducerStamp(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if stamp == NOBODY:
        return None
    if stamp.producer_id == NOBODY.producer_id or stamp.epoch == NOBODY.epoch:
        raise InvalidRequestError("a producer names both its id and its epoch, or neither")
    return stamp


def _idempotent(context: Context, done: Callable[[Any], None]) -> None:
    def given(outcome: int | StoreError) -> None:
        done(_answer(context, ProducerStamp(outcome, 0) if isinstance(outcome, int) else outcome))

    context.services.producer_ids.take(given)


def _answer(context: Context, outcome: ProducerStamp | PenstockError) -> Any:
    error_code, stamp = ErrorCode.none, NOBODY
    if isinstance(outcome, PenstockError):
        error_code = client_code(outcome, context, FENCED_FROM)
    else:
        stamp = outcome
    return context.response.make(
        throttle_time=timedelta(), error_code=error_code, producer_id=stamp.producer_id, producer_epoch=stamp.epoch
    )
