"""OffsetCommit (key 8), versions 2-10, flexible from 8.

Behaviour: keeps offsets for a group; a member commits in its generation, a client outside of any group to an empty one.
    Errors are per partition; the answer waits for the records.
Versions: 5 no retention time; 6 leader epoch; 7 static members; 8 flexible; 9 new error codes; 10 topic ids.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import MessageTooLargeError, PenstockError, RecordListTooLargeError
from penstock.coordinator.groups.messages import Asker, Commit
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, check_topic, code, milliseconds, topic_name
from penstock.replication.errors import UnknownTopicOrPartitionError

Outcomes = dict[tuple[int, int], PenstockError | None]
"""By the places of topic and partition in the request: a request may name a partition twice."""


def handle_offset_commit(request: Any, context: Context) -> Any:
    groups = context.services.groups
    outcomes: Outcomes = {}
    commits: list[Commit] = []
    places: list[tuple[int, int]] = []
    try:
        check_group(context, Action.READ, request.group_id)
        led = groups.find(request.group_id)
        for number, topic in enumerate(request.topics):
            _add_commits(number, topic, context, outcomes, commits, places)
        asker = Asker(
            request.member_id, getattr(request, "group_instance_id", None), request.generation_id_or_member_epoch
        )
        retention = getattr(request, "retention_time", None)
        retention_ms = -1 if retention is None else milliseconds(retention)
        decision, decided = led.shard.commit(request.group_id, asker, commits, retention_ms)
    except PenstockError as error:
        return _answer(request, outcomes, error, context)
    outcomes.update((place, one.error) for place, one in zip(places, decided, strict=True))
    pending: Pending[Any] = Pending()
    groups.run(led, decision, lambda error: pending.resolve(_answer(request, outcomes, error, context)))
    return pending


def _add_commits(
    number: int,
    topic: Any,
    context: Context,
    outcomes: Outcomes,
    commits: list[Commit],
    places: list[tuple[int, int]],
) -> None:
    try:
        name = topic_name(topic, context)
        check_topic(context, Action.READ, name)
    except PenstockError as error:
        outcomes.update(((number, index), error) for index in range(len(topic.partitions)))
        return
    for index, entry in enumerate(topic.partitions):
        if context.services.image.partition(name, entry.partition_index) is None:
            missing = UnknownTopicOrPartitionError(f"there is no partition {entry.partition_index} of topic {name}")
            outcomes[number, index] = missing
            continue
        epoch = getattr(entry, "committed_leader_epoch", -1)
        commits.append(
            Commit(name, entry.partition_index, entry.committed_offset, epoch, entry.committed_metadata or "")
        )
        places.append((number, index))


def _answer(request: Any, outcomes: Outcomes, failure: PenstockError | None, context: Context) -> Any:
    topics = answer_topics(request, outcomes, failure, context)
    return context.response.make(throttle_time=timedelta(), topics=topics)


def answer_topics(
    request: Any,
    outcomes: Outcomes,
    failure: PenstockError | None,
    context: Context,
    failure_code: ErrorCode | None = None,
) -> tuple[Any, ...]:
    """Each partition's own error, or that of the whole request."""
    response = context.response
    whole = code(failure) if failure_code is None else failure_code
    if isinstance(failure, MessageTooLargeError | RecordListTooLargeError):
        whole = ErrorCode.invalid_commit_offset_size
    topics = []
    for number, topic in enumerate(request.topics):
        partitions = tuple(
            response.topics.partitions.make(
                partition_index=entry.partition_index,
                error_code=whole if outcomes.get((number, index)) is None else code(outcomes[number, index]),
            )
            for index, entry in enumerate(topic.partitions)
        )
        topics.append(
            response.topics.make(
                name=getattr(topic, "name", None), topic_id=getattr(topic, "topic_id", None), partitions=partitions
            )
        )
    return tuple(topics)
