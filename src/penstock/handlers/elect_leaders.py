"""ElectLeaders (key 43), versions 0-2, flexible from 2.

Behaviour: makes the preferred replica lead, or, where nobody leads, one that may have lost records; each partition on its
    own. Partitions that need no election are told only where they were named. Null means every partition.
Versions: 0 preferred elections only; 1 unclean ones (KIP-460), an error of the whole answer; 2 flexible.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.elections import Election, decide_election
from penstock.controller.errors import ElectionNotNeededError, InvalidRequestError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.confirmations import Submit, confirm_all
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import ClusterAuthorisationError
from penstock.handlers.services import ControllerPort
from penstock.replication.errors import UnknownTopicOrPartitionError


def handle_elect_leaders(request: Any, context: Context) -> Any:
    services = context.services
    named = request.topic_partitions
    keys = _every(context) if named is None else _named(named)
    outcomes: dict[TopicPartition, PenstockError | None] = {}
    changes: dict[TopicPartition, Submit] = {}
    if not services.authoriser.allows(context.peer.principal, Action.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        refusal = ClusterAuthorisationError(f"{context.peer.principal} may not elect leaders")
        return _answer(dict.fromkeys(_named(named or ()), refusal), code_of(refusal), context)
    kind = getattr(request, "election_type", Election.PREFERRED)
    if kind not in tuple(Election):
        unknown = InvalidRequestError(f"{kind} is no kind of election")
        return _answer(dict.fromkeys(_named(named or ()), unknown), ErrorCode.invalid_request, context)
    for key in keys:
        try:
            partition = services.image.partition(key.topic, key.partition)
            if partition is None:
                raise UnknownTopicOrPartitionError(f"there is no partition {key.partition} of topic {key.topic}")
            decided = decide_election(services.image, key, partition, Election(kind))
            outcomes[key] = None
            changes[key] = partial(services.topics.submit, decided)
        except ElectionNotNeededError as error:
            if named is not None:
                outcomes[key] = error
        except PenstockError as error:
            outcomes[key] = error

    if services.cluster is not None:
        return _elect_in_cluster(services.cluster.controller, Election(kind), list(changes), outcomes, context)

    def refused(key: TopicPartition, error: PenstockError) -> None:
        outcomes[key] = error

    return confirm_all(changes, refused, lambda: _answer(outcomes, ErrorCode.none, context))


def _elect_in_cluster(
    controller: ControllerPort,
    kind: Election,
    keys: list[TopicPartition],
    outcomes: dict[TopicPartition, PenstockError | None],
    context: Context,
) -> Any:
    """The controller decides anew, from what it knows; who is not the controller says so."""
    pending: Pending[Any] = Pending()

    def done(error: PenstockError | None) -> None:
        if error is not None:
            outcomes.update(dict.fromkeys(keys, error))
        pending.resolve(_answer(outcomes, ErrorCode.none if error is None else code_of(error), context))

    elect = controller.elect_preferred if kind is Election.PREFERRED else controller.elect_unclean
    elect(keys, done)
    return pending


def _every(context: Context) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in context.services.image.topics.values()
        for number in topic.partitions
    ]


def _named(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions]


def _answer(outcomes: dict[TopicPartition, PenstockError | None], error_code: ErrorCode, context: Context) -> Any:
    response = context.response
    shape = response.replica_election_results
    by_topic: dict[str, list[Any]] = {}
    for key, outcome in outcomes.items():
        by_topic.setdefault(key.topic, []).append(
            shape.partition_result.make(
                partition_id=key.partition,
                error_code=ErrorCode.none if outcome is None else code_of(outcome),
                error_message=None if outcome is None else str(outcome),
            )
        )
    results = tuple(shape.make(topic=topic, partition_result=tuple(told)) for topic, told in by_topic.items())
    return response.make(throttle_time=timedelta(), error_code=error_code, replica_election_results=results)
