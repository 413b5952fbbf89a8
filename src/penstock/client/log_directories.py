"""DescribeLogDirs (key 35), versions 1-4: in which directory of its leader's machine each partition lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.coordinators import again
from penstock.client.errors import AnswerError, UnreachableError
from penstock.client.messages import call_codec

KEY = 35
LOWEST, HIGHEST = 1, 4


class LeaderDirectory(NamedTuple):
    node: int
    path: str


def leader_directories(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderDirectory]:
    """Where the leaders say their replicas are; a partition that one does not tell of is left out."""

    def ask() -> dict[TopicPartition, LeaderDirectory]:
        by_node: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            by_node.setdefault(cluster.leader(partition).node, []).append(partition)
        found: dict[TopicPartition, LeaderDirectory] = {}
        for node, led in by_node.items():
            try:
                found |= _ask(cluster, node, led)
            except UnreachableError:
                for topic in {partition.topic for partition in led}:
                    cluster.forget(topic)
                raise
        return found

    wanted = list(partitions)
    return again(cluster, ask)


def _ask(cluster: Cluster, node: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderDirectory]:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    with cluster.connection(node) as connection:
        version = connection.version(KEY, "DescribeLogDirs", LOWEST, HIGHEST)
        shape = call_codec(KEY, version).request
        topics = tuple(shape.topics.make(topic=name, partitions=tuple(numbers)) for name, numbers in by_topic.items())
        answer: Any = connection.call(KEY, version, shape.make(topics=topics))
    if getattr(answer, "error_code", 0):
        raise AnswerError(f"broker {cluster.address(node)}, DescribeLogDirs", answer.error_code)
    return {
        TopicPartition(topic.name, one.partition_index): LeaderDirectory(node, result.log_dir)
        for result in answer.results
        if result.error_code == 0
        for topic in result.topics
        for one in topic.partitions
        if not one.is_future_key
    }
