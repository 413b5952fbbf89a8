"""LeaveGroup (key 13), versions 0-5, flexible from 4.

Behaviour: members leave, and the group rebalances without them.
Versions: 3 many members, static ones by their instance ids; 4 flexible; 5 reason.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.errors import UnknownMemberIdError
from penstock.coordinator.groups.messages import Leaving, Left
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, code

MANY_FROM = 3


def handle_leave_group(request: Any, context: Context) -> Any:
    groups = context.services.groups
    try:
        check_group(context, Action.READ, request.group_id)
        led = groups.find_for_member(request.group_id)
        if context.version >= MANY_FROM:
            leaving = [Leaving(member.member_id, member.group_instance_id) for member in request.members]
        else:
            leaving = [Leaving(request.member_id, None)]
        decision, left = led.shard.leave(request.group_id, leaving)
    except UnknownMemberIdError as error:
        return _answer(None, tuple(Left(one.member_id, one.instance_id, error) for one in leaving), context)
    except PenstockError as error:
        return _answer(error, (), context)
    pending: Pending[Any] = Pending()
    groups.run(led, decision, lambda error: pending.resolve(_answer(error, left, context)))
    return pending


def _answer(error: PenstockError | None, left: tuple[Left, ...], context: Context) -> Any:
    response = context.response
    if context.version < MANY_FROM and left:
        error = error or left[0].error
    return response.make(
        throttle_time=timedelta(),
        error_code=code(error),
        members=tuple(
            response.members.make(
                member_id=one.member_id, group_instance_id=one.instance_id, error_code=code(one.error)
            )
            for one in left
        ),
    )
