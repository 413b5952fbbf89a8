"""CreatePartitions (key 37), versions 0-3, flexible from 2.

Behaviour: each topic on its own; answers when the store confirmed them all. `validate_only` decides and writes nothing.
Versions: 2 flexible; 3 a quota error nobody here sends.
Differs from Kafka: nothing known on one node.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.metadata.store import StoreError, Transaction
from penstock.replication.errors import UnknownTopicOrPartitionError


def handle_create_partitions(request: Any, context: Context) -> Any:
    repeated = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    outcomes: dict[str, PenstockError | Transaction] = {}
    for topic in request.topics:
        try:
            if topic.name in repeated:
                raise InvalidRequestError(f"topic {topic.name} stands twice in the request")
            outcomes[topic.name] = _decide(topic, context)
        except PenstockError as error:
            outcomes[topic.name] = error
    left = {name for name, outcome in outcomes.items() if isinstance(outcome, Transaction)}
    if request.validate_only or not left:
        return _answer(outcomes, context)
    pending: Pending[Any] = Pending()

    def confirmed(name: str, error: StoreError | None) -> None:
        if error is not None:
            outcomes[name] = error
        left.discard(name)
        if not left:
            pending.resolve(_answer(outcomes, context))

    for name in sorted(left):
        transaction = outcomes[name]
        assert isinstance(transaction, Transaction)
        context.services.topics.submit(transaction, lambda error, name=name: confirmed(name, error))  # type: ignore[misc]
    return pending


def _decide(topic: Any, context: Context) -> Transaction:
    services = context.services
    if not services.authoriser.allows(context.peer.principal, Action.ALTER, Resource.TOPIC, topic.name):
        raise TopicAuthorisationError(f"{context.peer.principal} may not alter topic {topic.name}")
    known = services.image.topics.get(topic.name)
    if known is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic.name}")
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(entry.broker_ids) for entry in topic.assignments]
    return services.topics.decide_grow(known, topic.count, assignments)


def _answer(outcomes: dict[str, PenstockError | Transaction], context: Context) -> Any:
    response = context.response
    results = []
    for name, outcome in outcomes.items():
        failed = outcome if isinstance(outcome, PenstockError) else None
        results.append(
            response.results.make(
                name=name,
                error_code=ErrorCode.none if failed is None else code_of(failed),
                error_message=None if failed is None else str(failed),
            )
        )
    return response.make(throttle_time=timedelta(), results=tuple(results))
