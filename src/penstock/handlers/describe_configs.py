"""DescribeConfigs (key 32), versions 1-4, flexible from 4.

Behaviour: the configuration of a topic, of this broker, or (empty name) what is set for every broker: value, source,
    and where asked for synonyms and documentation.
Versions: 1 synonyms; 3 types and documentation; 4 flexible.
Differs from Kafka: lists the keys that Penstock has; other kinds of resource are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import check_topic_name
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.configs import (
    BROKER,
    TOPIC,
    TYPES,
    Entry,
    broker_entries,
    cluster_entries,
    topic_entries,
)
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import ClusterAuthorisationError, TopicAuthorisationError
from penstock.replication.errors import UnknownTopicOrPartitionError


def handle_describe_configs(request: Any, context: Context) -> Any:
    response = context.response
    results = []
    for resource in request.resources:
        error_code, message, configs = ErrorCode.none, None, ()
        try:
            entries = _entries(resource.resource_type, resource.resource_name, context)
            wanted = resource.configuration_keys or None
            configs = tuple(
                _config(response, entry, request) for entry in entries if wanted is None or entry.key.name in wanted
            )
        except PenstockError as error:
            error_code, message = code_of(error), str(error)
        results.append(
            response.results.make(
                error_code=error_code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return response.make(throttle_time=timedelta(), results=tuple(results))


def _entries(resource_type: int, name: str, context: Context) -> Iterator[Entry]:
    services = context.services
    allows, principal = services.authoriser.allows, context.peer.principal
    if resource_type == TOPIC:
        check_topic_name(name)
        if not allows(principal, Action.DESCRIBE_CONFIGS, Resource.TOPIC, name):
            raise TopicAuthorisationError(f"{principal} may not describe the configuration of topic {name}")
        if name not in services.image.topics:
            raise UnknownTopicOrPartitionError(f"there is no topic {name}")
        return topic_entries(services.image.topic_configs.get(name, {}), services)
    if resource_type != BROKER:
        raise InvalidRequestError(f"resources of type {resource_type} have no configuration here")
    if not allows(principal, Action.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorisationError(f"{principal} may not describe the configuration of brokers")
    if name not in ("", str(services.node_id)):
        raise InvalidRequestError(f"this is broker {services.node_id}; ask broker {name!r} for its configuration")
    return cluster_entries(services) if name == "" else broker_entries(services)


def _config(response: Any, entry: Entry, request: Any) -> Any:
    shape = response.results.configs
    key = entry.key
    hidden = key.sensitive
    return shape.make(
        name=key.name,
        value=None if hidden else entry.value,
        read_only=not key.dynamic,
        config_source=int(entry.source),
        is_sensitive=hidden,
        synonyms=tuple(
            shape.synonyms.make(name=one.name, value=None if hidden else one.value, source=int(one.source))
            for one in (entry.synonyms if request.include_synonyms else ())
        ),
        config_type=TYPES[key.type_name],
        documentation=key.doc if getattr(request, "include_documentation", False) else None,
    )
