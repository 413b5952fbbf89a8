"""LeaderAndIsr (key 4), version 7, flexible.

Behaviour: from the controller: this broker takes the roles it is told, each with a newer leader epoch only, and answers per
    partition (row C3). A controller that was replaced is refused with STALE_CONTROLLER_EPOCH.
Versions: only the last that Kafka had.
Differs from Kafka: a state of the epoch that is known already is taken for its ISR, and is no error.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.controller.peer_requests import PeerAnswer
from penstock.handlers.api import Context
from penstock.handlers.controller_requests import answer_later, carry_out
from penstock.handlers.error_map import code_of
from penstock.peers.messages import read_leader_and_isr


def handle_leader_and_isr(request: Any, context: Context) -> Any:
    wanted = read_leader_and_isr(request)
    response = context.response
    shape = response.topics

    def answer(outcome: PeerAnswer) -> Any:
        if outcome.error is not None:
            return response.make(error_code=code_of(outcome.error), topics=())
        codes = {key: code_of(error) for key, error in outcome.partition_errors.items()}
        topics: dict[Any, list[Any]] = {}
        for state in wanted.partitions:
            code = codes.get(state.topic_partition, ErrorCode.none)
            error = shape.partition_errors.make(partition_index=state.partition, error_code=code)
            topics.setdefault(state.topic_id, []).append(error)
        return response.make(
            error_code=ErrorCode.none,
            topics=tuple(
                shape.make(topic_id=topic_id, partition_errors=tuple(errors)) for topic_id, errors in topics.items()
            ),
        )

    return answer_later(carry_out(wanted, context), answer)
