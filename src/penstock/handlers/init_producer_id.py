"""InitProducerId (key 22), versions 0-5, flexible from 2: for idempotent producers.

Behaviour: a new producer id with epoch 0, from the broker's block of ids; waits for the store when the block is used up.
Versions: 2 flexible; 3 the producer's present id and epoch (KIP-360); 4, 5 new error codes.
Differs from Kafka: transactional ids are refused with COORDINATOR_NOT_AVAILABLE until there is a coordinator.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context, Pending
from penstock.handlers.error_map import code_of
from penstock.metadata.store import StoreError


def handle_init_producer_id(request: Any, context: Context) -> Any:
    if request.transactional_id is not None:
        code = ErrorCode.invalid_request if request.transactional_id == "" else ErrorCode.coordinator_not_available
        return _answer(context, code, -1, -1)
    pending: Pending[Any] = Pending()

    def given(outcome: int | StoreError) -> None:
        if isinstance(outcome, int):
            pending.resolve(_answer(context, ErrorCode.none, outcome, 0))
        else:
            pending.resolve(_answer(context, code_of(outcome), -1, -1))

    context.services.producer_ids.take(given)
    return pending


def _answer(context: Context, error_code: ErrorCode, producer_id: int, producer_epoch: int) -> Any:
    return context.response.make(
        throttle_time=timedelta(), error_code=error_code, producer_id=producer_id, producer_epoch=producer_epoch
    )
