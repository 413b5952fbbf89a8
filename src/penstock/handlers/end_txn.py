"""EndTxn (key 26), versions 0-5, flexible from 3.

Behaviour: prepares the commit or abort of the open transaction and answers when that cannot be lost any more; the markers
    follow. An end that comes twice is answered as the first time.
Versions: 2 PRODUCER_FENCED; 3 flexible; 4 new error codes; 5 transactions V2: the answer carries the producer's next epoch
    (KIP-890), and an empty transaction may be aborted.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.coordinator.transactions.messages import EndTransaction, ProducerStamp
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.transactions import at_once_or_later, check_transactional_id, client_code

FENCED_FROM, BUMPS_FROM = 2, 5


def handle_end_txn(request: Any, context: Context) -> Any:
    try:
        check_transactional_id(context, Action.WRITE, request.transactional_id)
        if request.transactional_id == "":
            raise InvalidRequestError("a transactional id is not empty")
    except PenstockError as error:
        return _answer(context, error)
    asked = EndTransaction(
        request.transactional_id,
        ProducerStamp(request.producer_id, request.producer_epoch),
        request.committed,
        2 if context.version >= BUMPS_FROM else 0,
    )

    def start(done: Callable[[Any], None]) -> None:
        context.services.transactions.end(asked, lambda outcome: done(_answer(context, outcome)))

    return at_once_or_later(start)


def _answer(context: Context, outcome: ProducerStamp | PenstockError) -> Any:
    if isinstance(outcome, PenstockError):
        code = client_code(outcome, context, FENCED_FROM)
        return context.response.make(throttle_time=timedelta(), error_code=code, producer_id=-1, producer_epoch=-1)
    return context.response.make(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        producer_id=outcome.producer_id,
        producer_epoch=outcome.epoch,
    )
