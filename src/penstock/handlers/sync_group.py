"""SyncGroup (key 14), versions 0-5, flexible from 4.

Behaviour: the leader brings the assignment, every member gets its part; the answer waits for the leader, and for the
    group's record.
Versions: 3 static members; 4 flexible; 5 protocol type and name.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.errors import InconsistentGroupProtocolError
from penstock.coordinator.groups.messages import Sync, Synced
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, code_of_write

PROTOCOL_FROM = 5


def handle_sync_group(request: Any, context: Context) -> Any:
    groups = context.services.groups
    try:
        check_group(context, Action.READ, request.group_id)
        if context.version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
            raise InconsistentGroupProtocolError("the member does not name its protocol")
        led = groups.find_for_member(request.group_id)
    except PenstockError as error:
        return _answer(Synced(error), context)
    sync = Sync(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((entry.member_id, entry.assignment) for entry in request.assignments),
    )
    pending: Pending[Any] = Pending()
    groups.run(led, led.shard.sync(sync, lambda synced: pending.resolve(_answer(synced, context))))
    return pending


def _answer(synced: Synced, context: Context) -> Any:
    return context.response.make(
        throttle_time=timedelta(),
        error_code=code_of_write(synced.error),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
