"""What the handlers of the transaction APIs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions.errors import ProducerFencedError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TransactionalIdAuthorisationError


def check_transactional_id(context: Context, action: Action, transactional_id: str) -> None:
    allows = context.services.authoriser.allows
    if not allows(context.peer.principal, action, Resource.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorisationError(
            f"{context.peer.principal} may not {action.value} transactional id {transactional_id}"
        )


def client_code(error: PenstockError, context: Context, fenced_from: int) -> ErrorCode:
    """The code of an error; clients before `fenced_from` know INVALID_PRODUCER_EPOCH and not PRODUCER_FENCED."""
    if isinstance(error, ProducerFencedError) and context.version < fenced_from:
        return ErrorCode.invalid_producer_epoch
    return code_of(error)


def named_partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(str(topic.name), number) for topic in topics for number in topic.partitions]


def at_once_or_later(start: Callable[[Callable[[Any], None]], object]) -> Any:
    """What `start` hands to its callback: itself if that happens before it returns, else a Pending that will hold it."""
    ready: list[Any] = []
    pending: Pending[Any] | None = None

    def done(answer: Any) -> None:
        if pending is None:
            ready.append(answer)
        else:
            pending.resolve(answer)

    start(done)
    if ready:
        return ready[0]
    pending = Pending()
    return pending
