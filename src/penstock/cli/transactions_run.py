"""What `penstock transactions` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kio.schema.errors import ErrorCode

from penstock.base.clock import SystemClock
from penstock.base.ids import TopicPartition
from penstock.cli.cluster import open_cluster
from penstock.cli.output import Output
from penstock.client import transactions
from penstock.client.cluster import Cluster
from penstock.client.errors import AnswerError
from penstock.client.transactions import PartitionProducer

OK, FOUND = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRow:
    kind: ClassVar[str] = "transaction"
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDetails:
    kind: ClassVar[str] = "transaction_details"
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingRow:
    kind: ClassVar[str] = "hanging_transaction"
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int


def run_list(servers: str, states: Sequence[str], longer_than_ms: int, output: Output) -> int:
    with open_cluster(servers) as cluster:
        found = transactions.list_transactions(cluster, states=states, longer_than_ms=longer_than_ms)
    rows = [
        TransactionRow(
            transactional_id=one.transactional_id,
            coordinator=one.coordinator,
            producer_id=one.producer_id,
            state=one.state,
        )
        for one in found
    ]
    output.table("", rows)
    if not rows:
        output.say("no transactional ids")
    return OK


def run_describe(servers: str, transactional_id: str, output: Output) -> int:
    with open_cluster(servers) as cluster:
        one = transactions.describe_transaction(cluster, transactional_id)
    details = TransactionDetails(
        transactional_id=one.transactional_id,
        coordinator=one.coordinator,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        state=one.state,
        timeout_ms=one.timeout_ms,
        start_ms=one.start_ms,
        partitions=tuple(map(str, one.partitions)),
    )
    output.table("", [details])
    return OK


def run_abort(servers: str, transactional_id: str, output: Output) -> int:
    with open_cluster(servers) as cluster:
        before = transactions.describe_transaction(cluster, transactional_id)
        transactions.fence(cluster, transactional_id)
    ended = "its transaction is aborted, " if before.state == "Ongoing" else "no transaction was open, "
    output.say(f"{transactional_id}: {ended}its producer is fenced")
    return OK


def run_abort_hanging(servers: str, topic: str, partition: int, start_offset: int, output: Output) -> int:
    place = TopicPartition(topic, partition)
    with open_cluster(servers) as cluster:
        for one in transactions.partition_producers(cluster, (place,)):
            if one.transaction_start_offset == start_offset:
                transactions.write_abort_marker(cluster, one)
                output.say(f"{place}: the transaction of producer {one.producer_id} from {start_offset} on is aborted")
                return OK
    output.say(f"{place}: no transaction is open from offset {start_offset} on")
    return FOUND


def run_find_hanging(servers: str, topic: str | None, timeout_ms: int, output: Output) -> int:
    with open_cluster(servers) as cluster:
        hanging = list(_hanging(cluster, topic, timeout_ms))
    rows = [
        HangingRow(
            topic=one.partition.topic,
            partition=one.partition.partition,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            start_offset=one.transaction_start_offset,
            last_timestamp_ms=one.last_timestamp_ms,
        )
        for one in hanging
    ]
    output.table("", rows)
    if not rows:
        output.say("nothing hangs")
    return FOUND if rows else OK


def _hanging(cluster: Cluster, topic: str | None, timeout_ms: int) -> Iterator[PartitionProducer]:
    """Open on a partition, silent for longer than any transaction may last, and not part of what its coordinator knows."""
    oldest_ms = SystemClock().wall_ms() - timeout_ms
    topics = cluster.metadata().topics if topic is None else cluster.topics((topic,))
    places = [TopicPartition(name, number) for name, one in sorted(topics.items()) for number in one.partitions]
    for one in transactions.partition_producers(cluster, places):
        if one.transaction_start_offset < 0 or one.last_timestamp_ms > oldest_ms:
            continue
        if not _is_known(cluster, one):
            yield one


def _is_known(cluster: Cluster, producer: PartitionProducer) -> bool:
    for listed in transactions.list_transactions(cluster, producer_ids=(producer.producer_id,)):
        try:
            described = transactions.describe_transaction(cluster, listed.transactional_id)
        except AnswerError as error:
            if error.code == ErrorCode.transactional_id_not_found:
                continue
            raise
        # A prepared one loses its partitions as its markers are written: it will be ended either way.
        if described.state.startswith("Prepare") or producer.partition in described.partitions:
            return True
    return False
