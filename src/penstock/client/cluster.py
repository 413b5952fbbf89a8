"""A cluster as its clients see it: brokers, topics, leaders, and connections lent out one holder at a time."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from kio.schema.errors import ErrorCode

from penstock.base.errors import ConfigError
from penstock.base.ids import TopicPartition
from penstock.client.config import Address, ClientConfig
from penstock.client.connection import Connection
from penstock.client.errors import AnswerError, UnknownTopicError, UnreachableError
from penstock.client.messages import call_codec
from penstock.client.retry import Attempts, Time

METADATA_KEY = 3
METADATA_LOWEST, METADATA_HIGHEST = 4, 13
NO_NODE = -1
UNKNOWN_TOPIC_PATIENCE_MS = 2_000
"""A topic that was made a moment ago may not have reached every broker; one that is misspelt never will."""


class PartitionMetadata(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    error_code: int


class TopicMetadata(NamedTuple):
    name: str
    topic_id: bytes
    """Sixteen zero bytes where the broker knows none."""
    is_internal: bool
    partitions: dict[int, PartitionMetadata]


class Metadata(NamedTuple):
    cluster_id: str | None
    brokers: dict[int, Address]
    topics: dict[str, TopicMetadata]
    controller: int = NO_NODE


class Leader(NamedTuple):
    node: int
    epoch: int
    topic_id: bytes


class Cluster:
    """Remembers what the last Metadata answers said; `forget` makes it ask again. Not for two threads at a time."""

    def __init__(self, config: ClientConfig, time: Time | None = None) -> None:
        self.config = config
        self.time = Time() if time is None else time
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._idle: dict[Address, list[Connection]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def attempts(self, timeout_ms: int | None = None) -> Attempts:
        return Attempts(self.config, self.time, timeout_ms)

    # ---- topics

    def metadata(self, topics: Collection[str] | None = None) -> Metadata:
        """Asks about these topics, or about all. A topic that is not there is not in the answer."""
        attempts = self.attempts()
        while True:
            try:
                return self._ask_metadata(topics)
            except (UnreachableError, AnswerError) as error:
                attempts.failed(error)

    def topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """These topics, each of them; UnknownTopicError names the missing."""
        attempts = self.attempts(min(UNKNOWN_TOPIC_PATIENCE_MS, self.config.api_timeout_ms))
        while True:
            found = self.metadata(names).topics
            missing = [name for name in names if name not in found]
            if not missing:
                return {name: found[name] for name in names}
            try:
                attempts.failed(AnswerError(missing[0], ErrorCode.unknown_topic_or_partition))
            except AnswerError:
                plural = "topic" if len(missing) == 1 else "topics"
                raise UnknownTopicError(
                    f"the cluster at {self._bootstrap} has no {plural} {', '.join(missing)}"
                ) from None

    def topics_like(self, pattern: str) -> dict[str, TopicMetadata]:
        """The topics whose whole name matches; internal ones are never among them."""
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"the pattern {pattern!r} is no regular expression: {error}") from None
        found = self.metadata().topics
        return {name: topic for name, topic in found.items() if not topic.is_internal and expression.fullmatch(name)}

    def leader(self, partition: TopicPartition) -> Leader:
        """Who leads a partition, as far as is known. Retriable AnswerError while nobody does."""
        topic = self._topics.get(partition.topic)
        if topic is None:
            topic = self.topics([partition.topic])[partition.topic]
        known = topic.partitions.get(partition.partition)
        if known is None:
            count = len(topic.partitions)
            raise UnknownTopicError(
                f"topic {partition.topic} has {count} partition{'' if count == 1 else 's'}, {partition} is not among them"
            )
        if known.leader == NO_NODE or known.leader not in self._brokers:
            self.forget(partition.topic)
            raise AnswerError(f"{partition}", known.error_code or ErrorCode.leader_not_available)
        return Leader(known.leader, known.leader_epoch, topic.topic_id)

    def forget(self, topic: str) -> None:
        """What was known of the topic has proved wrong."""
        self._topics.pop(topic, None)

    # ---- connections

    def address(self, node: int) -> Address:
        return self._brokers[node]

    @contextlib.contextmanager
    def connection(self, node: int) -> Iterator[Connection]:
        """A connection to a broker, for the caller alone; kept for the next unless it raised or has answers to come."""
        with self._connection_to(self._brokers[node]) as connection:
            yield connection

    @contextlib.contextmanager
    def _connection_to(self, address: Address) -> Iterator[Connection]:
        idle = self._idle.setdefault(address, [])
        connection = idle.pop() if idle else Connection(address, self.config)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.in_flight:
            connection.close()
        else:
            idle.append(connection)

    @property
    def _bootstrap(self) -> str:
        return ",".join(map(str, self.config.bootstrap_servers))

    # ---- Metadata

    def _ask_metadata(self, topics: Collection[str] | None) -> Metadata:
        last: UnreachableError | None = None
        for address in dict.fromkeys((*self._brokers.values(), *self.config.bootstrap_servers)):
            try:
                with self._connection_to(address) as connection:
                    version = connection.version(METADATA_KEY, "Metadata", METADATA_LOWEST, METADATA_HIGHEST)
                    answer = connection.call(METADATA_KEY, version, _metadata_request(version, topics))
            except UnreachableError as error:
                last = error
                continue
            return self._learn(answer, f"broker {address}, Metadata")
        assert last is not None
        if len(self.config.bootstrap_servers) > 1:
            raise UnreachableError(f"no broker of {self._bootstrap} can be reached; the last: {last}")
        raise last

    def _learn(self, answer: Any, where: str) -> Metadata:
        if getattr(answer, "error_code", 0):
            raise AnswerError(where, answer.error_code)
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        topics = {}
        for entry in answer.topics:
            if entry.error_code == ErrorCode.unknown_topic_or_partition:
                self.forget(entry.name)
                continue
            if entry.error_code not in (ErrorCode.none, ErrorCode.leader_not_available):
                raise AnswerError(f"{where} of topic {entry.name}", entry.error_code)
            topics[entry.name] = _topic(entry)
        self._topics.update(topics)
        return Metadata(answer.cluster_id, self._brokers, topics, getattr(answer, "controller_id", NO_NODE))


def _metadata_request(version: int, topics: Collection[str] | None) -> Any:
    shape = call_codec(METADATA_KEY, version).request
    asked = None if topics is None else tuple(shape.topics.make(name=name, topic_id=None) for name in topics)
    return shape.make(
        topics=asked,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _topic(entry: Any) -> TopicMetadata:
    topic_id: uuid.UUID | None = getattr(entry, "topic_id", None)
    partitions = {
        one.partition_index: PartitionMetadata(
            one.partition_index, one.leader_id, getattr(one, "leader_epoch", -1), one.error_code
        )
        for one in entry.partitions
    }
    return TopicMetadata(
        entry.name,
        bytes(16) if topic_id is None else topic_id.bytes,
        entry.is_internal,
        dict(sorted(partitions.items())),
    )
