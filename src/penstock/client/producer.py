"""A transactional producer's requests: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), TxnOffsetCommit (28)
and EndTxn (26), in the versions before KIP-890's second part: partitions are added by name, and an end bumps no epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.coordinators import GROUP, TRANSACTION, again, coordinator
from penstock.client.errors import AnswerError, UnreachableError
from penstock.client.groups import offset_topics
from penstock.client.messages import call_codec

T = TypeVar("T")


class Producer(NamedTuple):
    """Whoever holds these three may write in the transaction and end it, from any process."""

    transactional_id: str
    """Empty for one without transactions."""
    producer_id: int
    epoch: int


def begin(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Producer:
    """Shuts out every earlier producer of this id; its open transaction is aborted before this returns."""

    def ask(connection: Connection) -> Producer:
        version = connection.version(22, "InitProducerId", 0, 5)
        request = call_codec(22, version).request.make(
            transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms),
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = connection.call(22, version, request)
        _check(answer.error_code, f"InitProducerId of {transactional_id}")
        return Producer(transactional_id, answer.producer_id, answer.producer_epoch)

    return _ask(cluster, transactional_id, TRANSACTION, ask)


def begin_idempotent(cluster: Cluster) -> Producer:
    """A producer whose batches a leader appends once and in order, without transactions."""

    def ask() -> Producer:
        brokers = cluster.metadata(()).brokers
        with cluster.connection(next(iter(brokers))) as connection:
            version = connection.version(22, "InitProducerId", 0, 5)
            request = call_codec(22, version).request.make(
                transactional_id=None, transaction_timeout=timedelta(minutes=1), producer_id=-1, producer_epoch=-1
            )
            answer = connection.call(22, version, request)
        _check(answer.error_code, "InitProducerId")
        return Producer("", answer.producer_id, answer.producer_epoch)

    return again(cluster, ask)


def add_partitions(cluster: Cluster, producer: Producer, partitions: Iterable[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)

    def ask(connection: Connection) -> None:
        version = connection.version(24, "AddPartitionsToTxn", 0, 3)
        shape = call_codec(24, version).request
        named = [
            shape.v3_and_below_topics.make(name=name, partitions=tuple(numbers)) for name, numbers in by_topic.items()
        ]
        request = shape.make(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=tuple(named),
        )
        for topic in connection.call(24, version, request).results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                where = f"transaction {producer.transactional_id}, {topic.name}-{one.partition_index}"
                _check(one.partition_error_code, where)

    _ask(cluster, producer.transactional_id, TRANSACTION, ask)


def add_offsets(cluster: Cluster, producer: Producer, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Group offsets that count if, and as soon as, the transaction is committed."""

    def announce(connection: Connection) -> None:
        version = connection.version(25, "AddOffsetsToTxn", 0, 3)
        request = call_codec(25, version).request.make(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )
        answer = connection.call(25, version, request)
        _check(answer.error_code, f"transaction {producer.transactional_id}, offsets of group {group_id}")

    def commit(connection: Connection) -> None:
        version = connection.version(28, "TxnOffsetCommit", 0, 3)
        answer = connection.call(28, version, _offsets_request(version, producer, group_id, offsets))
        for topic in answer.topics:
            for one in topic.partitions:
                _check(one.error_code, f"transaction {producer.transactional_id}, offset of group {group_id}")

    _ask(cluster, producer.transactional_id, TRANSACTION, announce)
    _ask(cluster, group_id, GROUP, commit)


def _offsets_request(version: int, producer: Producer, group_id: str, offsets: Mapping[TopicPartition, int]) -> Any:
    shape = call_codec(28, version).request
    return shape.make(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=offset_topics(shape, offsets),
    )


def commit(cluster: Cluster, producer: Producer) -> None:
    """Once this was sent the transaction may be committed, whatever comes back; asking again does no harm."""
    _end(cluster, producer, committed=True)


def abort(cluster: Cluster, producer: Producer) -> None:
    _end(cluster, producer, committed=False)


def _end(cluster: Cluster, producer: Producer, *, committed: bool) -> None:
    def ask(connection: Connection) -> None:
        version = connection.version(26, "EndTxn", 0, 3)
        request = call_codec(26, version).request.make(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        answer = connection.call(26, version, request)
        _check(answer.error_code, f"{'commit' if committed else 'abort'} of transaction {producer.transactional_id}")

    _ask(cluster, producer.transactional_id, TRANSACTION, ask)


def _check(code: int, where: str) -> None:
    if code != ErrorCode.none:
        raise AnswerError(where, code)


def _ask(cluster: Cluster, name: str, kind: int, ask: Callable[[Connection], T]) -> T:
    """Again while the coordinator moves, or is busy with the end of the transaction before."""
    attempts = cluster.attempts()
    while True:
        try:
            with cluster.connection(coordinator(cluster, name, kind)) as connection:
                return ask(connection)
        except AnswerError as error:
            if error.code == ErrorCode.concurrent_transactions:
                attempts.wait(error)
            else:
                attempts.failed(error)
        except UnreachableError as error:
            attempts.failed(error)
