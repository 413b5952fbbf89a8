"""Conditions of a `where` that narrow what is read: on topic, partition, offset and timestamp.

Spark evaluates every condition again on the rows, so what is not understood here is merely not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Rows outside of this are not asked for. None: no limit; all limits are inclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int | None = None
    offset_max: int | None = None
    time_ms_min: int | None = None
    time_ms_max: int | None = None


EVERYTHING = Wanted()


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """What all of these conditions, taken together, leave."""
    wanted = EVERYTHING
    for one in filters:
        match one:
            case EqualTo(attribute=(name,), value=value) | EqualNullSafe(attribute=(name,), value=value):
                wanted = _one_of(wanted, name, (value,))
            case In(attribute=(name,), value=values):
                wanted = _one_of(wanted, name, values)
            case GreaterThan(attribute=(name,), value=value):
                wanted = _at_least(wanted, name, value, 1)
            case GreaterThanOrEqual(attribute=(name,), value=value):
                wanted = _at_least(wanted, name, value, 0)
            case LessThan(attribute=(name,), value=value):
                wanted = _at_most(wanted, name, value, 1)
            case LessThanOrEqual(attribute=(name,), value=value):
                wanted = _at_most(wanted, name, value, 0)
            case _:
                pass
    return wanted


def _one_of(wanted: Wanted, name: str, values: Iterable[Any]) -> Wanted:
    values = [
        value for value in values if value is not None
    ]  # a null is equal to nothing, and no column of these is null
    if name.lower() == "topic":
        return replace(wanted, topics=_both(wanted.topics, frozenset(values)))
    if name.lower() == "partition":
        return replace(wanted, partitions=_both(wanted.partitions, frozenset(values)))
    if not values:
        return wanted
    return _at_most(_at_least(wanted, name, min(values), 0), name, max(values), 0)


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _at_least(wanted: Wanted, name: str, value: Any, above: int) -> Wanted:
    if name.lower() == "offset" and isinstance(value, int):
        return replace(wanted, offset_min=_higher(wanted.offset_min, value + above))
    if name.lower() == "timestamp" and isinstance(value, datetime):
        return replace(wanted, time_ms_min=_higher(wanted.time_ms_min, -(-(_micros(value) + above) // 1000)))
    return wanted


def _at_most(wanted: Wanted, name: str, value: Any, below: int) -> Wanted:
    if name.lower() == "offset" and isinstance(value, int):
        return replace(wanted, offset_max=_lower(wanted.offset_max, value - below))
    if name.lower() == "timestamp" and isinstance(value, datetime):
        return replace(wanted, time_ms_max=_lower(wanted.time_ms_max, (_micros(value) - below) // 1000))
    return wanted


def _higher(known: int | None, value: int) -> int:
    return value if known is None else max(known, value)


def _lower(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)


def _micros(moment: datetime) -> int:
    """Spark hands over moments with a time zone; one without is in this machine's."""
    passed = moment.astimezone(UTC) - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
