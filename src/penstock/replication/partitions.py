"""The partitions that this broker holds, by topic and number."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.base.ids import TopicPartition
from penstock.replication.errors import UnknownTopicOrPartitionError
from penstock.replication.partition import Partition
from penstock.replication.traffic import TrafficByTopic


class Partitions:
    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.traffic = TrafficByTopic()

    def add(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        held = self._by_topic.setdefault(topic, {})
        assert number not in held, f"{partition.topic_partition} is held already"
        held[number] = partition
        partition.traffic = self.traffic.of(topic)

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        held = self._by_topic.get(topic_partition.topic)
        if held is None:
            return None
        partition = held.pop(topic_partition.partition, None)
        if not held:
            del self._by_topic[topic_partition.topic]
            self.traffic.forget(topic_partition.topic)
        return partition

    def find(self, topic: str, number: int) -> Partition | None:
        held = self._by_topic.get(topic)
        return None if held is None else held.get(number)

    def get(self, topic: str, number: int) -> Partition:
        held = self._by_topic.get(topic)
        partition = None if held is None else held.get(number)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"there is no partition {number} of topic {topic} here")
        return partition

    def of_topic(self, topic: str) -> tuple[Partition, ...]:
        return tuple(self._by_topic.get(topic, {}).values())

    def __iter__(self) -> Iterator[Partition]:
        for held in tuple(self._by_topic.values()):
            yield from tuple(held.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))
