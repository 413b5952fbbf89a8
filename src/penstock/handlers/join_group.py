"""JoinGroup (key 11), versions 0-9, flexible from 6.

Behaviour: a member asks to be in the group's next generation; the answer waits until all have joined or the rebalance
    timeout ends. The leader's answer lists the members.
Versions: 1 rebalance timeout; 4 a new member is told its id first (KIP-394); 5 static members (KIP-345); 6 flexible;
    7 protocol type; 8 reason; 9 a returning leader skips the assignment (KIP-814).
Differs from Kafka: a join that its member repeats on another connection is answered REBALANCE_IN_PROGRESS, instead of
    never; ties between protocols go to the first member's choice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.messages import Join, Joined
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, code_of_write, milliseconds

MEMBER_ID_FIRST_FROM, SKIP_ASSIGNMENT_FROM, NULL_PROTOCOL_FROM = 4, 9, 7


def handle_join_group(request: Any, context: Context) -> Any:
    groups = context.services.groups
    try:
        check_group(context, Action.READ, request.group_id)
        led = groups.find_for_member(request.group_id)
    except PenstockError as error:
        return _answer(Joined(error, request.member_id), context)
    session_timeout_ms = milliseconds(request.session_timeout)
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id or "",
        client_host=f"/{context.peer.address}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout) if context.version >= 1 else session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_known_id=context.version >= MEMBER_ID_FIRST_FROM,
        may_skip_assignment=context.version >= SKIP_ASSIGNMENT_FROM,
    )
    pending: Pending[Any] = Pending()
    groups.run(led, led.shard.join(join, lambda joined: pending.resolve(_answer(joined, context))))
    return pending


def _answer(joined: Joined, context: Context) -> Any:
    response = context.response
    protocol = joined.protocol
    return response.make(
        throttle_time=timedelta(),
        error_code=code_of_write(joined.error),
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name="" if protocol is None and context.version < NULL_PROTOCOL_FROM else protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            response.members.make(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ),
    )
