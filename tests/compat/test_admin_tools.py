"""Admin clients as judges of a real `penstock serve`: Apache's own tools of 3.9 and 4.3, and confluent-kafka's AdminClient."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.support import judges
from tests.support.kafka_jvm import VERSIONS, run_mains
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.wire import Wire

TOOLS = "org.apache.kafka.tools"
SECONDS = 60


class TwoDirectories(ServedBroker):
    """A broker with two log directories."""

    def __init__(self, directory: Path) -> None:
        self.second = directory / "second"
        super().__init__(directory, log_dirs=f"{directory / 'data'},{self.second}", offsets_topic_num_partitions="1")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TwoDirectories]:
    with TwoDirectories(tmp_path) as served:
        yield served


def fill(servers: str, topic: str, count: int, partition: int = 0) -> None:
    refused: list[KafkaError] = []

    def told(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        value = b"%d" % number
        producer.produce(topic, value, value, partition=partition, on_delivery=told)
    assert producer.flush(SECONDS) == 0
    assert refused == []


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_admin_tools_do_their_work(version: str, broker: TwoDirectories, tmp_path: Path) -> None:
    judges.require(f"kafka-{version}")
    server = ("--bootstrap-server", broker.bootstrap_servers)
    topics, configs = f"{TOOLS}.TopicCommand", "kafka.admin.ConfigCommand"
    topic = ("--topic", "t")
    entity = ("--entity-type", "topics", "--entity-name", "t")
    one = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")
    made = run_mains(
        version,
        (topics, *server, "--create", *topic, "--partitions", "2", "--config", "retention.ms=5000"),
        (topics, *server, "--alter", *topic, "--partitions", "3"),
        (topics, *server, "--list"),
        (topics, *server, "--describe", *topic),
        (configs, *server, "--alter", *entity, "--add-config", "segment.ms=70000,cleanup.policy=[compact,delete]"),
        (configs, *server, "--alter", *entity, "--delete-config", "retention.ms"),
        (configs, *server, "--describe", *entity),
        (configs, *server, "--alter", *one, "--add-config", "log.cleaner.threads=2"),
        (configs, *server, "--alter", *every, "--add-config", "log.retention.ms=7200000"),
        (configs, *server, "--describe", *one),
        (configs, *server, "--describe", *every),
    )
    assert made[2].split() == ["t"]
    assert "PartitionCount: 3" in made[3]
    assert "retention.ms=5000" in made[3]
    assert "segment.ms=70000" in made[6]
    assert "cleanup.policy=compact,delete" in made[6]
    assert "retention.ms=5000" not in made[6]
    assert "log.cleaner.threads=2" in made[9]
    assert "log.retention.ms=7200000" in made[10]

    fill(broker.bootstrap_servers, "t", 10)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 4}]}))
    election = tmp_path / "election.json"
    election.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0}]}))
    home = "data" if (broker.data / "t-0").exists() else "second"
    target = broker.second if home == "data" else broker.data
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    reassign = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    told = run_mains(
        version,
        (f"{TOOLS}.DeleteRecordsCommand", *server, "--offset-json-file", offsets),
        (f"{TOOLS}.GetOffsetShell", *server, *topic, "--time", "earliest"),
        (f"{TOOLS}.GetOffsetShell", *server, *topic, "--time", "latest"),
        (f"{TOOLS}.GetOffsetShell", *server, *topic, "--time", "max-timestamp"),
        (f"{TOOLS}.LogDirsCommand", *server, "--describe", "--topic-list", "t"),
        (f"{TOOLS}.LeaderElectionCommand", *server, "--election-type", "preferred", "--path-to-json-file", election),
        (reassign, *server, "--reassignment-json-file", plan, "--execute"),
        (reassign, *server, "--list"),
    )
    assert "low_watermark: 4" in told[0]
    assert "t:0:4" in told[1]
    assert "t:0:10" in told[2]
    assert "t:0:" in told[3]
    described = json.loads(next(line for line in told[4].splitlines() if line.startswith("{")))
    assert {Path(one["logDir"]).name for one in described["brokers"][0]["logDirs"]} == {"data", "second"}
    assert "Valid replica already elected" in told[5]
    assert "Successfully started" in told[6]
    wait_until((target / "t-0").exists, seconds=SECONDS, what="the replica has moved")
    verified = run_mains(
        version,
        (reassign, *server, "--reassignment-json-file", plan, "--verify"),
        (f"{TOOLS}.GetOffsetShell", *server, *topic, "--time", "latest"),
        (topics, *server, "--delete", *topic),
        (topics, *server, "--list"),
    )
    assert "is complete" in verified[0] or "is completed" in verified[0]
    assert "t:0:10" in verified[1]
    assert verified[3].split() == []
    fill(broker.bootstrap_servers, "u", 1)


def results(futures: dict[Any, Any]) -> dict[Any, Any]:
    return {key: future.result(SECONDS) for key, future in futures.items()}


def test_confluents_admin_client_does_its_work(broker: TwoDirectories) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    results(admin.create_topics([NewTopic("a", 2, config={"retention.ms": "9000"}), NewTopic("b", 1)]))
    with pytest.raises(KafkaException) as exists:
        results(admin.create_topics([NewTopic("a", 1)]))
    assert exists.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    results(admin.create_partitions([NewPartitions("a", 4)]))
    assert len(admin.list_topics("a", timeout=SECONDS).topics["a"].partitions) == 4
    (described,) = results(admin.describe_topics(TopicCollection(["a"]), include_authorized_operations=True)).values()
    assert len(described.partitions) == 4
    assert len(described.authorized_operations) == 8

    resource = ConfigResource(ConfigResource.Type.TOPIC, "a")
    (found,) = results(admin.describe_configs([resource])).values()
    assert found["retention.ms"].value == "9000"
    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        "a",
        incremental_configs=[
            ConfigEntry("retention.ms", "8000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    results(admin.incremental_alter_configs([change]))
    (found,) = results(admin.describe_configs([resource])).values()
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("8000", "delete,compact")
    dynamic = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[ConfigEntry("log.segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)],
    )
    results(admin.incremental_alter_configs([dynamic]))
    (found,) = results(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "b")])).values()
    assert found["segment.bytes"].value == "2000000"

    fill(broker.bootstrap_servers, "b", 5)
    where = TopicPartition("b", 0)
    spec_of: Any = OffsetSpec
    for spec, offset in ((spec_of.earliest(), 0), (spec_of.latest(), 5), (spec_of.for_timestamp(1), 0)):
        assert results(admin.list_offsets({where: spec}))[where].offset == offset
    assert results(admin.delete_records([TopicPartition("b", 0, 3)]))[where].low_watermark == 3
    cluster = admin.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert [node.id for node in cluster.nodes] == [1]
    elected = admin.elect_leaders(ElectionType.PREFERRED, [where]).result(SECONDS)
    assert [error.code() for error in elected.values()] == [KafkaError.ELECTION_NOT_NEEDED]
    results(admin.delete_topics(["a", "b"]))
    assert "a" not in admin.list_topics(timeout=SECONDS).topics


def test_changed_configurations_and_moved_replicas_outlive_a_kill(broker: TwoDirectories) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        wire.ask(19, 7, {"topics": [topic], "timeout": 9000})
        fill(broker.bootstrap_servers, "t", 100)
        target = broker.second if (broker.data / "t-0").exists() else broker.data
        entry = {"name": "log.segment.bytes", "config_operation": 0, "value": "3000000"}
        change = {"resources": [{"resource_type": 4, "resource_name": "", "configs": [entry]}]}
        assert wire.ask(44, 1, change)["responses"][0]["error_code"] == "none"
        moving = {"dirs": [{"path": str(target), "topics": [{"name": "t", "partitions": [0]}]}]}
        assert wire.ask(34, 2, moving)["results"][0]["partitions"][0]["error_code"] == "none"
        wait_until((target / "t-0").exists, seconds=SECONDS, what="the replica has moved")
    broker.kill9()
    broker.start()
    with Wire(broker.bootstrap_servers) as wire:
        resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": ["segment.bytes"]}
        (found,) = wire.ask(32, 4, {"resources": [resource]})["results"][0]["configs"]
        assert (found["value"], found["config_source"]) == ("3000000", 3)
        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        offsets = wire.ask(2, 7, {"replica_id": -1, "topics": [{"name": "t", "partitions": [asked]}]})
        assert offsets["topics"][0]["partitions"][0]["offset"] == 100
    assert (target / "t-0").exists()


def test_a_replica_moves_to_and_fro_while_it_is_written_and_read(broker: TwoDirectories) -> None:
    count, moves = 20_000, 0
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 2})
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    with Wire(broker.bootstrap_servers) as wire:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        wire.ask(19, 7, {"topics": [topic], "timeout": 9000})
        consumer.assign([TopicPartition("t", 0, 0)])
        seen: list[bytes | None] = []
        for number in range(count):
            producer.produce("t", b"%d" % number, partition=0)
            if number % 100 == 0:
                producer.poll(0)
                seen += (message.value() for message in consumer.consume(200, 0))
                home = broker.data if (broker.data / "t-0").exists() else broker.second
                target = broker.second if home == broker.data else broker.data
                moving = {"dirs": [{"path": str(target), "topics": [{"name": "t", "partitions": [0]}]}]}
                assert wire.ask(34, 2, moving)["results"][0]["partitions"][0]["error_code"] == "none"
                moves += 1
        assert producer.flush(SECONDS) == 0

        def all_read() -> bool:
            messages = consumer.consume(1000, 0.2)
            assert [message.error() for message in messages if message.error() is not None] == []
            seen.extend(message.value() for message in messages)
            return len(seen) >= count

        wait_until(all_read, seconds=SECONDS, what="every record is read")
    consumer.close()
    assert seen == [b"%d" % number for number in range(count)]
    assert moves == 200
    assert "lies in" in broker.output
    assert "could not be moved" not in broker.output
