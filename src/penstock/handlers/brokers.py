"""Who may make the calls between brokers (pitfall A10)."""

from __future__ import annotations

from penstock.controller.errors import NotControllerError
from penstock.handlers.api import Context
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
