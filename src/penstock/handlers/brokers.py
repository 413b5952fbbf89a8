"""What the calls between brokers share: who may make them (pitfall A10), and where their answers come from."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import PenstockError
from penstock.controller.errors import NotControllerError
from penstock.controller.peer_requests import PeerAnswer, PeerRequest
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.errors import ClusterAuthorisationError
from penstock.handlers.services import ClusterServices


def is_broker(context: Context) -> bool:
    """A client that says it is a broker needs to be one (CVE-2018-1288)."""
    return context.services.authoriser.allows(
        context.peer.principal, Action.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    )


def cluster_for(context: Context) -> ClusterServices:
    """The parts of a cluster's broker, for a caller that may use them; an error says why not."""
    if not is_broker(context):
        raise ClusterAuthorisationError(f"{context.peer.principal} is no broker")
    if context.services.cluster is None:
        raise NotControllerError("this broker belongs to no cluster")
    return context.services.cluster


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
