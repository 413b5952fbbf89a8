"""What the calls of a controller share: they are handed to the broker, and answered when it has carried them out."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import PenstockError
from penstock.controller.peer_requests import PeerAnswer, PeerRequest
from penstock.handlers.api import Context, Pending
from penstock.handlers.brokers import cluster_for


def carry_out(request: PeerRequest, context: Context) -> Pending[PeerAnswer]:
    """Hands a controller's request to the broker."""
    pending: Pending[PeerAnswer] = Pending()
    try:
        cluster_for(context).replicas.take(request, pending.resolve)
    except PenstockError as error:
        pending.resolve(PeerAnswer(error=error))
    return pending


def answer_later(pending: Pending[Any], make: Any) -> Pending[Any]:
    """The answer's entity, once what it is made of is there."""
    answer: Pending[Any] = Pending()
    pending.listen(lambda value: answer.resolve(make(value)))
    return answer
