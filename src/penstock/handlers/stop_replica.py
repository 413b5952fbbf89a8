"""StopReplica (key 5), version 4, flexible.

Behaviour: from the controller: this broker holds the partitions no more; their files go where it says so.
Versions: only the last that Kafka had.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.ids import TopicPartition
from penstock.controller.peer_requests import PeerAnswer
from penstock.handlers.api import Context
from penstock.handlers.controller_requests import answer_later, carry_out
from penstock.handlers.error_map import code_of
from penstock.peers.messages import read_stop_replica


def handle_stop_replica(request: Any, context: Context) -> Any:
    wanted = read_stop_replica(request)
    response = context.response

    def answer(outcome: PeerAnswer) -> Any:
        if outcome.error is not None:
            return response.make(error_code=code_of(outcome.error), partition_errors=())
        codes = {key: code_of(error) for key, error in outcome.partition_errors.items()}
        return response.make(
            error_code=ErrorCode.none,
            partition_errors=tuple(
                response.partition_errors.make(
                    topic_name=one.topic,
                    partition_index=one.partition,
                    error_code=codes.get(TopicPartition(one.topic, one.partition), ErrorCode.none),
                )
                for one in wanted.partitions
            ),
        )

    return answer_later(carry_out(wanted, context), answer)
