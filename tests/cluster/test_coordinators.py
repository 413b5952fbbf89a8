"""Groups and transactions go on after the broker of their coordinator is killed."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.support.cluster_load import QUICK_TO_NOTICE, WAIT_SECONDS, leader_of, make_topic, wait_for_isr
from tests.support.processes import wait_until

from penstock.testing import Cluster

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        **QUICK_TO_NOTICE,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
    ) as cluster:
        yield cluster


def test_a_group_goes_on_where_it_committed(cluster: Cluster) -> None:
    make_topic(cluster, "grouped", partitions=1)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            **QUIET,
        }
    )
    try:
        place = TopicPartition("grouped", 0, 17)
        wait_until(lambda: _commit(consumer, place), seconds=WAIT_SECONDS, what="the first commit")
        coordinator = leader_of(cluster, "__consumer_offsets")
        wait_for_isr(cluster, "__consumer_offsets", 3)
        cluster.kill(coordinator)
        wait_until(
            lambda: _committed(consumer, place) == 17, seconds=WAIT_SECONDS, what="the commit is known elsewhere"
        )
        place.offset = 18
        wait_until(lambda: _commit(consumer, place), seconds=WAIT_SECONDS, what="a commit at the next coordinator")
        assert leader_of(cluster, "__consumer_offsets") != coordinator
        cluster.start_broker(coordinator)
        wait_for_isr(cluster, "__consumer_offsets", 3)
        assert _committed(consumer, place) == 18
    finally:
        consumer.close()


def _commit(consumer: Consumer, place: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException:
        return False
    return True


def _committed(consumer: Consumer, place: TopicPartition) -> int:
    try:
        (found,) = consumer.committed([TopicPartition(place.topic, place.partition)], timeout=10)
    except KafkaException:
        return -1
    return int(found.offset)


def test_a_transaction_that_is_open_when_its_coordinator_dies_is_committed_whole(cluster: Cluster) -> None:
    make_topic(cluster, "written", partitions=3)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "x",
            "transaction.timeout.ms": 120_000,
            "message.timeout.ms": 100_000,
            **QUIET,
        }
    )
    producer.init_transactions(WAIT_SECONDS)
    _write(producer, "first")
    producer.commit_transaction(WAIT_SECONDS)
    _write(producer, "aborted")
    producer.abort_transaction(WAIT_SECONDS)
    coordinator = leader_of(cluster, "__transaction_state")
    wait_for_isr(cluster, "__transaction_state", 3)
    wait_for_isr(cluster, "written", 3)
    _write(producer, "second")
    producer.flush(WAIT_SECONDS)
    cluster.kill(coordinator)
    producer.commit_transaction(WAIT_SECONDS)
    _write(producer, "third")
    producer.commit_transaction(WAIT_SECONDS)
    assert leader_of(cluster, "__transaction_state") != coordinator
    cluster.start_broker(coordinator)
    expected = sorted(f"{name} {number}" for name in ("first", "second", "third") for number in range(9))
    assert _read_committed(cluster, len(expected)) == expected


def _write(producer: Producer, name: str) -> None:
    producer.begin_transaction()
    for number in range(9):
        producer.produce("written", f"{name} {number}".encode(), partition=number % 3)


def _read_committed(cluster: Cluster, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    values: list[str] = []
    ended: set[int | None] = set()
    try:
        consumer.assign([TopicPartition("written", partition, 0) for partition in range(3)])

        def read() -> bool:
            """To the end of every partition, and until no more transactions are on their way to it."""
            for message in consumer.consume(100, 1):
                if message.error() is None:
                    values.append((message.value() or b"").decode())
                else:
                    ended.add(message.partition())
            return len(ended) == 3 and len(values) >= count

        wait_until(read, seconds=WAIT_SECONDS, what=f"{count} committed records")
    finally:
        consumer.close()
    return sorted(values)
