"""ListConfigResources (key 74), versions 0-1, flexible from 0.

Behaviour: the resources that have configurations of their own: topics, this broker and its cluster's defaults. Version 0
    asks for client metrics, and there are none. An unknown kind is UNSUPPORTED_VERSION.
Versions: 1 kinds of resources (KIP-1142); none named means every kind.
Differs from Kafka: no loggers, client metrics or groups with configurations.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC

_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle_list_config_resources(request: Any, context: Context) -> Any:
    response = context.response
    error_code, listed = ErrorCode.none, ()
    kinds = getattr(request, "resource_types", (CLIENT_METRICS,)) or _KINDS
    if not context.services.authoriser.allows(
        context.peer.principal, Action.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME
    ):
        error_code = ErrorCode.cluster_authorization_failed
    elif any(kind not in _KINDS for kind in kinds):
        error_code = ErrorCode.unsupported_version
    else:
        listed = tuple(
            response.config_resources.make(resource_name=name, resource_type=kind)
            for kind, name in _resources(context)
            if kind in kinds
        )
    return response.make(throttle_time=timedelta(), error_code=error_code, config_resources=listed)


def _resources(context: Context) -> Iterator[tuple[int, str]]:
    image = context.services.image
    for kind in (BROKER, BROKER_LOGGER):
        yield from ((kind, str(broker_id)) for broker_id in sorted(image.brokers))
    yield from ((TOPIC, name) for name in sorted(image.topics))
