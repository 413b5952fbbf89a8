"""FindCoordinator (key 10), versions 0-6, flexible from 3.

Behaviour: the broker that leads the partition of `__consumer_offsets` which holds the group, or of `__transaction_state`
    which holds the transactional id; the topic is created first where it is missing, and the answer waits for it.
Versions: 1 key types (group, transaction); 3 flexible; 4 many keys; 5 new error codes; 6 share groups.
Differs from Kafka: share groups have no coordinator yet (INVALID_REQUEST); the first answer already names the coordinator.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.coordinator.errors import CoordinatorNotAvailableError
from penstock.drivers import groups, transactions
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.error_map import code_of
from penstock.handlers.groups import check_group
from penstock.handlers.transactions import check_transactional_id

GROUP, TRANSACTION = 0, 1


class _Found(NamedTuple):
    key: str
    error: PenstockError | None
    node_id: int = -1
    host: str = ""
    port: int = -1


def handle_find_coordinator(request: Any, context: Context) -> Any:
    key_type = getattr(request, "key_type", GROUP)
    keys: Sequence[str] = request.coordinator_keys if context.version >= 4 else (request.key,)
    if key_type not in (GROUP, TRANSACTION):
        unknown = InvalidRequestError(f"coordinators of type {key_type} are not known")
        return _answer([_Found(key, unknown) for key in keys], context)
    refused = {key: refusal for key in keys if (refusal := _refusal(key, key_type, context)) is not None}
    if len(refused) == len(set(keys)):  # nobody makes a topic by asking for what is not theirs
        return _answer([_Found(key, refused[key]) for key in keys], context)
    driver = context.services.groups if key_type == GROUP else context.services.transactions
    pending: Pending[Any] = Pending()

    def there(error: PenstockError | None) -> None:
        pending.resolve(_answer([_find(key, key_type, refused.get(key, error), context) for key in keys], context))

    driver.with_topic(there)
    return pending


def _refusal(key: str, key_type: int, context: Context) -> PenstockError | None:
    try:
        if key_type == GROUP:
            check_group(context, Action.DESCRIBE, key)
        else:
            check_transactional_id(context, Action.DESCRIBE, key)
    except PenstockError as refusal:
        return refusal
    return None


def _find(key: str, key_type: int, error: PenstockError | None, context: Context) -> _Found:
    services, image = context.services, context.services.image
    try:
        if error is not None:
            raise error
        if key_type == GROUP:
            state = image.partition(groups.TOPIC, services.groups.partition_of(key))
        else:
            state = image.partition(transactions.TOPIC, services.transactions.partition_of(key))
        broker = None if state is None else image.brokers.get(state.leader)
        for endpoint in () if broker is None else broker.endpoints:
            if endpoint.listener == context.peer.listener:
                assert broker is not None
                return _Found(key, None, broker.broker_id, endpoint.host, endpoint.port)
        raise CoordinatorNotAvailableError("its partition has no leader")
    except PenstockError as refusal:
        return _Found(key, refusal)


def _answer(found: Sequence[_Found], context: Context) -> Any:
    response = context.response
    shape = response.coordinators if context.version >= 4 else response
    answers = [
        shape.make(
            throttle_time=timedelta(),
            key=one.key,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
            error_code=ErrorCode.none if one.error is None else code_of(one.error),
            error_message="" if one.error is None else str(one.error),
        )
        for one in found
    ]
    if context.version < 4:
        return answers[0]
    return response.make(throttle_time=timedelta(), coordinators=tuple(answers))
