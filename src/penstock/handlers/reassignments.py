"""AlterPartitionReassignments (key 45), versions 0-1, and ListPartitionReassignments (key 46), version 0, flexible from 0.

Behaviour: each partition on its own. What can be granted on one node (this broker, in sync) ends at once, so that none
    is ever listed and a cancellation finds NO_REASSIGNMENT_IN_PROGRESS.
Versions: 45: 1 may forbid another number of replicas (KIP-860).
Differs from Kafka: nothing known on one node.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.reassignment import decide_reassignment
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.confirmations import Submit, confirm_all
from penstock.handlers.error_map import code_of
from penstock.metadata.store import Transaction
from penstock.replication.errors import UnknownTopicOrPartitionError


def handle_alter_partition_reassignments(request: Any, context: Context) -> Any:
    services = context.services
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    response = context.response
    if not services.authoriser.allows(context.peer.principal, Action.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return response.make(
            throttle_time=timedelta(),
            allow_replication_factor_change=may_change_factor,
            error_code=ErrorCode.cluster_authorization_failed,
            error_message=f"{context.peer.principal} may not move partitions",
            responses=(),
        )
    outcomes: dict[TopicPartition, PenstockError | None] = {}
    changes: dict[TopicPartition, Submit] = {}
    for topic in request.topics:
        for entry in topic.partitions:
            key = TopicPartition(topic.name, entry.partition_index)
            try:
                decided = _decide(key, entry.replicas, context, may_change_factor=may_change_factor)
                outcomes[key] = None
                if decided.operations:
                    changes[key] = partial(services.topics.submit, decided)
            except PenstockError as error:
                outcomes[key] = error

    def refused(key: TopicPartition, error: PenstockError) -> None:
        outcomes[key] = error

    def answer() -> Any:
        return response.make(
            throttle_time=timedelta(),
            allow_replication_factor_change=may_change_factor,
            error_code=ErrorCode.none,
            error_message=None,
            responses=_responses(request, outcomes, context),
        )

    return confirm_all(changes, refused, answer)


def _decide(key: TopicPartition, replicas: Any, context: Context, *, may_change_factor: bool) -> Transaction:
    image = context.services.image
    if image.partition(key.topic, key.partition) is None:
        raise UnknownTopicOrPartitionError(f"there is no partition {key.partition} of topic {key.topic}")
    wanted = None if replicas is None else tuple(replicas)
    return decide_reassignment(image, key, wanted, may_change_factor=may_change_factor)


def _responses(request: Any, outcomes: dict[TopicPartition, PenstockError | None], context: Context) -> tuple[Any, ...]:
    shape = context.response.responses
    topics = []
    for topic in request.topics:
        partitions = []
        for entry in topic.partitions:
            outcome = outcomes[TopicPartition(topic.name, entry.partition_index)]
            partitions.append(
                shape.partitions.make(
                    partition_index=entry.partition_index,
                    error_code=ErrorCode.none if outcome is None else code_of(outcome),
                    error_message=None if outcome is None else str(outcome),
                )
            )
        topics.append(shape.make(name=topic.name, partitions=tuple(partitions)))
    return tuple(topics)


def handle_list_partition_reassignments(_request: Any, context: Context) -> Any:
    error_code, message = ErrorCode.none, None
    if not context.services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        error_code = ErrorCode.cluster_authorization_failed
        message = f"{context.peer.principal} may not describe the cluster"
    return context.response.make(throttle_time=timedelta(), error_code=error_code, error_message=message, topics=())
