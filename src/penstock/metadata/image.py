"""The image of the cluster: topics, partitions, brokers, configurations, as the store confirmed them.

Handlers read it. Confirmed transactions change it, through `apply`; in a cluster, what a controller tells does.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from penstock.metadata import layout
from penstock.metadata.layout import BrokerNode, PartitionState
from penstock.metadata.store import Check, Committed, Create, Delete
from penstock.metadata.tree import Kept

K = TypeVar("K", bound=tuple[str, int])
"""A topic's name and a partition's number, as whoever calls has them."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class PartitionImage(NamedTuple):
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    state_version: int
    """The version of the partition's `state` node: what a change of it is checked against."""
    controller_epoch: int = 1
    """Of the controller that wrote the state."""
    extra: Mapping[str, object] = MappingProxyType({})
    """Keys of the state beyond Kafka's."""


class TopicImage(NamedTuple):
    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionImage]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


_Copied = dict[str, dict[int, PartitionImage]]
"""Partitions of topics that one transaction changes, copied once for all of its states: whoever holds a topic keeps what it holds."""


class Image:
    def __init__(self) -> None:
        self.told = 0
        """How often a controller has told of the cluster."""
        self.brokers_version = 0
        """Rises when a broker comes or goes, or one of its log directories does."""
        self.topics: dict[str, TopicImage] = {}
        self.names_by_id: dict[bytes, str] = {}
        self.deleting: set[str] = set()
        """Topics marked for deletion; some of their logs may still be on a disk."""
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.brokers: dict[int, BrokerNode] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.offline_replicas: dict[tuple[str, int], tuple[int, ...]] = {}
        """Replicas in failed log directories of brokers that are alive. Told by brokers, kept by no store."""

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.names_by_id.get(topic_id)
        return None if name is None else self.topics.get(name)

    def set_offline(self, partitions: Iterable[K], broker_id: int) -> list[K]:
        """A broker that is alive lost the log directory of these partitions. Returns those of which that was not known."""
        new = []
        for key in partitions:
            told = self.offline_replicas.get(key, ())
            if broker_id not in told:
                self.offline_replicas[key] = (*told, broker_id)
                new.append(key)
        self.brokers_version += 1
        return new

    # What a controller tells a broker of a cluster, instead of a store.
    def tell_brokers(self, brokers: Iterable[BrokerNode]) -> None:
        """Every broker that is alive."""
        told = {broker.broker_id: broker for broker in brokers}
        if told != self.brokers:
            self.brokers = told
            self.brokers_version += 1

    def tell_partitions(
        self,
        topic: str,
        topic_id: uuid.UUID,
        states: Mapping[int, PartitionImage],
        offline: Mapping[int, tuple[int, ...]],
    ) -> None:
        """Partitions of one topic that changed, and which of their replicas are offline. Another topic of its name was forgotten."""
        found = self.topics.get(topic)
        partitions = {**({} if found is None else found.partitions), **states}
        self.topics[topic] = TopicImage(topic, topic_id, dict(sorted(partitions.items())))
        self.names_by_id[topic_id.bytes] = topic
        for partition, replicas in offline.items():
            if self.offline_replicas.get((topic, partition), ()) != replicas:
                self.brokers_version += 1
                self.offline_replicas[topic, partition] = replicas

    def forget_partitions(self, topic: str, partitions: Collection[int]) -> None:
        """The partitions' topic is going."""
        found = self.topics.get(topic)
        if found is None or not partitions:
            return
        left = {number: state for number, state in found.partitions.items() if number not in partitions}
        for partition in partitions:
            self.offline_replicas.pop((topic, partition), None)
        if left:
            self.topics[topic] = found._replace(partitions=left)
        else:
            del self.topics[topic]
            self.names_by_id.pop(found.topic_id.bytes, None)

    def load(self, nodes: Iterable[Kept]) -> None:
        """The first filling, from every node of the tree, parents first."""
        copied: _Copied = {}
        for node in nodes:
            self._write(node.path, node.data, node.version, copied)

    def apply(self, committed: Committed) -> set[str]:
        """Takes over a confirmed transaction. Returns the topics it touched."""
        touched: set[str] = set()
        copied: _Copied = {}
        for operation, result in zip(committed.transaction.operations, committed.results, strict=True):
            if isinstance(operation, Check):
                continue
            if isinstance(operation, Delete):
                self._remove(operation.path)
            elif isinstance(operation, Create):
                assert isinstance(result, str)
                self._write(result, operation.data, 0, copied)
            else:
                self._write(operation.path, operation.data, getattr(result, "version", 0), copied)
            if operation.path.startswith(f"{layout.BROKER_CONFIGS}/"):
                touched.update(self.topics)  # brokers' keys are the defaults of every topic's
            touched.update(_topics_of([operation.path]))
        return touched

    def take_config(self, path: str, data: bytes) -> None:
        """Takes over the configuration at a path of the tree; any other path is none."""
        if path.startswith(_CONFIG_PARENTS):
            self._write(path, data, 0, {})

    def forget_config(self, path: str) -> None:
        """There is none at this path."""
        if path.startswith(_CONFIG_PARENTS):
            self._remove(path)

    def _write(self, path: str, data: bytes, version: int, copied: _Copied) -> None:
        parts = path.split("/")
        match parts[1:]:
            case ["brokers", "ids", broker_id]:
                self.brokers[int(broker_id)] = layout.decode_broker(path, data)
                self.brokers_version += 1
            case ["brokers", "topics", topic]:
                self._write_topic(path, topic, data)
            case ["brokers", "topics", topic, "partitions", partition, "state"]:
                self._write_state(topic, int(partition), layout.decode_state(path, data), version, copied)
            case ["admin", "delete_topics", topic]:
                self.deleting.add(topic)
            case ["config", "topics", topic]:
                self.topic_configs[topic] = layout.decode_config(path, data)
            case ["config", "brokers", broker]:
                self.broker_configs[broker] = layout.decode_config(path, data)
            case ["cluster", "id"]:
                self.cluster_id = layout.decode_cluster_id(data)

    def _write_topic(self, path: str, topic: str, data: bytes) -> None:
        node = layout.decode_topic(path, data)
        before = self.topics.get(topic)
        partitions = {}
        for partition, replicas in sorted(node.replicas.items()):
            known = None if before is None else before.partitions.get(partition)
            if known is None:
                known = PartitionImage(replicas, -1, -1, (), -1)
            partitions[partition] = known._replace(replicas=replicas)
        self.topics[topic] = TopicImage(topic, node.topic_id, partitions)
        self.names_by_id[node.topic_id.bytes] = topic

    def _write_state(self, topic: str, partition: int, state: PartitionState, version: int, copied: _Copied) -> None:
        found = self.topics[topic]
        replicas = found.partitions[partition].replicas
        known = PartitionImage(
            replicas, state.leader, state.leader_epoch, state.isr, version, state.controller_epoch, state.extra
        )
        partitions = copied.get(topic)
        if partitions is None or found.partitions is not partitions:
            partitions = copied[topic] = dict(found.partitions)
            self.topics[topic] = found._replace(partitions=partitions)
        partitions[partition] = known

    def _remove(self, path: str) -> None:
        parts = path.split("/")
        match parts[1:]:
            case ["brokers", "ids", broker_id]:
                self.brokers.pop(int(broker_id), None)
                self.brokers_version += 1
            case ["brokers", "topics", topic]:
                self.forget_topic(topic)
            case ["admin", "delete_topics", topic]:
                self.deleting.discard(topic)
            case ["config", "topics", topic]:
                self.topic_configs.pop(topic, None)
            case ["config", "brokers", broker]:
                self.broker_configs.pop(broker, None)

    def forget_topic(self, topic: str) -> None:
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self.names_by_id.pop(gone.topic_id.bytes, None)
            for number in gone.partitions:
                self.offline_replicas.pop((topic, number), None)


_CONFIG_PARENTS = (f"{layout.TOPIC_CONFIGS}/", f"{layout.BROKER_CONFIGS}/")
_TOPIC_PARENTS = (["brokers", "topics"], ["config", "topics"], ["admin", "delete_topics"])


def _topics_of(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        parts = path.split("/")
        if len(parts) > 3 and parts[1:3] in _TOPIC_PARENTS:
            yield parts[3]
