"""TxnOffsetCommit (key 28), versions 0-5, flexible from 3.

Behaviour: keeps offsets for a group that count when the transaction commits. The group's partition of `__consumer_offsets`
    must be part of the transaction; from version 5 on this makes it one. Errors are per partition.
Versions: 2 leader epoch; 3 flexible, the group's member and generation (KIP-447); 4 TRANSACTION_ABORTABLE; 5 transactions V2.
Differs from Kafka: a stale epoch under a transactional id that is not the producer's is INVALID_PRODUCER_ID_MAPPING instead of
    INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import InvalidProducerEpochError, InvalidTxnStateError, PenstockError
from penstock.base.ids import TopicPartition
from penstock.coordinator.errors import CoordinatorLoadInProgressError
from penstock.coordinator.groups.messages import Asker, Commit, Writer
from penstock.coordinator.transactions.errors import ProducerFencedError, TransactionAbortableError
from penstock.coordinator.transactions.messages import ProducerStamp
from penstock.handlers import verification
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action
from penstock.handlers.groups import check_group, check_topic
from penstock.handlers.offset_commit import Outcomes, answer_topics
from penstock.handlers.transactions import at_once_or_later, check_transactional_id
from penstock.replication.errors import UnknownTopicOrPartitionError

LOADING_FROM, ABORTABLE_FROM, ADDS_FROM = 2, 4, 5


def handle_txn_offset_commit(request: Any, context: Context) -> Any:
    outcomes: Outcomes = {}
    try:
        check_transactional_id(context, Action.WRITE, request.transactional_id)
        check_group(context, Action.READ, request.group_id)
        commits, places = _commits(request, context, outcomes)
    except PenstockError as error:
        return _answer(request, outcomes, error, context)
    if not commits:
        return _answer(request, outcomes, None, context)

    def start(done: Callable[[Any], None]) -> None:
        def end(error: PenstockError | None) -> None:
            done(_answer(request, outcomes, error, context))

        _verified(
            request,
            context,
            lambda error: end(error) if error else _commit(request, context, outcomes, commits, places, end),
        )

    return at_once_or_later(start)


def _commits(request: Any, context: Context, outcomes: Outcomes) -> tuple[list[Commit], list[tuple[int, int]]]:
    commits: list[Commit] = []
    places: list[tuple[int, int]] = []
    for number, topic in enumerate(request.topics):
        try:
            check_topic(context, Action.READ, topic.name)
        except PenstockError as error:
            outcomes.update(((number, index), error) for index in range(len(topic.partitions)))
            continue
        for index, entry in enumerate(topic.partitions):
            if context.services.image.partition(topic.name, entry.partition_index) is None:
                missing = UnknownTopicOrPartitionError(f"{topic.name} has no partition {entry.partition_index}")
                outcomes[number, index] = missing
                continue
            epoch = getattr(entry, "committed_leader_epoch", -1)
            note = entry.committed_metadata or ""
            commits.append(Commit(topic.name, entry.partition_index, entry.committed_offset, epoch, note))
            places.append((number, index))
    return commits, places


def _verified(request: Any, context: Context, then: Callable[[PenstockError | None], object]) -> None:
    """Calls back when the group's partition is known to be part of the transaction, or not."""
    services = context.services
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    try:
        partition = services.groups.find_for_member(request.group_id).partition
    except PenstockError as error:
        then(error)
        return
    if partition.is_in_transaction(*producer):
        then(None)
        return
    guard = partition.verifications.begin(*producer)

    def answered(outcomes: dict[TopicPartition, PenstockError | None]) -> None:
        error = verification.why_refused(partition, producer, guard, outcomes[partition.topic_partition])
        then(None if error is None else _for_producers(error, context.version))

    adds = context.version >= ADDS_FROM
    verification.ask(services, request.transactional_id, producer, (partition.topic_partition,), answered, add=adds)


def _commit(
    request: Any,
    context: Context,
    outcomes: Outcomes,
    commits: list[Commit],
    places: list[tuple[int, int]],
    end: Callable[[PenstockError | None], None],
) -> None:
    groups = context.services.groups
    asker = Asker(
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
    )
    writer = Writer(request.producer_id, request.producer_epoch)
    try:
        led = groups.find(request.group_id)
        decision, decided = led.shard.commit_in_transaction(request.group_id, asker, commits, writer)
    except PenstockError as error:
        end(error)
        return
    outcomes.update((place, one.error) for place, one in zip(places, decided, strict=True))
    groups.run(led, decision, end)
    led.partition.verifications.end(request.producer_id)


def _for_producers(error: PenstockError, version: int) -> PenstockError:
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    if isinstance(error, TransactionAbortableError) and version < ABORTABLE_FROM:
        return InvalidTxnStateError(str(error))
    return error


def _answer(request: Any, outcomes: Outcomes, failure: PenstockError | None, context: Context) -> Any:
    code = None
    if isinstance(failure, CoordinatorLoadInProgressError) and context.version < LOADING_FROM:
        code = ErrorCode.coordinator_not_available  # older producers do not survive the right one (KAFKA-7296)
    topics = answer_topics(request, outcomes, failure, context, code)
    return context.response.make(throttle_time=timedelta(), topics=topics)
