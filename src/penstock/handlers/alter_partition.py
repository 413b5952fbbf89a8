"""AlterPartition (key 56), version 3, flexible.

Behaviour: a leader asks the controller to change an ISR; answered per partition when the store has it (row R2).
Versions: 3 brokers' epochs with the ISR (KIP-903); the earlier ones lack them and are not served.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.peer_requests import IsrChanged
from penstock.handlers.api import Context, Pending
from penstock.handlers.brokers import cluster_for
from penstock.handlers.error_map import code_of
from penstock.peers.messages import read_isr_request, write_isr_answer


def handle_alter_partition(request: Any, context: Context) -> Any:
    response = context.response
    pending: Pending[Any] = Pending()

    def answer(outcome: Sequence[IsrChanged] | PenstockError) -> None:
        if isinstance(outcome, PenstockError):
            pending.resolve(write_isr_answer(response, code_of(outcome), ()))
            return
        codes = [ErrorCode.none if one.error is None else code_of(one.error) for one in outcome]
        pending.resolve(write_isr_answer(response, ErrorCode.none, zip(outcome, codes, strict=True)))

    try:
        cluster_for(context).controller.alter_partition(read_isr_request(request), answer)
    except PenstockError as error:
        answer(error)
    return pending
