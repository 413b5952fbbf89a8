"""Transactional clients of others against a real `penstock serve`: librdkafka, Java in both protocols, Apache's tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.compat.test_groups import create, fill
from tests.support import dump_log, judges
from tests.support.kafka_jvm import VERSIONS, run_main
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import TransactionRequests, connection_to

from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.transactions import describe_transaction

QUICK = {
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "200",
}
TOOLS = "org.apache.kafka.tools"


def producer_of(servers: str, transactional_id: str = "x", timeout_ms: int = 60_000) -> Producer:
    return Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    )


def read(servers: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[list[bytes]]:
    """What each partition shows, to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    left = partitions
    while left:
        message = consumer.poll(30)
        assert message is not None, "nothing came"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left -= 1
            continue
        value, number = message.value(), message.partition()
        assert value is not None
        assert number is not None
        found[number].append(value)
    consumer.close()
    return found


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 2)
        producer = producer_of(servers)
        producer.init_transactions(30)
        group = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        for number in range(6):
            producer.begin_transaction()
            for place in range(10):
                producer.produce("t", b"%d-%d" % (number, place), partition=place % 2)
            assert producer.flush(30) == 0
            producer.send_offsets_to_transaction([TopicPartition("t", 0, number)], group.consumer_group_metadata(), 30)
            if number % 3:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        kept = [[b"%d-%d" % (number, place) for number in (0, 3) for place in range(one, 10, 2)] for one in (0, 1)]
        assert read(servers, "t", 2) == kept
        assert sum(map(len, read(servers, "t", 2, "read_uncommitted"))) == 60
        assert group.committed([TopicPartition("t", 0)], 30)[0].offset == 3
        group.close()
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_a_twin_fences_the_first_and_its_open_transaction_is_aborted(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 1)
        first = producer_of(servers)
        first.init_transactions(30)
        first.begin_transaction()
        first.produce("t", b"lost", partition=0)
        assert first.flush(30) == 0
        second = producer_of(servers)
        second.init_transactions(30)
        with pytest.raises(KafkaException) as refused:
            first.commit_transaction(30)
        assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
        second.begin_transaction()
        second.produce("t", b"kept", partition=0)
        second.commit_transaction(30)
        assert read(servers, "t", 1) == [[b"kept"]]
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_a_producer_that_vanishes_leaves_nothing_open_past_its_timeout(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 1)
        producer = producer_of(servers, timeout_ms=1_000)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"lost", partition=0)
        assert producer.flush(30) == 0
        connection = connection_to(servers)
        requests = TransactionRequests(connection.call)
        wait_until(lambda: requests.states().get("x") == "CompleteAbort", seconds=60, what="the transaction is aborted")
        assert requests.end_offset("t", 0, committed=True) == 2
        connection.close()
        assert read(servers, "t", 1) == [[]]
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def copy(version: str, servers: str, source: str, target: str, count: int, *, aborts: bool = True) -> dict[str, int]:
    """One stage of a chain: Apache's copier moves a partition's records in transactions, some of them aborted."""
    said = run_main(
        version,
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", servers, "--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--max-messages", str(count), "--consumer-group", f"{source}-group", "--transaction-size", "20"),
        *("--transactional-id", f"{source}-copier", "--use-group-metadata"),
        *(("--enable-random-aborts",) if aborts else ()),
    )
    last: dict[str, int] = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
    return last


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_copier_loses_and_repeats_nothing_in_either_protocol(tmp_path: Path, version: str) -> None:
    judges.require(f"kafka-{version}")
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        for topic in ("one", "two"):
            create(servers, topic, 1)
        fill(servers, "one", 200, 1)
        assert copy(version, servers, "one", "two", 200)["consumed"] >= 200
        assert read(servers, "two", 1) == [[b"%d" % number for number in range(200)]]
        with Cluster(client_config({"bootstrap.servers": servers})) as cluster:
            described = describe_transaction(cluster, "one-copier")
        # Every end raises the epoch in the newer protocol, and in the newer one only.
        assert described.producer_epoch >= 10 if version == "4.3" else described.producer_epoch == 0
        assert described.state == "CompleteCommit"
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    dumps = [
        dump_log.dump_directory(version, path, "--transaction-log-decoder")
        for path in sorted(broker.data.glob("__transaction_state-*"))
    ]
    assert [dump.complaints for dump in dumps] == [""] * 3


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_transactions_tool_lists_describes_finds_and_aborts(tmp_path: Path, version: str) -> None:
    judges.require(f"kafka-{version}")
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 1)
        producer = producer_of(servers)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"open", partition=0)
        assert producer.flush(30) == 0

        def tool(*arguments: str) -> list[list[str]]:
            said = run_main(version, f"{TOOLS}.TransactionsCommand", "--bootstrap-server", servers, *arguments)
            return [line.split() for line in said.splitlines()]

        listed = tool("list")
        assert [row[0] for row in listed[1:]] == ["x"]
        assert listed[1][-1] == "Ongoing"
        described = tool("describe", "--transactional-id", "x")
        assert described[1][1:2] == ["x"]
        assert described[1][-1] == "t-0"
        producers = tool("describe-producers", "--topic", "t", "--partition", "0")
        assert producers[1][-1] == "0", "the open transaction begins at offset 0"
        assert len(tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")) == 1
        tool("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert read(servers, "t", 1) == [[]]
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
