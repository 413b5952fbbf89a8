"""Transactions as an operator sees them: ListTransactions (66), DescribeTransactions (65), DescribeProducers (61), and their
ends by force: InitProducerId (22) through the coordinator, WriteTxnMarkers (27) past it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.coordinators import TRANSACTION, again, coordinator
from penstock.client.errors import AnswerError, ClientError
from penstock.client.messages import call_codec
from penstock.client.producer import begin
from penstock.protocol.cursor import Cursor
from penstock.protocol.errors import MalformedMessageError

_LIST, _DESCRIBE, _PRODUCERS, _MARKERS = 66, 65, 61, 27
_FENCE_TIMEOUT_MS = 60_000
_ENDING_POLL_MS = 2


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class DescribedTransaction(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """-1 where none began."""
    partitions: tuple[TopicPartition, ...]


class PartitionProducer(NamedTuple):
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    transaction_start_offset: int
    """-1 where no transaction is open."""


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
) -> list[ListedTransaction]:
    """Those of every broker."""
    found: list[ListedTransaction] = []
    for node in cluster.metadata(()).brokers:
        with cluster.connection(node) as connection:
            version = connection.version(_LIST, "ListTransactions", 1 if longer_than_ms >= 0 else 0, 2)
            request = call_codec(_LIST, version).request.make(
                state_filters=tuple(states),
                producer_id_filters=tuple(producer_ids),
                duration_filter=longer_than_ms,
                transactional_id_pattern=None,
            )
            answer = connection.call(_LIST, version, request)
        if answer.error_code != 0:
            raise AnswerError(f"broker {cluster.address(node)}, ListTransactions", answer.error_code)
        if answer.unknown_state_filters:
            raise ClientError(f"{answer.unknown_state_filters[0]} is no state of a transaction")
        found += (
            ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, node)
            for one in answer.transaction_states
        )
    return sorted(found)


def describe_transaction(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """One id, by its coordinator; AnswerError TRANSACTIONAL_ID_NOT_FOUND where nobody used it lately."""

    def ask() -> DescribedTransaction:
        node = coordinator(cluster, transactional_id, TRANSACTION)
        with cluster.connection(node) as connection:
            version = connection.version(_DESCRIBE, "DescribeTransactions", 0, 0)
            codec = call_codec(_DESCRIBE, version)
            request = codec.request.make(transactional_ids=(transactional_id,))
            connection.send(_DESCRIBE, version, codec.encode(request), is_flexible=codec.is_flexible)
            code, described = _read_description(connection.receive().body, node)
        if code != 0:
            raise AnswerError(f"broker {cluster.address(node)}, transactional id {transactional_id}", code)
        return described

    return again(cluster, ask)


def _read_description(body: bytes, node: int) -> tuple[int, DescribedTransaction]:
    """By hand: kio refuses the -1 with which a transaction that never began says when."""
    cursor = Cursor(body, 0, flexible=True)

    def topic(cursor: Cursor) -> list[TopicPartition]:
        name, numbers = cursor.string(), cursor.list(Cursor.int32) or []
        cursor.tags()
        return [TopicPartition(name, number) for number in numbers]

    def state(cursor: Cursor) -> tuple[int, DescribedTransaction]:
        code, transactional_id, label = cursor.int16(), cursor.string(), cursor.string()
        timeout_ms, start_ms, producer_id, epoch = cursor.int32(), cursor.int64(), cursor.int64(), cursor.int16()
        topics = cursor.list(topic) or []
        cursor.tags()
        partitions = tuple(sorted(one for partitions in topics for one in partitions))
        return code, DescribedTransaction(
            transactional_id, node, producer_id, epoch, label, timeout_ms, start_ms, partitions
        )

    try:
        cursor.int32()  # throttle time
        states = cursor.list(state) or []
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"no answer of DescribeTransactions: {error}") from None
    if len(states) != 1:
        raise MalformedMessageError(f"one transactional id was asked for, {len(states)} came")
    return states[0]


def partition_producers(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Iterator[PartitionProducer]:
    """What the leaders of these partitions remember of their producers."""
    for partition in partitions:
        node = cluster.leader(partition).node
        with cluster.connection(node) as connection:
            version = connection.version(_PRODUCERS, "DescribeProducers", 0, 0)
            shape = call_codec(_PRODUCERS, version).request
            topic = shape.topics.make(name=partition.topic, partition_indexes=(partition.partition,))
            answer = connection.call(_PRODUCERS, version, shape.make(topics=(topic,)))
        found = answer.topics[0].partitions[0]
        if found.error_code != 0:
            raise AnswerError(f"broker {cluster.address(node)}, producers of {partition}", found.error_code)
        for one in found.active_producers:
            yield PartitionProducer(
                partition,
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.last_timestamp,
                one.current_txn_start_offset,
            )


def wait_for_markers(cluster: Cluster, transactional_id: str, patience_ms: int) -> bool:
    """Waits until the end of its last transaction stands in every log, so that whoever reads next sees it; whether it does.

    EndTxn is answered when the end is decided. A broker that does not tell of transactions is not waited for.
    """
    clock = cluster.time.clock
    deadline_ms = clock.monotonic_ms() + patience_ms
    try:
        while describe_transaction(cluster, transactional_id).state.startswith("Prepare"):
            if clock.monotonic_ms() >= deadline_ms:
                return False
            cluster.time.sleep(_ENDING_POLL_MS / 1000)
    except ClientError:
        return False
    return True


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Aborts the open transaction of an id, if there is one, and shuts its producer out."""

    begin(cluster, transactional_id, _FENCE_TIMEOUT_MS)


def write_abort_marker(cluster: Cluster, producer: PartitionProducer) -> None:
    """Ends a transaction that hangs on one partition, past the coordinator, which knows nothing of it."""
    node = cluster.leader(producer.partition).node
    with cluster.connection(node) as connection:
        version = connection.version(_MARKERS, "WriteTxnMarkers", 1, 2)
        shape = call_codec(_MARKERS, version).request
        topic = shape.markers.topics.make(
            name=producer.partition.topic, partition_indexes=(producer.partition.partition,)
        )
        marker = shape.markers.make(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            transaction_version=0,
        )
        answer = connection.call(_MARKERS, version, shape.make(markers=(marker,)))
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code != 0:
        raise AnswerError(f"broker {cluster.address(node)}, abort marker for {producer.partition}", code)
