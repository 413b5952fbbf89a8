"""ListGroups (key 16), versions 0-5, flexible from 3.

Behaviour: the groups that this broker coordinates; COORDINATOR_LOAD_IN_PROGRESS while some are still read.
Versions: 3 flexible; 4 states; 5 types.
Differs from Kafka: every group is of type classic.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource


def handle_list_groups(request: Any, context: Context) -> Any:
    response = context.response
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    allows, principal = context.services.authoriser.allows, context.peer.principal
    sees_all = allows(principal, Action.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    error_code = ErrorCode.none
    groups = []
    for led in context.services.groups.shards:
        if not led.is_loaded:
            error_code = ErrorCode.coordinator_load_in_progress
            continue
        for group in led.shard.list():
            if (states and group.state.lower() not in states) or (types and group.type not in types):
                continue
            if sees_all or allows(principal, Action.DESCRIBE, Resource.GROUP, group.group_id):
                groups.append(
                    response.groups.make(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=group.state,
                        group_type=group.type,
                    )
                )
    return response.make(throttle_time=timedelta(), error_code=error_code, groups=tuple(groups))
