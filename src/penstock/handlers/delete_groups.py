"""DeleteGroups (key 42), versions 0-2, flexible from 2.

Behaviour: removes empty groups with their offsets; the answer waits for the records.
Versions: 2 flexible.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.base.errors import PenstockError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, code


def handle_delete_groups(request: Any, context: Context) -> Any:
    pending: Pending[Any] = Pending()
    names = list(dict.fromkeys(request.groups_names))
    outcomes: dict[str, PenstockError | None] = {}

    def done(group_id: str, error: PenstockError | None) -> None:
        outcomes[group_id] = error
        if len(outcomes) == len(names):
            pending.resolve(_answer(outcomes, context))

    for group_id in names:
        _delete(group_id, context, done)
    return pending if names else _answer({}, context)


def _delete(group_id: str, context: Context, done: Any) -> None:
    groups = context.services.groups
    try:
        check_group(context, Action.DELETE, group_id)
        led = groups.find(group_id)
        decision = led.shard.delete(group_id)
    except PenstockError as error:
        done(group_id, error)
        return
    groups.run(led, decision, lambda error: done(group_id, error))


def _answer(outcomes: dict[str, PenstockError | None], context: Context) -> Any:
    response = context.response
    results = tuple(
        response.results.make(group_id=group_id, error_code=code(error)) for group_id, error in outcomes.items()
    )
    return response.make(throttle_time=timedelta(), results=results)
