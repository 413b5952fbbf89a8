"""Three brokers and a ZooKeeper, ours and Apache Kafka 3.9, as a bench sees them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata
from confluent_kafka.cimpl import NewTopic
from tests.support.kafka_jvm import STOCK_JVM, STOCK_PROPERTIES, KafkaBroker
from tests.support.processes import Child, free_port, wait_until

from penstock.app.zookeeper_server import ZooKeeperServer

BROKERS = (1, 2, 3)
_SETTINGS: Mapping[str, str | int] = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.create.topics.enable": "false",
}
_COMMAND = Path(sys.executable).with_name("penstock")


class Member(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def port(self) -> int: ...

    def start(self) -> object: ...

    def stop(self) -> object: ...

    def kill9(self) -> object: ...


class PenstockMember:
    def __init__(self, folder: Path, broker_id: int, zookeeper: str) -> None:
        self._folder = folder
        self.port = free_port()
        self._settings = {**_SETTINGS, "broker.id": broker_id, "zookeeper.connect": zookeeper}
        self._child: Child | None = None
        self._starts = 0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        output = self._folder / f"broker-{self._starts}.log"
        command: list[str | Path] = [_COMMAND, "serve", "--data", self._folder / "data"]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        child = self._child = Child(command, output=output)

        def ready() -> bool:
            child.check_alive()
            return "ready PLAINTEXT" in output.read_text(errors="replace")

        wait_until(ready, seconds=60, what="Penstock serves", pause_seconds_max=0.01)

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill9(self) -> None:
        if self._child is not None:
            self._child.kill9()
            self._child = None


def kafka_member(folder: Path, broker_id: int, zookeeper: str) -> Member:
    """With Kafka's own flags and `server.properties`."""
    settings = {**STOCK_PROPERTIES, **{name.replace(".", "_"): value for name, value in _SETTINGS.items()}}
    return KafkaBroker(
        "3.9",
        folder,
        heap_mb=1024,
        jvm_flags=STOCK_JVM,
        broker_id=broker_id,
        zookeeper_connect=zookeeper,
        **settings,
    )


class ThreeBrokers:
    def __init__(self, name: str, folder: Path, make: Callable[[Path, int, str], Member]) -> None:
        self.name = name
        self._folder = folder
        self._make = make
        self.members: dict[int, Member] = {}
        self.zookeeper = ZooKeeperServer(folder / "zookeeper")
        self._end = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members.values())

    def __enter__(self) -> Self:
        with ExitStack() as end:
            self.zookeeper.start()
            end.callback(self.zookeeper.stop)
            for broker_id in BROKERS:
                folder = self._folder / f"broker-{broker_id}"
                member = self._make(folder, broker_id, f"127.0.0.1:{self.zookeeper.port}")
                self.members[broker_id] = member
                member.start()
                end.callback(member.kill9)
            self._end = end.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    # Topics.
    def create(self, topic: str, replicas: list[list[int]]) -> None:
        """With these brokers for each partition, the preferred leader first; returns when every broker knows its leaders."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        made = admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas)], request_timeout=60)
        made[topic].result()
        for member in self.members.values():
            wait_until(lambda: self._knows(member, topic, replicas), seconds=60, what=f"leaders of {topic}")  # noqa: B023

    def _knows(self, member: Member, topic: str, replicas: list[list[int]]) -> bool:
        found = self.described(topic, f"127.0.0.1:{member.port}")
        return found is not None and [found.partitions[number].leader for number in sorted(found.partitions)] == [
            brokers[0] for brokers in replicas
        ]

    def described(self, topic: str, server: str | None = None) -> TopicMetadata | None:
        told = self.metadata(topic, server)
        return None if told is None else told.topics.get(topic)

    def metadata(self, topic: str | None = None, server: str | None = None) -> ClusterMetadata | None:
        admin = AdminClient({"bootstrap.servers": server or self.bootstrap_servers, "log_level": 0})
        try:
            return admin.list_topics(topic, timeout=5) if topic is not None else admin.list_topics(timeout=5)
        except KafkaException:
            return None

    def wait_for_isr(self, topic: str, size: int, *, seconds: float = 120) -> float:
        """Waits until every partition has so many replicas in sync; when that was seen."""

        def whole() -> float | None:
            found = self.described(topic)
            if found is None or not found.partitions:
                return None
            is_whole = all(len(partition.isrs) == size for partition in found.partitions.values())
            return time.monotonic() if is_whole else None

        return wait_until(whole, seconds=seconds, what=f"{topic} in sync on {size}", pause_seconds_max=0.02)
