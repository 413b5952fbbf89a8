"""Clients of others produce to and fetch from a real `penstock serve`."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support import dump_log, judges
from tests.support.kafka_jvm import VERSIONS, run_main
from tests.support.served_broker import ServedBroker


def read_all(servers: str, topic: str, count: int, partition: int = 0, **config: str) -> list[Message]:
    """Exactly `count` records from the beginning; the next poll must find the end."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "nobody", "enable.auto.commit": False, **config}
        | {"enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[Message] = []
    while True:
        message = consumer.poll(20)
        assert message is not None, f"{len(found)} of {count} records came"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            if len(found) >= count:
                break
            continue
        found.append(message)
    consumer.close()
    assert len(found) == count
    return found


def test_kcat_produces_and_consumes(tmp_path: Path) -> None:
    judges.require("kcat")
    with ServedBroker(tmp_path) as broker:
        lines = "".join(f"key{n}:value {n}\n" for n in range(500))
        server = ["kcat", "-b", broker.bootstrap_servers, "-t", "kcat"]
        subprocess.run([*server, "-P", "-K:"], input=lines, text=True, check=True, timeout=60)
        read = subprocess.run(
            [*server, "-C", "-e", "-q", "-f", "%o %k:%s\n"], capture_output=True, text=True, check=True, timeout=60
        )
        assert read.stdout == "".join(f"{n} key{n}:value {n}\n" for n in range(500))
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_writes_each_codec_idempotently_and_reads_it_back(tmp_path: Path, codec: str) -> None:
    with ServedBroker(tmp_path) as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "compression.type": codec}
        )
        failures: list[KafkaError] = []
        for number in range(2_000):
            producer.produce(
                "codec",
                b"value %d" % number * 20,
                b"key %d" % number,
                headers=[("number", b"%d" % number)],
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures
        found = read_all(broker.bootstrap_servers, "codec", 2_000)
        assert [message.offset() for message in found] == list(range(2_000))
        assert [message.value() for message in found] == [b"value %d" % number * 20 for number in range(2_000)]
        assert found[77].headers() == [("number", b"77")]
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_topics_are_made_listed_and_removed_by_an_admin(tmp_path: Path) -> None:
    with ServedBroker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("a", 3, 1, config={"segment.bytes": "1048576"}), NewTopic("b", 1, 1)])[
            "a"
        ].result(20)
        with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topics([NewTopic("a", 3, 1)])["a"].result(20)
        listed = admin.list_topics(timeout=20)
        assert {name: len(topic.partitions) for name, topic in listed.topics.items()} == {"a": 3, "b": 1}
        admin.delete_topics(["a"])["a"].result(20)
        assert set(admin.list_topics(timeout=20).topics) == {"b"}
        assert broker.stop() == 0
        broker.start()
        assert set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20).topics) == {"b"}
    assert not (broker.data / "a-0").exists()


def test_a_fetch_for_many_megabytes_comes_through_whole(tmp_path: Path) -> None:
    with ServedBroker(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
        for number in range(300):
            producer.produce("large", bytes([number % 256]) * 100_000)
            producer.poll(0)
        assert producer.flush(60) == 0
        found = read_all(broker.bootstrap_servers, "large", 300)
        assert all(message.value() == bytes([n % 256]) * 100_000 for n, message in enumerate(found))


def test_nonsense_on_one_connection_leaves_the_others_alone(tmp_path: Path) -> None:
    with ServedBroker(tmp_path) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number, nonsense in enumerate(
            (
                b"GET / HTTP/1.1\r\n\r\n",
                b"\x16\x03\x01\x00\x00" * 40,
                b"\x00\x00\x00\x10" + b"\xff" * 16,
                b"\x7f\xff\xff\xff",
                b"\x00\x00\x00\x0f\x00\x03\x00\x01\x00\x00\x00\x01\x00\x01c\x7f\xff\xff\xff",
                b"\x00\x00\x00\x00",
            )
        ):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(nonsense)
                assert connection.recv(100) == b"", nonsense
            producer.produce("t", b"%d" % number)
            assert producer.flush(20) == 0
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_tools_create_write_and_read_what_we_stored(tmp_path: Path, version: str) -> None:
    judges.require(f"kafka-{version}")
    with ServedBroker(tmp_path) as broker:
        server = ["--bootstrap-server", broker.bootstrap_servers]
        tools = "org.apache.kafka.tools"
        run_main(version, f"{tools}.TopicCommand", *server, "--create", "--topic", "perf", "--partitions", "2")
        performance = run_main(
            version,
            f"{tools}.ProducerPerformance",
            *("--topic", "perf", "--num-records", "5000", "--record-size", "200", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "acks=all", "batch.size=4096"),
        )
        assert "5000 records sent" in performance
        described = run_main(version, f"{tools}.TopicCommand", *server, "--describe", "--topic", "perf")
        assert "PartitionCount: 2" in described
        offsets = run_main(version, f"{tools}.GetOffsetShell", *server, "--topic", "perf", "--time", "latest")
        assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 5000
        assert broker.stop() == 0
    for number in (0, 1):
        dumped = dump_log.dump_directory(version, broker.data / f"perf-{number}", "--deep-iteration")
        assert dumped.complaints == ""
