"""Killed with -9 in full load, the broker has every acknowledged record, once, at its offset."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from tests.compat.test_skeleton_clients import read_all
from tests.support.processes import free_port
from tests.support.served_broker import ServedBroker

PARTITION = 0


def test_kill_9_in_full_load_loses_and_doubles_nothing(tmp_path: Path, full_counts: bool) -> None:
    broker = ServedBroker(tmp_path)
    with broker:
        # The port changes with each start, so each life of the broker has its own producer.
        acknowledged: dict[bytes, int] = {}
        number = 0
        for life in range(50 if full_counts else 4):
            if life:
                broker.start()
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "enable.idempotence": True,
                    "max.in.flight.requests.per.connection": 5,
                    "linger.ms": 1,
                    "batch.num.messages": 20,
                }
            )
            before = len(acknowledged)

            def delivered(error: KafkaError | None, message: Message) -> None:
                value, offset = message.value(), message.offset()
                if error is None and value is not None and offset is not None:
                    acknowledged[value] = offset

            def some_acknowledged() -> bool:
                return len(acknowledged) >= before + 500  # noqa: B023 called within this turn only

            while not some_acknowledged():
                producer.produce("load", b"value %d" % number, partition=PARTITION, on_delivery=delivered)
                number += 1
                producer.poll(0 if len(producer) < 2_000 else 0.01)
            broker.kill9()
            producer.poll(0)
            producer.purge()
            producer.flush(5)
        broker.start()
        tail = Producer({"bootstrap.servers": broker.bootstrap_servers})
        last: list[int | None] = []
        tail.produce("load", b"last", partition=PARTITION, on_delivery=lambda _, message: last.append(message.offset()))
        assert tail.flush(20) == 0
        assert last[0] is not None
        found = read_all(broker.bootstrap_servers, "load", last[0] + 1)
        assert [message.offset() for message in found] == list(range(last[0] + 1))
        values = [message.value() for message in found]
        assert len(set(values)) == len(values), "nothing twice"
        at = {value: offset for offset, value in enumerate(values)}
        assert {value: at.get(value) for value in acknowledged} == acknowledged
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_a_group_goes_on_where_it_committed_through_kills_in_full_load(tmp_path: Path, full_counts: bool) -> None:
    """One producer and one member live through every kill; what was committed is not seen again by the next member."""
    broker = ServedBroker(tmp_path, group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="1")
    broker.port = free_port()
    with broker:
        servers = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1})
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.auto.commit": False,
        }
        member = Consumer(config | {"auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 200})
        member.subscribe(["load"])
        seen: list[int] = []
        number = 0
        for life in range(20 if full_counts else 3):
            if life:
                broker.kill9()
                broker.start()
            wanted = len(seen) + 300
            deadline = time.monotonic() + 60
            while len(seen) < wanted:
                assert time.monotonic() < deadline, f"{len(seen)} of {wanted} records came"
                if number < wanted + 500:
                    producer.produce("load", b"%d" % number, partition=PARTITION)
                    number += 1
                producer.poll(0)
                message = member.poll(0.01)
                if message is not None and message.error() is None:
                    seen.append(int(message.value() or b"-1"))
            offsets = member.commit(asynchronous=False)
            assert offsets is not None
            assert offsets[0].offset == len(seen)
        assert producer.flush(60) == 0
        member.close()
        broker.kill9()
        broker.start()
        assert seen == list(range(len(seen))), "each once, in order, with the idempotent producer's five in flight"
        heir = Consumer(config | {"auto.offset.reset": "error"})
        heir.subscribe(["load"])
        first = heir.poll(60)
        assert first is not None
        assert first.error() is None
        assert first.offset() == len(seen)
        heir.close()
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_cleanly_though_clients_wait(tmp_path: Path, number: signal.Signals) -> None:
    with ServedBroker(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        assert broker.stop(number) == 0
    assert (broker.data / ".kafka_cleanshutdown").exists()


def test_a_second_broker_over_the_same_directory_is_refused(tmp_path: Path) -> None:
    with ServedBroker(tmp_path) as broker:
        second = ServedBroker(tmp_path / "second")
        (tmp_path / "second").mkdir()
        second.data = broker.data
        with pytest.raises(Exception, match="in use by another process"):
            second.start()
