"""FindCoordinator (key 10): which broker coordinates a group or a transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from penstock.client.cluster import Cluster
from penstock.client.errors import AnswerError, UnreachableError
from penstock.client.messages import call_codec

T = TypeVar("T")

KEY = 10
GROUP, TRANSACTION = 0, 1
_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}


def coordinator(cluster: Cluster, name: str, kind: int) -> int:
    """The broker that coordinates it. Retriable AnswerError while nobody does."""
    where = f"coordinator of {_NAMES[kind]} {name}"
    brokers = cluster.metadata(()).brokers
    with cluster.connection(next(iter(brokers))) as connection:
        version = connection.version(KEY, "FindCoordinator", 1, 4)
        request: Any = call_codec(KEY, version).request.make(key_type=kind, key=name, coordinator_keys=(name,))
        answer = connection.call(KEY, version, request)
    found = answer.coordinators[0] if version >= 4 else answer
    if found.error_code != 0:
        raise AnswerError(where, found.error_code)
    if found.node_id not in brokers:
        raise AnswerError(where, ErrorCode.coordinator_not_available)
    return int(found.node_id)


def again(cluster: Cluster, ask: Callable[[], T]) -> T:
    """Asks until there is an answer, or an error that will not pass, or `default.api.timeout.ms` is over."""
    attempts = cluster.attempts()
    while True:
        try:
            return ask()
        except (UnreachableError, AnswerError) as error:
            attempts.failed(error)
