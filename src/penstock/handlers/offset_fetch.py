"""OffsetFetch (key 9), versions 1-10, flexible from 6.

Behaviour: the offsets that a group committed; -1 where there is none, and for a group that is not there. Topics null
    means all of them.
Versions: 2 all topics, error of the whole answer; 5 leader epoch; 6 flexible; 7 require_stable; 8 many groups; 9 member
    and epoch (only the newer protocol looks at them); 10 topic ids.
    Where a transaction is about to write an offset and the client requires stable ones: UNSTABLE_OFFSET_COMMIT (KIP-447).
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.coordinator.groups.shard import Shard
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.groups import check_group, may_topic, topic_id, topic_name
from penstock.protocol.group_records import OffsetValue
from penstock.protocol.schemas import Shape

ALL_GROUPS_FROM, TOP_ERROR_FROM, TOPIC_ID_FROM = 8, 2, 10
_NOTHING = OffsetValue(-1, -1, "", -1)


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
    require_stable = getattr(request, "require_stable", False)
    if context.version < ALL_GROUPS_FROM:
        topics, error_code = _group(response, request, require_stable, context)
        return response.make(throttle_time=timedelta(), topics=topics, error_code=error_code)
    groups = []
    for asked in request.groups:
        topics, error_code = _group(response.groups, asked, require_stable, context)
        groups.append(response.groups.make(group_id=asked.group_id, topics=topics, error_code=error_code))
    return response.make(throttle_time=timedelta(), groups=tuple(groups))


def _group(shape: Shape, asked: Any, require_stable: bool, context: Context) -> tuple[tuple[Any, ...], ErrorCode]:
    try:
        check_group(context, Action.DESCRIBE, asked.group_id)
        shard = context.services.groups.find(asked.group_id).shard
    except PenstockError as error:
        error_code = code_of(error)
        if context.version >= TOP_ERROR_FROM:
            return (), error_code
        return tuple(_topic_refused(shape, topic, error_code) for topic in asked.topics), ErrorCode.none
    found = _Offsets(asked.group_id, shard, require_stable)
    if asked.topics is None:
        return _all(shape, found, context), ErrorCode.none
    return tuple(_topic(shape, found, topic, context) for topic in asked.topics), ErrorCode.none


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
