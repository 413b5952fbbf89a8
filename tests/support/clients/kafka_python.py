"""kafka-python: producers, consumers, transactions, admin calls and members of groups."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from kafka import (
    ConsumerGroupMetadata,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import ConfigResource, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.support.clients.session import serve, value_of


class Member:
    """A member of a group on a thread of its own; it commits as it goes."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        self.seen: list[str] = []
        self.assigned: list[int] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            for records in self._consumer.poll(timeout_ms=100).values():
                self.seen.extend(record.value.decode() for record in records)
            self.assigned = sorted(partition.partition for partition in self._consumer.assignment())
        self._consumer.close()

    def leave(self) -> None:
        self._is_over = True
        self._thread.join()


class Client:
    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producers: dict[str, Any] = {}
        self._admin: Any = None
        self._member: Member | None = None

    # ---- records

    def write(self, topic: str, codec: str, count: int, prefix: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            linger_ms=20,
        )
        sent = [producer.send(topic, value_of(prefix, n).encode(), f"key-{n}".encode()) for n in range(count)]
        for future in sent:
            future.get(60)
        producer.close()

    def read(self, topics: list[str], partitions: int, count: int, committed: bool = False) -> list[list[object]]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        every = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        consumer.assign(every)
        consumer.seek_to_beginning(*every)
        found: list[list[object]] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {count} records came")
            for records in consumer.poll(timeout_ms=1000).values():
                for one in records:
                    key = None if one.key is None else one.key.decode()
                    found.append([one.topic, one.partition, one.offset, key, one.value.decode()])
        consumer.close()
        return found

    # ---- transactions

    def init(self, name: str, id: str, timeout_ms: int) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._servers, transactional_id=id, transaction_timeout_ms=timeout_ms
        )
        self._producers[name] = producer
        producer.init_transactions()

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> None:
        self._producers[name].send(topic, value.encode()).get(60)

    def offsets(self, name: str, group: str, topic: str, offset: int) -> None:
        at = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._producers[name].send_offsets_to_transaction(at, ConsumerGroupMetadata(group, -1, "", None))

    def commit(self, name: str) -> None:
        self._producers[name].commit_transaction()

    def abort(self, name: str) -> None:
        self._producers[name].abort_transaction()

    # ---- admin

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self._servers)
        return self._admin

    def create(self, topic: str, partitions: int) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])

    def describe(self, topic: str) -> int:
        return len(self.admin.describe_topics([topic])[0]["partitions"])

    def alter(self, topic: str, key: str, value: str) -> None:
        self.admin.alter_configs([ConfigResource("TOPIC", topic, configs={key: value})])

    def config(self, topic: str, key: str) -> str:
        described = self.admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        return str(described["topic"][topic][key]["value"])

    def delete_records(self, topic: str, offset: int) -> None:
        self.admin.delete_records({TopicPartition(topic, 0): offset})

    def groups(self) -> list[str]:
        return sorted(one["group_id"] for one in self.admin.list_groups())

    def group(self, group: str) -> str:
        described = self.admin.describe_groups([group])
        return str(described[group]["group_state"])

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def topics(self) -> list[str]:
        return sorted(self.admin.list_topics())

    # ---- groups

    def join(self, group: str, topic: str) -> None:
        self._member = Member(self._servers, group, topic)

    def seen(self) -> dict[str, object]:
        assert self._member is not None
        return {"values": list(self._member.seen), "assigned": self._member.assigned}

    def leave(self) -> None:
        assert self._member is not None
        self._member.leave()


if __name__ == "__main__":
    serve(Client(sys.argv[1]))
