"""The authoriser port: every handler asks it, so that access control changes no handler."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Resource(Enum):
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class Action(Enum):
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"


CLUSTER_NAME = "kafka-cluster"


class Authoriser(Protocol):
    def allows(self, principal: str, action: Action, resource: Resource, name: str) -> bool: ...


class AllowAll:
    """No access control."""

    def allows(self, principal: str, action: Action, resource: Resource, name: str) -> bool:
        return True
