"""DescribeConfigs (key 32), versions 1-4, flexible from 4.

Behaviour: a topic's or this broker's configuration: value, source, and where asked for synonyms and documentation.
Versions: 1 synonyms; 3 types and documentation; 4 flexible.
Differs from Kafka: lists the keys that Penstock has; other kinds of resource are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.config import ConfigKey
from penstock.base.errors import PenstockError
from penstock.base.ids import check_topic_name
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.configs import BROKER, TOPIC, TYPES, Source, text_of
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import ClusterAuthorisationError, TopicAuthorisationError
from penstock.replication.errors import UnknownTopicOrPartitionError
from penstock.storage.config import TOPIC_KEYS


class _Synonym(NamedTuple):
    name: str
    value: str
    source: Source


class _Entry(NamedTuple):
    key: ConfigKey[Any]
    synonyms: list[_Synonym]
    """Strongest first; the first one is the value in force."""


def handle_describe_configs(request: Any, context: Context) -> Any:
    response = context.response
    results = []
    for resource in request.resources:
        error_code, message, configs = ErrorCode.none, None, ()
        try:
            entries = _entries(resource.resource_type, resource.resource_name, context)
            wanted = resource.configuration_keys
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


def _entries(resource_type: int, name: str, context: Context) -> Iterator[_Entry]:
    services = context.services
    allows, principal = services.authoriser.allows, context.peer.principal
    if resource_type == TOPIC:
        check_topic_name(name)
        if not allows(principal, Action.DESCRIBE_CONFIGS, Resource.TOPIC, name):
            raise TopicAuthorisationError(f"{principal} may not describe the configuration of topic {name}")
        if name not in services.image.topics:
            raise UnknownTopicOrPartitionError(f"there is no topic {name}")
        return _topic_entries(services.image.topic_configs.get(name, {}), services.settings.given)
    if resource_type != BROKER:
        raise InvalidRequestError(f"resources of type {resource_type} have no configuration here")
    if not allows(principal, Action.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorisationError(f"{principal} may not describe the configuration of brokers")
    if name not in ("", str(services.node_id)):
        raise InvalidRequestError(f"this is broker {services.node_id}; ask broker {name!r} for its configuration")
    return iter(()) if name == "" else _broker_entries(services.settings.keys, services.settings.given)


def _topic_entries(overrides: Mapping[str, str], given: Mapping[str, str]) -> Iterator[_Entry]:
    for key in sorted(TOPIC_KEYS.values(), key=lambda key: key.name):
        synonyms = []
        if key.name in overrides:
            synonyms.append(_Synonym(key.name, overrides[key.name], Source.TOPIC))
        synonyms += (_Synonym(name, given[name], Source.STATIC_BROKER) for name in key.synonyms if name in given)
        default_name = key.synonyms[0] if key.synonyms else key.name
        synonyms.append(_Synonym(default_name, text_of(key.default), Source.DEFAULT))
        yield _Entry(key, synonyms)


def _broker_entries(keys: Mapping[str, ConfigKey[Any]], given: Mapping[str, str]) -> Iterator[_Entry]:
    for name, key in sorted(keys.items()):
        synonyms = [_Synonym(name, text_of(key.default), Source.DEFAULT)]
        if name in given:
            synonyms.insert(0, _Synonym(name, given[name], Source.STATIC_BROKER))
        yield _Entry(key, synonyms)


def _config(response: Any, entry: _Entry, request: Any) -> Any:
    shape = response.results.configs
    key, synonyms = entry
    hidden = key.sensitive
    listed = synonyms if request.include_synonyms else []
    return shape.make(
        name=key.name,
        value=None if hidden else synonyms[0].value,
        read_only=not key.dynamic,
        config_source=int(synonyms[0].source),
        is_sensitive=hidden,
        synonyms=tuple(
            shape.synonyms.make(name=one.name, value=None if hidden else one.value, source=int(one.source))
            for one in listed
        ),
        config_type=TYPES[key.type_name],
        documentation=key.doc if getattr(request, "include_documentation", False) else None,
    )
