"""Heartbeat (key 12), versions 0-4, flexible from 4.

Behaviour: a member lives on; REBALANCE_IN_PROGRESS tells it to join again.
Versions: 3 static members; 4 flexible.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.messages import Asker
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.error_map import code_of
from penstock.handlers.groups import check_group


def handle_heartbeat(request: Any, context: Context) -> Any:
    error_code = ErrorCode.none
    try:
        check_group(context, Action.READ, request.group_id)
        asker = Asker(request.member_id, getattr(request, "group_instance_id", None), request.generation_id)
        context.services.groups.heartbeat(request.group_id, asker)
    except PenstockError as error:
        error_code = code_of(error)
    return context.response.make(throttle_time=timedelta(), error_code=error_code)
