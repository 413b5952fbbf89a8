"""AlterConfigs (key 33), versions 0-2, flexible from 2, and IncrementalAlterConfigs (key 44), versions 0-1, flexible from 1.

Behaviour: each topic on its own; answers when the store confirmed them all, and the logs have the new values by then. The
    first replaces a topic's configuration as a whole, the second sets, deletes, appends to and subtracts from single keys.
Versions: nothing but the encoding.
Differs from Kafka: broker configurations cannot be changed yet.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import ConfigError, PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.configs import TOPIC, text_of
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.metadata.store import StoreError, Transaction
from penstock.replication.errors import UnknownTopicOrPartitionError
from penstock.storage.config import TOPIC_KEYS

SET, DELETE, APPEND, SUBTRACT = range(4)

_Key = tuple[int, str]


def handle_alter_configs(request: Any, context: Context) -> Any:
    return _handle(request, context, lambda _present, configs: _whole(configs))


def handle_incremental_alter_configs(request: Any, context: Context) -> Any:
    return _handle(request, context, _changed)


def _whole(configs: Any) -> dict[str, str]:
    config: dict[str, str] = {}
    for entry in configs:
        if entry.value is None:
            raise InvalidRequestError(f"{entry.name} has no value")
        config[entry.name] = entry.value
    return config


def _changed(present: dict[str, str], configs: Any) -> dict[str, str]:
    config = dict(present)
    seen: set[str] = set()
    for entry in configs:
        if entry.name in seen:
            raise InvalidRequestError(f"{entry.name} is changed twice in one request")
        seen.add(entry.name)
        if entry.config_operation == DELETE:
            config.pop(entry.name, None)
            continue
        if entry.value is None:
            raise InvalidRequestError(f"{entry.name} has no value")
        if entry.config_operation == SET:
            config[entry.name] = entry.value
        elif entry.config_operation in (APPEND, SUBTRACT):
            config[entry.name] = _edited_list(config, entry)
        else:
            raise InvalidRequestError(f"{entry.config_operation} is no way to change a configuration")
    return config


def _edited_list(config: dict[str, str], entry: Any) -> str:
    key = TOPIC_KEYS.get(entry.name)
    if key is None or key.type_name != "list":
        raise ConfigError(f"{entry.name} is not a list: it can be set and deleted only")
    items = [item for item in config.get(entry.name, text_of(key.default)).split(",") if item]
    changes = [item.strip() for item in entry.value.split(",") if item.strip()]
    if entry.config_operation == SUBTRACT:
        return ",".join(item for item in items if item not in changes)
    return ",".join(items + [item for item in changes if item not in items])


def _handle(request: Any, context: Context, edit: Callable[[dict[str, str], Any], dict[str, str]]) -> Any:
    outcomes: dict[_Key, PenstockError | Transaction] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if key in outcomes:
                raise InvalidRequestError(f"{resource.resource_name} stands twice in the request")
            outcomes[key] = _decide(resource, context, edit)
        except PenstockError as error:
            outcomes[key] = error
    left = {key for key, outcome in outcomes.items() if isinstance(outcome, Transaction)}
    if request.validate_only or not left:
        return _answer(outcomes, context)
    pending: Pending[Any] = Pending()

    def confirmed(key: _Key, error: StoreError | None) -> None:
        if error is not None:
            outcomes[key] = error
        left.discard(key)
        if not left:
            pending.resolve(_answer(outcomes, context))

    for key in sorted(left):
        transaction = outcomes[key]
        assert isinstance(transaction, Transaction)
        context.services.topics.submit(transaction, lambda error, key=key: confirmed(key, error))  # type: ignore[misc]
    return pending


def _decide(resource: Any, context: Context, edit: Callable[[dict[str, str], Any], dict[str, str]]) -> Transaction:
    services, name = context.services, resource.resource_name
    if resource.resource_type != TOPIC:
        raise InvalidRequestError("only the configuration of topics can be changed yet")
    if not services.authoriser.allows(context.peer.principal, Action.ALTER_CONFIGS, Resource.TOPIC, name):
        raise TopicAuthorisationError(f"{context.peer.principal} may not change the configuration of topic {name}")
    topic = services.image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    config = edit(services.image.topic_configs.get(name, {}), resource.configs)
    return services.topics.decide_config(topic, config)


def _answer(outcomes: dict[_Key, PenstockError | Transaction], context: Context) -> Any:
    response = context.response
    responses = []
    for (resource_type, name), outcome in outcomes.items():
        failed = outcome if isinstance(outcome, PenstockError) else None
        responses.append(
            response.responses.make(
                error_code=ErrorCode.none if failed is None else code_of(failed),
                error_message=None if failed is None else str(failed),
                resource_type=resource_type,
                resource_name=name,
            )
        )
    return response.make(throttle_time=timedelta(), responses=tuple(responses))
