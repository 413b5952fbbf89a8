"""What a principal may do to a resource, as the bits that clients ask for (KIP-430)."""

from __future__ import annotations

from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource

NOT_ASKED = -(2**31)

_BITS = {
    Action.READ: 3,
    Action.WRITE: 4,
    Action.CREATE: 5,
    Action.DELETE: 6,
    Action.ALTER: 7,
    Action.DESCRIBE: 8,
    Action.CLUSTER_ACTION: 9,
    Action.DESCRIBE_CONFIGS: 10,
    Action.ALTER_CONFIGS: 11,
    Action.IDEMPOTENT_WRITE: 12,
}

_ACTIONS = {
    Resource.TOPIC: (
        Action.READ,
        Action.WRITE,
        Action.CREATE,
        Action.DESCRIBE,
        Action.DELETE,
        Action.ALTER,
        Action.DESCRIBE_CONFIGS,
        Action.ALTER_CONFIGS,
    ),
    Resource.GROUP: (Action.READ, Action.DESCRIBE, Action.DELETE, Action.DESCRIBE_CONFIGS, Action.ALTER_CONFIGS),
    Resource.CLUSTER: (
        Action.CREATE,
        Action.CLUSTER_ACTION,
        Action.DESCRIBE_CONFIGS,
        Action.ALTER_CONFIGS,
        Action.IDEMPOTENT_WRITE,
        Action.ALTER,
        Action.DESCRIBE,
    ),
}


def allowed_operations(context: Context, resource: Resource, name: str) -> int:
    allows, principal = context.services.authoriser.allows, context.peer.principal
    return sum(1 << _BITS[action] for action in _ACTIONS[resource] if allows(principal, action, resource, name))
