"""OffsetFetch (key 9), versions 1-10, flexible from 6.

Behaviour: the offsets that a group committed; -1 where there is none, and for a group that is not there. Topics null
    means all of them. The answer waits until what it tells is committed.
Versions: 2 all topics, error of the whole answer; 5 leader epoch; 6 flexible; 7 require_stable; 8 many groups; 9 member
    and epoch (only the newer protocol looks at them); 10 topic ids.
    Where a transaction is about to write an offset and the client requires stable ones: UNSTABLE_OFFSET_COMMIT (KIP-447).
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.coordinator.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError
from penstock.coordinator.groups.shard import Shard
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.groups import check_group, may_topic, topic_id, topic_name
from penstock.protocol.group_records import OffsetValue
from penstock.protocol.schemas import Shape

ALL_GROUPS_FROM, TOP_ERROR_FROM, TOPIC_ID_FROM = 8, 2, 10
_NOTHING = OffsetValue(-1, -1, "", -1)
Done = Callable[[tuple[Any, ...], ErrorCode], None]


class _Offsets:
    """A group's offsets as one request may see them."""

    def __init__(self, group_id: str, shard: Shard, require_stable: bool) -> None:
        group = shard.groups.get(group_id)
        self._group_id = group_id
        self._offsets = {} if group is None else group.offsets
        self._pending = shard.pending_offsets if require_stable else None

    def places(self) -> Iterable[tuple[str, int]]:
        return self._offsets

    def at(self, topic: str, partition: int) -> tuple[OffsetValue, ErrorCode]:
        if self._pending is not None and self._pending.is_held(self._group_id, topic, partition):
            return _NOTHING, ErrorCode.unstable_offset_commit
        return self._offsets.get((topic, partition), _NOTHING), ErrorCode.none


def handle_offset_fetch(request: Any, context: Context) -> Any:
    response = context.response
    in_groups = context.version >= ALL_GROUPS_FROM
    shape, asked = (response.groups, request.groups) if in_groups else (response, (request,))
    require_stable = getattr(request, "require_stable", False)
    pending: Pending[Any] = Pending()
    found: dict[int, tuple[tuple[Any, ...], ErrorCode]] = {}

    def done(number: int, topics: tuple[Any, ...], error_code: ErrorCode) -> None:
        found[number] = topics, error_code
        if len(found) < len(asked):
            return
        if not in_groups:
            pending.resolve(response.make(throttle_time=timedelta(), topics=topics, error_code=error_code))
            return
        groups = tuple(
            shape.make(group_id=one.group_id, topics=found[place][0], error_code=found[place][1])
            for place, one in enumerate(asked)
        )
        pending.resolve(response.make(throttle_time=timedelta(), groups=groups))

    for number, one in enumerate(asked):
        _find(shape, one, require_stable, context, partial(done, number))
    return pending if asked else response.make(throttle_time=timedelta(), groups=())


def _find(shape: Shape, asked: Any, require_stable: bool, context: Context, done: Done) -> None:
    """Gives one group's offsets when nothing of them can be lost with this broker any more."""
    groups = context.services.groups
    try:
        check_group(context, Action.DESCRIBE, asked.group_id)
        led = groups.find(asked.group_id)
    except PenstockError as error:
        done(*_refused(shape, asked, error, context))
        return
    offsets = _Offsets(asked.group_id, led.shard, require_stable)
    if asked.topics is None:
        topics = _all(shape, offsets, context)
    else:
        topics = tuple(_topic(shape, offsets, topic, context) for topic in asked.topics)

    def committed(error: PenstockError | None) -> None:
        if isinstance(error, CoordinatorNotAvailableError):  # clients of Kafka before 3.9 give up at this one
            error = CoordinatorLoadInProgressError(str(error))
        done(*((topics, ErrorCode.none) if error is None else _refused(shape, asked, error, context)))

    groups.when_committed(led, committed)


def _refused(shape: Shape, asked: Any, error: PenstockError, context: Context) -> tuple[tuple[Any, ...], ErrorCode]:
    error_code = code_of(error)
    if context.version >= TOP_ERROR_FROM:
        return (), error_code
    return tuple(_topic_refused(shape, topic, error_code) for topic in asked.topics), ErrorCode.none


def _all(shape: Shape, found: _Offsets, context: Context) -> tuple[Any, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in found.places():
        if may_topic(context, Action.DESCRIBE, topic):
            by_topic.setdefault(topic, []).append(partition)
    if context.version >= TOPIC_ID_FROM:
        by_topic = {name: numbers for name, numbers in by_topic.items() if topic_id(name, context) is not None}
    return tuple(
        shape.topics.make(
            name=name, topic_id=topic_id(name, context), partitions=_partitions(shape, found, name, sorted(numbers))
        )
        for name, numbers in by_topic.items()
    )


def _topic(shape: Shape, found: _Offsets, topic: Any, context: Context) -> Any:
    try:
        name = topic_name(topic, context)
        if not may_topic(context, Action.DESCRIBE, name):
            raise TopicAuthorisationError(f"{context.peer.principal} may not describe topic {name}")
    except PenstockError as error:
        return _topic_refused(shape, topic, code_of(error))
    return shape.topics.make(
        name=name,
        topic_id=getattr(topic, "topic_id", None),
        partitions=_partitions(shape, found, name, topic.partition_indexes),
    )


def _partitions(shape: Shape, found: _Offsets, topic: str, numbers: Iterable[int]) -> tuple[Any, ...]:
    return tuple(_partition(shape, number, *found.at(topic, number)) for number in numbers)


def _partition(shape: Shape, number: int, value: OffsetValue, error_code: ErrorCode) -> Any:
    return shape.topics.partitions.make(
        partition_index=number,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=error_code,
    )


def _topic_refused(shape: Shape, topic: Any, error_code: ErrorCode) -> Any:
    return shape.topics.make(
        name=getattr(topic, "name", None),
        topic_id=getattr(topic, "topic_id", None),
        partitions=tuple(_partition(shape, number, _NOTHING, error_code) for number in topic.partition_indexes),
    )
