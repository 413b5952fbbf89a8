"""What `penstock topics` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.base.ids import TopicPartition
from penstock.cli.cluster import open_cluster
from penstock.cli.output import Output
from penstock.client import admin
from penstock.client.admin import ResourceKind
from penstock.client.offsets import EARLIEST, LATEST, known_offsets

OK = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    kind: ClassVar[str] = "topic"
    topic: str
    topic_id: str
    partitions: int
    replication_factor: int
    internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    kind: ClassVar[str] = "topic_partition"
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None


def run_create(servers: str, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> int:
    with open_cluster(servers) as cluster:
        admin.create_topic(
            cluster, topic, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
    return _done(f"created {topic}")


def run_list(servers: str, output: Output, *, with_internal: bool) -> int:
    with open_cluster(servers) as cluster:
        found = [one for one in admin.describe_topics(cluster) if with_internal or not one.is_internal]
    rows = [
        TopicRow(
            topic=one.name,
            topic_id=one.topic_id,
            partitions=len(one.partitions),
            replication_factor=max((len(partition.replicas) for partition in one.partitions), default=0),
            internal=one.is_internal,
        )
        for one in found
    ]
    output.table("", rows)
    if not rows:
        output.say("no topics")
    return OK


def run_describe(servers: str, topics: Sequence[str], output: Output) -> int:
    with open_cluster(servers) as cluster:
        found = admin.describe_topics(cluster, topics)
        led = [
            TopicPartition(topic.name, one.partition) for topic in found for one in topic.partitions if one.leader >= 0
        ]
        starts = known_offsets(cluster, dict.fromkeys(led, EARLIEST))
        ends = known_offsets(cluster, dict.fromkeys(led, LATEST))
    rows = []
    for topic in found:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition)
            rows.append(
                PartitionRow(
                    topic=topic.name,
                    partition=one.partition,
                    leader=one.leader,
                    leader_epoch=one.leader_epoch,
                    replicas=one.replicas,
                    isr=one.isr,
                    start_offset=starts[place].offset if place in starts else None,
                    end_offset=ends[place].offset if place in ends else None,
                )
            )
    output.table("", rows)
    return OK


def run_delete(servers: str, topics: Sequence[str]) -> int:
    with open_cluster(servers) as cluster:
        for topic in topics:
            admin.delete_topic(cluster, topic)
            _done(f"deleted {topic}")
    return OK


def run_alter(
    servers: str, topic: str, partitions: int | None, configs: Mapping[str, str], unset: Sequence[str]
) -> int:
    with open_cluster(servers) as cluster:
        if configs or unset:
            admin.alter_configs(cluster, ResourceKind.TOPIC, topic, configs, unset)
            _done(f"changed the configuration of {topic}")
        if partitions is not None:
            admin.grow_topic(cluster, topic, partitions)
            _done(f"{topic} has {partitions} partitions")
    return OK


def _done(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return OK
