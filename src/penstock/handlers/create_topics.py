"""CreateTopics (key 19), versions 2-7, flexible from 5.

Behaviour: decides each topic on its own, writes the good ones to the store, and answers when all are confirmed. A name
    that stands twice in a request is refused. `validate_only` decides and writes nothing.
Versions: 4 defaults for counts (KIP-464); 5 flexible, the configuration in the answer (KIP-525); 7 topic ids.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import ConfigError, PenstockError
from penstock.controller.errors import InvalidRequestError, TopicExistsError
from penstock.controller.topics import NewTopic, TopicDecision
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.configs import topic_entries
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.metadata.store import NodeExistsError, StoreError
from penstock.protocol.schemas import Shape


def handle_create_topics(request: Any, context: Context) -> Any:
    repeated = {name for name, count in Counter(topic.name for topic in request.topics).items() if count > 1}
    outcomes: dict[str, PenstockError | TopicDecision] = {}
    configs: dict[str, dict[str, str]] = {}
    for topic in request.topics:
        try:
            if topic.name in repeated:
                raise InvalidRequestError(f"topic {topic.name} stands twice in the request")
            wanted = _wanted(topic)
            configs[topic.name] = dict(wanted.configs)
            outcomes[topic.name] = _decide(wanted, context)
        except PenstockError as error:
            outcomes[topic.name] = error
    decided = [outcome for outcome in outcomes.values() if isinstance(outcome, TopicDecision)]
    if request.validate_only or not decided:
        return _answer(outcomes, configs, context)
    pending: Pending[Any] = Pending()
    left = {decision.name for decision in decided}

    def confirmed(name: str, error: StoreError | None) -> None:
        if error is not None:
            outcomes[name] = error
        left.discard(name)
        if not left:
            pending.resolve(_answer(outcomes, configs, context))

    for decision in decided:
        context.services.topics.create(decision, lambda error, name=decision.name: confirmed(name, error))  # type: ignore[misc]
    return pending


def _wanted(topic: Any) -> NewTopic:
    configs: dict[str, str] = {}
    for entry in topic.configs:
        if entry.value is None:
            raise ConfigError(f"{entry.name} has no value")
        configs[entry.name] = entry.value
    assignments = {entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise InvalidRequestError(f"topic {topic.name} names a partition twice")
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=configs,
    )


def _decide(wanted: NewTopic, context: Context) -> TopicDecision:
    allows, principal = context.services.authoriser.allows, context.peer.principal
    if not allows(principal, Action.CREATE, Resource.CLUSTER, CLUSTER_NAME) and not allows(
        principal, Action.CREATE, Resource.TOPIC, wanted.name
    ):
        raise TopicAuthorisationError(f"{principal} may not create topic {wanted.name}")
    if wanted.assignments and (wanted.partitions != -1 or wanted.replication_factor != -1):
        raise InvalidRequestError("replicas are given by hand: the counts of partitions and replicas must be -1")
    return context.services.topics.decide(wanted)


def _answer(
    outcomes: dict[str, PenstockError | TopicDecision], configs: dict[str, dict[str, str]], context: Context
) -> Any:
    response = context.response
    topics = []
    for name, outcome in outcomes.items():
        if isinstance(outcome, TopicDecision):
            topics.append(
                response.topics.make(
                    name=name,
                    topic_id=outcome.topic_id,
                    error_code=ErrorCode.none,
                    error_message=None,
                    num_partitions=len(outcome.replicas),
                    replication_factor=outcome.replication_factor,
                    configs=_configs(response.topics.configs, configs[name], context),
                )
            )
            continue
        if isinstance(outcome, NodeExistsError):  # of which this broker has not heard
            outcome = TopicExistsError(f"topic {name} exists already, or waits for brokers to delete its logs")
        topics.append(
            response.topics.make(
                name=name,
                topic_id=uuid.UUID(int=0),
                error_code=code_of(outcome),
                error_message=str(outcome),
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
        )
    return response.make(throttle_time=timedelta(), topics=tuple(topics))


def _configs(shape: Shape, overrides: dict[str, str], context: Context) -> tuple[Any, ...]:
    return tuple(
        shape.make(
            name=entry.key.name,
            value=None if entry.key.sensitive else entry.value,
            read_only=False,
            config_source=int(entry.source),
            is_sensitive=entry.key.sensitive,
        )
        for entry in topic_entries(overrides, context.services)
    )
