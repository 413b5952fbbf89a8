"""Consumer groups of others' clients against a real `penstock serve`: churn, crashes, static members, Apache's tools."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support import dump_log, judges
from tests.support.kafka_jvm import VERSIONS, run_main
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker

QUICK = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "3"}


def create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result(20)


def fill(servers: str, topic: str, count: int, partitions: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(20) == 0


def consumer_of(servers: str, config: dict[str, str | int] | None = None) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6_000,
            **(config or {}),
        }
    )


def take(consumers: list[Consumer], seen: dict[bytes, int], done: Callable[[], bool], seconds: float = 40) -> None:
    """Polls them in turn and commits what they saw, until it is done."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{len(seen)} records came"
        for consumer in consumers:
            message: Message | None = consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            assert error is None, error
            value = message.value()
            assert value is not None
            seen[value] = seen.get(value, 0) + 1
            consumer.store_offsets(message)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_come_and_go_and_every_record_is_seen(tmp_path: Path, strategy: str) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 6)
        settings: dict[str, str | int] = {
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 100,
            "enable.auto.offset.store": False,
        }
        seen: dict[bytes, int] = {}
        consumers: list[Consumer] = []
        for turn in range(6):
            fill(servers, "t", 300, 6, first=turn * 300)
            if turn in (2, 4):
                consumers.pop(0).close()
            consumer = consumer_of(servers, settings)
            consumer.subscribe(["t"])
            consumers.append(consumer)
            wanted = {b"%d" % number for number in range((turn + 1) * 300)}
            take(consumers, seen, lambda: wanted <= set(seen))  # noqa: B023 called within this turn only
        take(consumers, seen, lambda: sorted(len(one.assignment()) for one in consumers) == [1, 1, 2, 2])
        for consumer in consumers:
            consumer.close()
        probe = consumer_of(servers)
        committed = probe.committed([TopicPartition("t", number) for number in range(6)], timeout=20)
        probe.close()
        assert [one.offset for one in committed] == [300] * 6
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_offsets_survive_kill_9(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path, **QUICK)
    with broker:
        create(broker.bootstrap_servers, "t", 1)
        fill(broker.bootstrap_servers, "t", 100, 1)
        for life in range(4):
            if life:
                broker.start()
            consumer = consumer_of(broker.bootstrap_servers)
            consumer.subscribe(["t"])
            first = consumer.poll(20)
            assert first is not None
            assert first.error() is None
            assert first.offset() == life * 10
            offsets = [TopicPartition("t", 0, (life + 1) * 10)]
            consumer.commit(offsets=offsets, asynchronous=False)
            broker.kill9()
            del consumer
        broker.start()
        probe = consumer_of(broker.bootstrap_servers)
        assert probe.committed([TopicPartition("t", 0)], timeout=20)[0].offset == 40
        probe.close()
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_a_static_member_comes_back_to_its_partitions_and_nobody_notices(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 4)
        assigned: list[object] = []
        stays = consumer_of(servers, {"group.instance.id": "stays", "session.timeout.ms": 20_000})
        stays.subscribe(["t"], on_assign=lambda _, partitions: assigned.append(partitions))
        goes = consumer_of(servers, {"group.instance.id": "goes", "session.timeout.ms": 20_000})
        goes.subscribe(["t"])
        seen: dict[bytes, int] = {}
        take([stays, goes], seen, lambda: [len(one.assignment()) for one in (stays, goes)] == [2, 2])
        before, count = [one.partition for one in goes.assignment()], len(assigned)
        goes.close()  # a static member does not leave
        back = consumer_of(servers, {"group.instance.id": "goes", "session.timeout.ms": 20_000})
        back.subscribe(["t"])
        take([stays, back], seen, lambda: len(back.assignment()) == 2)
        assert [one.partition for one in back.assignment()] == before
        assert len(assigned) == count
        back.close()
        stays.close()
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def test_librdkafka_s_admin_lists_describes_and_deletes(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "t", 2)
        fill(servers, "t", 10, 2)
        consumer = consumer_of(servers)
        consumer.subscribe(["t"])
        take([consumer], {}, lambda: len(consumer.assignment()) == 2)
        consumer.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
        admin = AdminClient({"bootstrap.servers": servers})
        listed = admin.list_consumer_groups().result(20)
        assert [(one.group_id, one.state.name) for one in listed.valid] == [("g", "STABLE")]
        described = admin.describe_consumer_groups(["g"])["g"].result(20)
        assert [len(member.assignment.topic_partitions) for member in described.members] == [2]
        with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
            admin.delete_consumer_groups(["g"])["g"].result(20)
        consumer.close()
        asked = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 7)])]
        admin.alter_consumer_group_offsets(asked)["g"].result(20)
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(20)
        assert [(one.topic, one.partition, one.offset) for one in found.topic_partitions] == [("t", 0, 7)]
        admin.delete_consumer_groups(["g"])["g"].result(20)
        assert admin.list_consumer_groups().result(20).valid == []
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_consumer_and_group_tool(tmp_path: Path, version: str) -> None:
    judges.require(f"kafka-{version}")
    tools = "org.apache.kafka.tools"
    with ServedBroker(tmp_path, **QUICK) as broker:
        servers = ["--bootstrap-server", broker.bootstrap_servers]
        create(broker.bootstrap_servers, "t", 2)
        fill(broker.bootstrap_servers, "t", 200, 2)
        consumed = run_main(
            version,
            f"{tools}.VerifiableConsumer",
            *(*servers, "--topic", "t", "--group-id", "g", "--group-instance-id", "i"),
            *("--max-messages", "200", "--reset-policy", "earliest", "--session-timeout", "10000"),
        )
        events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
        assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
        assert any(event["name"] == "offsets_committed" and event["success"] for event in events)
        group = [f"{tools}.consumer.group.ConsumerGroupCommand", *servers]
        described = run_main(version, *group, "--describe", "--group", "g")
        assert sorted(line.split()[:6] for line in described.splitlines() if line.startswith("g ")) == [
            ["g", "t", "0", "100", "100", "0"],
            ["g", "t", "1", "100", "100", "0"],
        ]
        run_main(version, *group, "--describe", "--group", "g", "--members", "--verbose")
        assert "g" in run_main(version, *group, "--list", "--state", "--type").split()
        wait_until(
            lambda: "Empty" in run_main(version, *group, "--describe", "--group", "g", "--state") or None,
            seconds=60,
            what="the static member is gone",
        )
        reset = ["--reset-offsets", "--to-offset", "40", "--topic", "t:1", "--execute"]
        assert "40" in run_main(version, *group, "--group", "g", *reset)
        run_main(version, *group, "--group", "g", "--delete-offsets", "--topic", "t:0")
        left = run_main(version, *group, "--describe", "--offsets", "--group", "g")
        assert [line.split()[2:4] for line in left.splitlines() if line.startswith("g ")] == [["1", "40"]]
        assert "successful" in run_main(version, *group, "--delete", "--group", "g")
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    dumps = [
        dump_log.dump_directory(version, path, "--offsets-decoder")
        for path in sorted(broker.data.glob("__consumer_offsets-*"))
    ]
    assert [dump.complaints for dump in dumps] == [""] * 3


def test_a_client_outside_of_a_group_is_refused_while_there_are_members(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, **QUICK) as broker:
        create(broker.bootstrap_servers, "t", 1)
        member = consumer_of(broker.bootstrap_servers)
        member.subscribe(["t"])
        take([member], {}, lambda: len(member.assignment()) == 1)
        other = consumer_of(broker.bootstrap_servers)
        other.assign([TopicPartition("t", 0)])
        with pytest.raises(Exception) as refused:
            other.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
        other.close()
        member.close()
        assert broker.stop() == 0
