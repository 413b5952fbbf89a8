"""ControlledShutdown (key 7), version 3, flexible.

Behaviour: a broker that wants to stop asks the controller to move its leaders; the answer lists what it still leads (row C5).
Versions: only the last that Kafka had.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.peer_requests import ControlledShutdown
from penstock.handlers.api import Context, Pending
from penstock.handlers.brokers import cluster_for
from penstock.handlers.error_map import code_of


def handle_controlled_shutdown(request: Any, context: Context) -> Any:
    response = context.response
    pending: Pending[Any] = Pending()

    def answer(outcome: Sequence[TopicPartition] | PenstockError) -> None:
        if isinstance(outcome, PenstockError):
            pending.resolve(response.make(error_code=code_of(outcome), remaining_partitions=()))
            return
        remaining = tuple(
            response.remaining_partitions.make(topic_name=topic, partition_index=partition)
            for topic, partition in outcome
        )
        pending.resolve(response.make(error_code=ErrorCode.none, remaining_partitions=remaining))

    try:
        wanted = ControlledShutdown(broker_id=request.broker_id, broker_epoch=request.broker_epoch)
        cluster_for(context).controller.shut_down(wanted, answer)
    except PenstockError as error:
        answer(error)
    return pending
