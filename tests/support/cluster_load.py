"""Load on a cluster from librdkafka, and its history; what the cluster looks like from outside; replicas compared byte by byte."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata  # type: ignore[attr-defined]

from penstock.testing import Cluster
from tests.support.history import History, Outcome, Seen, Value, Write
from tests.support.processes import wait_until

WAIT_SECONDS = 120
QUICK_TO_NOTICE: Mapping[str, Any] = {
    "zookeeper_session_timeout_ms": 4_000,
    "replica_fetch_backoff_ms": 100,
    "controller_socket_timeout_ms": 3_000,
}
"""Settings of a cluster whose brokers soon take one another for dead."""
FINAL_READER = 1_000
_REFUSALS = {KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED}
_QUIET = {"log_level": 0}


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **_QUIET})


def make_topic(cluster: Cluster, name: str, partitions: int = 3, replicas: int = 3) -> None:
    client = admin(cluster)
    client.create_topics([NewTopic(name, partitions, replicas)])[name].result(WAIT_SECONDS)


def look(cluster: Cluster, topic: str) -> dict[int, PartitionMetadata]:
    """As some broker has it, which may have been told of less than another: ask until it is as it should be."""
    return dict(admin(cluster).list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions)


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    """Asks until somebody leads."""

    def ask() -> int | None:
        with contextlib.suppress(KafkaException):
            found = look(cluster, topic).get(partition)
            return found.leader if found is not None and found.leader > 0 else None
        return None

    return wait_until(ask, seconds=WAIT_SECONDS, what=f"{topic}-{partition} has a leader")


def wait_for_isr(cluster: Cluster, topic: str, members: int) -> None:
    def ask() -> bool:
        with contextlib.suppress(KafkaException):
            found = look(cluster, topic).values()
            return bool(found) and all(len(one.isrs) >= members and one.leader > 0 for one in found)
        return False

    wait_until(ask, seconds=WAIT_SECONDS, what=f"every partition of {topic} has {members} replicas in sync")


class Load:
    """A thread that writes numbered values with acks=all as an idempotent producer, in turns to every partition."""

    def __init__(self, cluster: Cluster, topic: str, history: History, partitions: int = 3, producer: int = 1) -> None:
        self._topic = topic
        self._history = history
        self._partitions = partitions
        self._number = producer
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": WAIT_SECONDS * 1000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                **_QUIET,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged = 0
        self._next = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            value = Value(self._number, self._next)
            partition = self._next % self._partitions
            try:
                self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=self._delivered)
                self._next += 1
            except BufferError:
                pass
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, partition = Value.parse(message.value() or b""), message.partition()
        assert partition is not None
        if error is None:
            self.acknowledged += 1
            offset = message.offset()
            self._history.wrote(Write(partition, value, Outcome.ACKNOWLEDGED, -1 if offset is None else offset))
        else:
            outcome = Outcome.REFUSED if error.code() in _REFUSALS else Outcome.UNKNOWN
            self._history.wrote(Write(partition, value, outcome))

    def wait_for_more(self, count: int = 50) -> None:
        """Until so many writes more are acknowledged."""
        wanted = self.acknowledged + count
        wait_until(lambda: self.acknowledged >= wanted, seconds=WAIT_SECONDS, what=f"{count} more acknowledged writes")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(WAIT_SECONDS)


def read_everything(cluster: Cluster, topic: str, history: History, partitions: int = 3) -> int:
    """The final reader: each partition from its start to its end. Returns how many records there were."""
    read = 0
    for partition in range(partitions):
        for seen in _read(cluster, topic, partition):
            history.saw(seen)
            read += 1
    return read


def _read(cluster: Cluster, topic: str, partition: int) -> Iterator[Seen]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **_QUIET,
        }
    )
    try:
        place = TopicPartition(topic, partition, 0)
        end = wait_until(
            lambda: _end(consumer, place), seconds=WAIT_SECONDS, what=f"{topic}-{partition} says where it ends"
        )
        consumer.assign([place])
        position = 0
        while position < end:
            message = consumer.poll(WAIT_SECONDS)
            assert message is not None, f"{topic}-{partition} stops at {position}, it ends at {end}"
            if message.error() is None:
                offset = message.offset()
                assert offset is not None
                position = offset + 1
                yield Seen(FINAL_READER, partition, offset, Value.parse(message.value() or b""))
    finally:
        consumer.close()


def _end(consumer: Consumer, place: TopicPartition) -> int | None:
    with contextlib.suppress(KafkaException):
        answer = consumer.get_watermark_offsets(place, timeout=10)
        return None if answer is None else answer[1]
    return None


def replica_bytes(cluster: Cluster, topic: str, partition: int) -> dict[int, bytes]:
    """The log of each replica, all segments in order."""
    found = {}
    for broker_id, broker in cluster.brokers.items():
        places = [disk / f"{topic}-{partition}" for disk in broker.log_directories]
        for directory in filter(Path.is_dir, places):
            found[broker_id] = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    return found


def wait_for_equal_replicas(cluster: Cluster, topic: str, partitions: int = 3, replicas: int = 3) -> None:
    def ask() -> bool:
        logs = [replica_bytes(cluster, topic, partition) for partition in range(partitions)]
        return all(len(one) == replicas and len(set(one.values())) == 1 for one in logs)

    wait_until(ask, seconds=WAIT_SECONDS, what=f"the replicas of {topic} are equal byte for byte")
