"""Partitions that no trusted replica can lead, because logs may have lost something: the longest log of all members leads.

Only when every member of the ISR and every eligible one is back: what was acknowledged is in one of their logs, if it is anywhere. Or when
they were waited for long enough (`unclean.recovery.timeout.ms`): then the longest log of those that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.controller.cluster import Cluster, eligible_of
from penstock.metadata.image import PartitionImage
from penstock.metadata.layout import NO_LEADER
from penstock.metadata.store import Operation


class LogEnd(NamedTuple):
    """How far a log goes; the newer epoch counts for more than the larger offset."""

    leader_epoch: int
    offset: int


def find_leaderless(cluster: Cluster) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in sorted(cluster.image.topics.values())
        if topic.name not in cluster.image.deleting
        for number, partition in topic.partitions.items()
        if partition.leader == NO_LEADER and partition.leader_epoch >= 0
    ]


def find_stuck(cluster: Cluster, overdue: Collection[TopicPartition] = ()) -> dict[TopicPartition, tuple[int, ...]]:
    """Partitions without a leader whose members are all back, with those members; of those `overdue` some are enough."""
    stuck = {}
    for key in find_leaderless(cluster):
        partition = cluster.partition(key)
        assert partition is not None
        members = _members(partition)
        back = tuple(one for one in members if cluster.is_alive(key, one) and one not in cluster.shutting_down)
        if back and (back == members or key in overdue):
            stuck[key] = back
    return stuck


def decide_longest(
    cluster: Cluster,
    ends: Mapping[TopicPartition, Mapping[int, LogEnd]],
    overdue: Collection[TopicPartition] = (),
) -> list[Operation]:
    """Leaders for those of these partitions that are still stuck, and of whose members every one told its end."""
    operations: list[Operation] = []
    for key, members in find_stuck(cluster, overdue).items():
        told = ends.get(key, {})
        partition = cluster.partition(key)
        if partition is None or not set(members) <= told.keys():
            continue
        longest = max(members, key=lambda one: (told[one], -partition.replicas.index(one)))
        operations.append(cluster.becomes(key, partition, longest, (longest,)))
    return operations


def _members(partition: PartitionImage) -> tuple[int, ...]:
    """In replica order."""
    wanted = {*partition.isr, *eligible_of(partition)}
    return tuple(one for one in partition.replicas if one in wanted)
