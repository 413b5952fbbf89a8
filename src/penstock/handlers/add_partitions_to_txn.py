"""AddPartitionsToTxn (key 24), versions 0-5, flexible from 3.

Behaviour: partitions become part of a transaction, all or none of them; `verify_only` asks whether they are.
Versions: 2 PRODUCER_FENCED; 3 flexible; 4 many transactions, from brokers only (CLUSTER_ACTION), `verify_only` (KIP-890);
    5 transactions V2.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import InvalidRequestError
from penstock.coordinator.transactions.messages import AddPartitions, ProducerStamp
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import ClusterAuthorisationError, TopicAuthorisationError
from penstock.handlers.groups import may_topic
from penstock.handlers.missing import why_missing
from penstock.handlers.transactions import at_once_or_later, check_transactional_id, client_code, named_partitions
from penstock.metadata.image import INTERNAL_TOPICS

FENCED_FROM, BROKERS_FROM, BUMPS_FROM = 2, 4, 5

Codes = dict[TopicPartition, ErrorCode]


class _Asked(NamedTuple):
    transactional_id: str
    producer: ProducerStamp
    verify_only: bool
    partitions: tuple[TopicPartition, ...]


def handle_add_partitions_to_txn(request: Any, context: Context) -> Any:
    if context.version < BROKERS_FROM:
        asked = _Asked(
            request.v3_and_below_transactional_id,
            ProducerStamp(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            False,
            tuple(named_partitions(request.v3_and_below_topics)),
        )
        return at_once_or_later(lambda done: _add(asked, context, lambda codes: done(_answer_one(context, codes))))
    allows = context.services.authoriser.allows
    if not allows(context.peer.principal, Action.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        refusal = ClusterAuthorisationError(f"{context.peer.principal} is no broker")
        return context.response.make(throttle_time=timedelta(), error_code=code_of(refusal), results_by_transaction=())
    every = [
        _Asked(
            one.transactional_id,
            ProducerStamp(one.producer_id, one.producer_epoch),
            one.verify_only,
            tuple(named_partitions(one.topics)),
        )
        for one in request.transactions
    ]
    return at_once_or_later(partial(_add_all, every, context))


def _add_all(every: Sequence[_Asked], context: Context, done: Callable[[Any], None]) -> None:
    results: dict[str, Codes] = {}
    open_count = len(every)

    def added(transactional_id: str, codes: Codes) -> None:
        nonlocal open_count
        open_count -= 1
        results.setdefault(transactional_id, {}).update(codes)
        if not open_count:
            done(_answer_many(context, results))

    if not every:
        done(_answer_many(context, results))
    for asked in every:
        _add(asked, context, partial(added, asked.transactional_id))


def _add(asked: _Asked, context: Context, then: Callable[[Codes], object]) -> None:
    def finish(error: PenstockError | None) -> None:
        code = ErrorCode.none if error is None else client_code(error, context, FENCED_FROM)
        then(dict.fromkeys(asked.partitions, code))

    try:
        if context.version < BROKERS_FROM:
            check_transactional_id(context, Action.WRITE, asked.transactional_id)
        refused = _refused(asked.partitions, context)
        if refused:
            # One that is refused keeps all of them out.
            then({one: refused.get(one, ErrorCode.operation_not_attempted) for one in asked.partitions})
            return
        if asked.transactional_id == "":
            raise InvalidRequestError("a transactional id is not empty")
        transactions = context.services.transactions
        if asked.verify_only:
            shard = transactions.find(asked.transactional_id).shard
            verified = shard.verify(asked.transactional_id, asked.producer, asked.partitions)
            then({one: ErrorCode.none if error is None else code_of(error) for one, error in verified.items()})
            return
    except PenstockError as error:
        finish(error)
        return
    client_version = 2 if context.version >= BUMPS_FROM else 0
    wanted = AddPartitions(asked.transactional_id, asked.producer, asked.partitions, client_version)
    transactions.add_partitions(wanted, finish)


def _refused(partitions: Sequence[TopicPartition], context: Context) -> Codes:
    refused: Codes = {}
    for topic_partition in partitions:
        topic, number = topic_partition
        if context.version < BROKERS_FROM and (topic in INTERNAL_TOPICS or not may_topic(context, Action.WRITE, topic)):
            refusal: PenstockError = TopicAuthorisationError(f"{context.peer.principal} may not write topic {topic}")
            refused[topic_partition] = code_of(refusal)
        elif context.services.image.partition(topic, number) is None:
            refused[topic_partition] = code_of(why_missing(context.services, topic, number))
    return refused


def _by_topic(codes: Mapping[TopicPartition, ErrorCode], shape: Any) -> tuple[Any, ...]:
    topics: dict[str, list[Any]] = {}
    for (topic, number), code in codes.items():
        result = shape.results_by_partition.make(partition_index=number, partition_error_code=code)
        topics.setdefault(topic, []).append(result)
    return tuple(shape.make(name=name, results_by_partition=tuple(results)) for name, results in topics.items())


def _answer_one(context: Context, codes: Codes) -> Any:
    response = context.response
    topics = _by_topic(codes, response.results_by_topic_v3_and_below)
    return response.make(throttle_time=timedelta(), results_by_topic_v3_and_below=topics)


def _answer_many(context: Context, results: Mapping[str, Codes]) -> Any:
    response = context.response
    shape = response.results_by_transaction
    answers = tuple(
        shape.make(transactional_id=name, topic_results=_by_topic(codes, shape.topic_results))
        for name, codes in results.items()
    )
    return response.make(throttle_time=timedelta(), error_code=ErrorCode.none, results_by_transaction=answers)
