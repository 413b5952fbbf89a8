"""ListOffsets (key 2), versions 2-11: where partitions begin, where they end, what is at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import AnswerError, ClientError, UnreachableError
from penstock.client.messages import call_codec

KEY = 2
LOWEST, HIGHEST = 2, 11

LATEST = -1
EARLIEST = -2
NO_OFFSET = -1
NOT_FOUND = -1
CONSUMER_REPLICA_ID = -1
_ROUNDS = 2
"""Who leads may have changed since it was last looked for."""


class ListedOffset(NamedTuple):
    offset: int
    """-1 where no record is as young as the timestamp asked for."""
    timestamp: int


def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """For each partition the first offset at or after its timestamp, or with LATEST and EARLIEST its end and start.

    The end is the high watermark, or with read_committed the last stable offset. Leaders that moved are looked for again
    until `default.api.timeout.ms` is over.
    """
    found: dict[TopicPartition, ListedOffset] = {}
    left = dict(timestamps)
    attempts = cluster.attempts()
    while True:
        failed = _ask_leaders(cluster, left, read_committed, found)
        left = {partition: at for partition, at in left.items() if partition not in found}
        if not left:
            return {partition: found[partition] for partition in timestamps}
        assert failed is not None
        attempts.failed(failed)


def known_offsets(cluster: Cluster, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
    """As `list_offsets`, without those that cannot be had for now."""
    found: dict[TopicPartition, ListedOffset] = {}
    for _ in range(_ROUNDS):
        left = {partition: at for partition, at in timestamps.items() if partition not in found}
        _ask_leaders(cluster, left, False, found)
    return found


def _ask_leaders(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, ListedOffset],
) -> ClientError | None:
    """Asks each leader once, fills `found`, and returns an error that may pass if there was one."""
    failed: ClientError | None = None
    by_node: dict[int, list[TopicPartition]] = {}
    for partition in timestamps:
        try:
            by_node.setdefault(cluster.leader(partition).node, []).append(partition)
        except (AnswerError, UnreachableError) as error:
            failed = error
    for node, partitions in by_node.items():
        try:
            failed = _ask(cluster, node, {one: timestamps[one] for one in partitions}, read_committed, found) or failed
        except UnreachableError as error:
            failed = error
            _forget(cluster, partitions)
    return failed


def _forget(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    for topic in {partition.topic for partition in partitions}:
        cluster.forget(topic)


def _ask(
    cluster: Cluster,
    node: int,
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, ListedOffset],
) -> AnswerError | None:
    """Asks one leader, fills `found`, and returns an error that may pass if a partition had one."""
    with cluster.connection(node) as connection:
        version = connection.version(KEY, "ListOffsets", LOWEST, HIGHEST)
        answer = connection.call(KEY, version, _request(cluster, version, timestamps, read_committed))
    passing = None
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code == 0:
                milliseconds = getattr(entry, "timestamp", -1)
                found[partition] = ListedOffset(entry.offset, milliseconds)
                continue
            error = AnswerError(f"broker {cluster.address(node)}, ListOffsets of {partition}", entry.error_code)
            if not error.is_retriable:
                raise error
            cluster.forget(topic.name)
            passing = error
    unanswered = [str(partition) for partition in timestamps if partition not in found]
    if unanswered and passing is None:
        raise ClientError(f"broker {cluster.address(node)} left {unanswered[0]} out of its ListOffsets answer")
    return passing


def _request(cluster: Cluster, version: int, timestamps: Mapping[TopicPartition, int], read_committed: bool) -> Any:
    shape = call_codec(KEY, version).request
    by_topic: dict[str, list[Any]] = {}
    for partition, timestamp in timestamps.items():
        by_topic.setdefault(partition.topic, []).append(
            shape.topics.partitions.make(
                partition_index=partition.partition,
                current_leader_epoch=cluster.leader(partition).epoch,
                timestamp=timestamp,
            )
        )
    return shape.make(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(read_committed),
        topics=tuple(shape.topics.make(name=name, partitions=tuple(asked)) for name, asked in by_topic.items()),
        timeout=timedelta(milliseconds=cluster.config.request_timeout_ms),
    )
