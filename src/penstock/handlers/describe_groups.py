"""DescribeGroups (key 15), versions 0-6, flexible from 5.

Behaviour: a group's state, protocol and members; subscriptions and assignments only while it is stable.
Versions: 3 authorised operations; 4 static members; 5 flexible; 6 GROUP_ID_NOT_FOUND with a message, where earlier
    versions call an unknown group Dead.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.errors import GroupIdNotFoundError
from penstock.coordinator.groups.model import Group, State
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.groups import check_group
from penstock.handlers.operations import NOT_ASKED, allowed_operations
from penstock.protocol.schemas import Shape

NOT_FOUND_FROM = 6


def handle_describe_groups(request: Any, context: Context) -> Any:
    response = context.response
    wants_operations = getattr(request, "include_authorized_operations", False)
    groups = tuple(_describe(response.groups, group_id, context, wants_operations) for group_id in request.groups)
    return response.make(throttle_time=timedelta(), groups=groups)


def _describe(shape: Shape, group_id: str, context: Context, wants_operations: bool) -> Any:
    try:
        check_group(context, Action.DESCRIBE, group_id)
        group = context.services.groups.find(group_id).shard.groups.get(group_id)
        if group is None and context.version >= NOT_FOUND_FROM:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
    except PenstockError as error:
        is_absent = isinstance(error, GroupIdNotFoundError)
        return _make(shape, group_id, State.DEAD.value if is_absent else "", code_of(error), str(error))
    operations = allowed_operations(context, Resource.GROUP, group_id) if wants_operations else NOT_ASKED
    if group is None:
        return _make(shape, group_id, State.DEAD.value, ErrorCode.none, None, operations)
    return _found(shape, group, operations)


def _make(
    shape: Shape, group_id: str, state: str, error_code: ErrorCode, message: str | None, operations: int = NOT_ASKED
) -> Any:
    return shape.make(
        error_code=error_code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )


def _found(shape: Shape, group: Group, operations: int) -> Any:
    is_stable = group.state is State.STABLE
    members = tuple(
        shape.members.make(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    )
    return shape.make(
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=members,
        authorized_operations=operations,
    )
