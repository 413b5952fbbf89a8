"""UpdateMetadata (key 6), version 8, flexible.

Behaviour: from the controller: what this broker tells clients of partitions and brokers.
Versions: only the last that Kafka had.
Differs from Kafka: a leader takes the ISR of its own partitions from it too.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.controller.peer_requests import PeerAnswer
from penstock.handlers.api import Context
from penstock.handlers.controller_requests import answer_later, carry_out
from penstock.handlers.error_map import code_of
from penstock.peers.messages import read_update_metadata


def handle_update_metadata(request: Any, context: Context) -> Any:
    response = context.response

    def answer(outcome: PeerAnswer) -> Any:
        return response.make(error_code=ErrorCode.none if outcome.error is None else code_of(outcome.error))

    return answer_later(carry_out(read_update_metadata(request), context), answer)
