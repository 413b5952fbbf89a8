"""A group begun at Apache Kafka goes on here, over the same directory, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from tests.compat.test_groups import consumer_of, create, fill
from tests.support import judges
from tests.support.kafka_jvm import VERSIONS, KafkaBroker
from tests.support.served_broker import ServedBroker


def read_from(servers: str, offset: int) -> None:
    """The group resumes at `offset`, and commits ten more."""
    consumer = consumer_of(servers)
    consumer.subscribe(["t"])
    message = consumer.poll(40)
    assert message is not None
    assert message.error() is None
    assert message.offset() == offset
    consumer.commit(offsets=[TopicPartition("t", 0, offset + 10)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_of_kafka_are_taken_over_and_given_back(tmp_path: Path, version: str) -> None:
    judges.require(f"kafka-{version}")
    kafka = KafkaBroker(version, tmp_path / "kafka")
    with kafka:
        create(kafka.bootstrap_servers, "t", 1)
        fill(kafka.bootstrap_servers, "t", 100, 1)
        read_from(kafka.bootstrap_servers, 0)
    properties = kafka.log_dir / "meta.properties"
    as_kafka_left_it = properties.read_bytes()
    (tmp_path / "ours").mkdir()
    with ServedBroker(tmp_path / "ours", group_initial_rebalance_delay_ms="0") as broker:
        broker.stop()
        broker.data = kafka.log_dir
        broker.start()
        read_from(broker.bootstrap_servers, 10)
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    properties.write_bytes(as_kafka_left_it)  # a broker with ZooKeeper refuses version 1
    with kafka:
        read_from(kafka.bootstrap_servers, 20)
