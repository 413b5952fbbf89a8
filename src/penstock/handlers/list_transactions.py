"""ListTransactions (key 66), versions 0-2, flexible.

Behaviour: the transactional ids of this broker's shards, by state, producer id, age and pattern.
Versions: 1 only those open longer than a duration (KIP-994); 2 a pattern for the transactional id (KIP-1152).
Differs from Kafka: a pattern has no groups and no counts, at most two of `*`, `+` and `?` in each of at most five alternatives, and
    matches ids of up to 250 characters: what a client sends can so not keep the broker busy. Others are
    INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.coordinator.transactions.model import NO_EPOCH, Transaction
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.protocol.transaction_records import TransactionState

_PATTERN_MAX, _ALTERNATIVES_MAX, _QUANTIFIERS_MAX, _MATCHED_MAX = 1_000, 5, 2, 250
_ATOM = r"(?:[^\\()\[\]{}*+?|]|\\[^0-9]|\[(?:[^\[\]\\]|\\.)+\])"
_ALTERNATIVE = re.compile(rf"(?:{_ATOM}[*+?]?)*")
"""One way to read each pattern, so that reading it takes no longer than it is long."""
_QUANTIFIED = re.compile(rf"{_ATOM}[*+?]")
_LABELS = {state.label: state for state in TransactionState}


def handle_list_transactions(request: Any, context: Context) -> Any:
    response = context.response
    shards = context.services.transactions.shards
    unknown = tuple(name for name in request.state_filters if name not in _LABELS)
    error_code = ErrorCode.none
    pattern = getattr(request, "transactional_id_pattern", None) or ""
    expression = _compile(pattern)
    if any(not led.is_loaded for led in shards):
        error_code = ErrorCode.coordinator_load_in_progress
    elif expression is None:
        error_code = ErrorCode.invalid_regular_expression
    states = [
        response.transaction_states.make(
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            transaction_state=one.state.label,
        )
        for led in (shards if error_code is ErrorCode.none else ())
        for one in led.shard.transactions.values()
        if _matches(expression, one.transactional_id) and _is_wanted(one, request, context)
    ]
    return response.make(
        throttle_time=timedelta(),
        error_code=error_code,
        unknown_state_filters=unknown,
        transaction_states=tuple(states),
    )


def _compile(pattern: str) -> re.Pattern[str] | None:
    """None where the pattern is none, or one that could take long (attack A20)."""
    alternatives = pattern.split("|")
    if len(pattern) > _PATTERN_MAX or len(alternatives) > _ALTERNATIVES_MAX:
        return None
    for alternative in alternatives:
        if not _ALTERNATIVE.fullmatch(alternative) or len(_QUANTIFIED.findall(alternative)) > _QUANTIFIERS_MAX:
            return None
    try:
        return re.compile(pattern)
    except re.error:
        return None


def _matches(expression: re.Pattern[str] | None, transactional_id: str) -> bool:
    if expression is None or expression.pattern == "":
        return expression is not None
    return len(transactional_id) <= _MATCHED_MAX and expression.fullmatch(transactional_id) is not None


def _is_wanted(one: Transaction, request: Any, context: Context) -> bool:
    if one.pending is TransactionState.DEAD or one.epoch == NO_EPOCH:
        return False
    if request.state_filters and one.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and one.producer_id not in request.producer_id_filters:
        return False
    least_ms = getattr(request, "duration_filter", -1)
    if least_ms >= 0 and context.services.clock.wall_ms() - one.start_ms <= least_ms:
        return False
    allows = context.services.authoriser.allows
    return allows(context.peer.principal, Action.DESCRIBE, Resource.TRANSACTIONAL_ID, one.transactional_id)
