"""AlterConfigs (key 33), versions 0-2, flexible from 2, and IncrementalAlterConfigs (key 44), versions 0-1, flexible from 1.

Behaviour: each resource on its own: a topic, this broker, or (empty name) every broker. Answers when the store confirmed
    them all, and logs and broker have the new values by then. The first replaces a configuration as a whole, the second
    sets, deletes, appends to and subtracts from single keys.
Versions: nothing but the encoding.
Differs from Kafka: a broker's keys that nobody knows are refused; listeners cannot be changed while it runs; loggers,
    groups and client metrics have no configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.config import ConfigKey, value_text
from penstock.base.errors import ConfigError, PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.configs import BROKER, TOPIC
from penstock.handlers.confirmations import Submit, confirm_all, in_turn
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import ClusterAuthorisationError, TopicAuthorisationError
from penstock.metadata.layout import CLUSTER_DEFAULT, broker_config_path, topic_config_path
from penstock.metadata.store import Transaction
from penstock.replication.errors import UnknownTopicOrPartitionError
from penstock.storage.config import TOPIC_KEYS, check_changes

SET, DELETE, APPEND, SUBTRACT = range(4)

Keys = Mapping[str, ConfigKey[Any]]
Edit = Callable[[dict[str, str], Any, Keys], dict[str, str]]
"""(present configuration, what is asked, keys of this kind of resource) -> new configuration."""


def handle_alter_configs(request: Any, context: Context) -> Any:
    return in_turn(context.services.topics, partial(_handle, request, context, _whole))


def handle_incremental_alter_configs(request: Any, context: Context) -> Any:
    return in_turn(context.services.topics, partial(_handle, request, context, _changed))


def _check_values(configs: Any) -> None:
    repeated = [name for name, count in Counter(entry.name for entry in configs).items() if count > 1]
    if repeated:
        raise InvalidRequestError(f"{repeated[0]} stands twice in the request")
    for entry in configs:
        if entry.value is None and getattr(entry, "config_operation", SET) != DELETE:
            raise InvalidRequestError(f"{entry.name} has no value")


def _whole(_present: dict[str, str], configs: Any, _keys: Keys) -> dict[str, str]:
    return {entry.name: entry.value for entry in configs}


def _changed(present: dict[str, str], configs: Any, keys: Keys) -> dict[str, str]:
    config = dict(present)
    for entry in configs:
        if entry.config_operation == DELETE:
            config.pop(entry.name, None)
        elif entry.config_operation == SET:
            config[entry.name] = entry.value
        elif entry.config_operation in (APPEND, SUBTRACT):
            config[entry.name] = _edited_list(config, entry, keys)
        else:
            raise InvalidRequestError(f"{entry.config_operation} is no way to change a configuration")
    return config


def _edited_list(config: dict[str, str], entry: Any, keys: Keys) -> str:
    key = keys.get(entry.name)
    if key is None or key.type_name != "list":
        raise ConfigError(f"{entry.name} is not a list: it can be set and deleted only")
    items = [item for item in config.get(entry.name, value_text(key.default) or "").split(",") if item]
    changes = [item.strip() for item in entry.value.split(",") if item.strip()]
    if entry.config_operation == SUBTRACT:
        return ",".join(item for item in items if item not in changes)
    return ",".join(items + [item for item in changes if item not in items])


def _handle(request: Any, context: Context, edit: Edit) -> Any:
    resources = request.resources
    repeated = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    outcomes: list[PenstockError | None] = []
    changes: dict[int, Submit] = {}
    for number, resource in enumerate(resources):
        try:
            if repeated[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError(f"{resource.resource_name} stands twice in the request")
            _check_values(resource.configs)
            _decide(resource, context, edit)
            outcomes.append(None)
            if not request.validate_only:
                decide = partial(_decide, resource, context, edit)
                changes[number] = partial(context.services.topics.change_config, _path(resource), decide)
        except PenstockError as error:
            outcomes.append(error)

    def refused(number: int, error: PenstockError) -> None:
        outcomes[number] = error

    return confirm_all(changes, refused, lambda: _answer(resources, outcomes, context))


def _path(resource: Any) -> str:
    name = resource.resource_name
    return topic_config_path(name) if resource.resource_type == TOPIC else broker_config_path(name or CLUSTER_DEFAULT)


def _decide(resource: Any, context: Context, edit: Edit) -> Transaction:
    if resource.resource_type == TOPIC:
        return _decide_topic(resource, context, edit)
    if resource.resource_type == BROKER:
        return _decide_broker(resource, context, edit)
    raise InvalidRequestError(f"resources of type {resource.resource_type} have no configuration here")


def _decide_topic(resource: Any, context: Context, edit: Edit) -> Transaction:
    services, name = context.services, resource.resource_name
    if not services.authoriser.allows(context.peer.principal, Action.ALTER_CONFIGS, Resource.TOPIC, name):
        raise TopicAuthorisationError(f"{context.peer.principal} may not change the configuration of topic {name}")
    present = services.image.topic_configs.get(name, {})
    config = edit(present, resource.configs, TOPIC_KEYS)
    check_changes(present, config)
    topic = services.image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    return services.topics.decide_config(topic, config)


def _decide_broker(resource: Any, context: Context, edit: Edit) -> Transaction:
    services, name = context.services, resource.resource_name
    if not services.authoriser.allows(context.peer.principal, Action.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorisationError(f"{context.peer.principal} may not change the configuration of brokers")
    if name not in ("", str(services.node_id)):
        raise InvalidRequestError(f"this is broker {services.node_id}; broker {name!r} has its own configuration")
    entity = name or CLUSTER_DEFAULT
    present = services.image.broker_configs.get(entity, {})
    try:
        config = edit(present, resource.configs, services.settings.keys)
        services.settings.check_dynamic({key: value for key, value in config.items() if present.get(key) != value})
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from None  # Kafka's code for it (KAFKA-13609)
    return services.topics.decide_broker_config(entity, config)


def _answer(resources: Any, outcomes: list[PenstockError | None], context: Context) -> Any:
    response = context.response
    responses = tuple(
        response.responses.make(
            error_code=ErrorCode.none if outcome is None else code_of(outcome),
            error_message=None if outcome is None else str(outcome),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, outcome in zip(resources, outcomes, strict=True)
    )
    return response.make(throttle_time=timedelta(), responses=responses)
