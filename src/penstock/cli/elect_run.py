"""What `penstock elect` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.base.ids import TopicPartition
from penstock.cli.cluster import open_cluster
from penstock.cli.output import Output
from penstock.cli.positions import find_places
from penstock.client import admin

OK, FAILED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedRow:
    kind: ClassVar[str] = "election"
    topic: str
    partition: int
    leader: int
    error: str


def run_elect(servers: str, kind: int, topics: Sequence[str], output: Output) -> int:
    """`kind` is Kafka's number of it."""
    with open_cluster(servers) as cluster:
        wanted = find_places(cluster, topics) if topics else None
        found = admin.elect_leaders(cluster, kind, wanted)
        described = admin.describe_topics(cluster, sorted({one.partition.topic for one in found})) if found else []
    leaders = {
        TopicPartition(topic.name, partition.partition): partition.leader
        for topic in described
        for partition in topic.partitions
    }
    rows = [
        ElectedRow(
            topic=one.partition.topic,
            partition=one.partition.partition,
            leader=leaders.get(one.partition, -1),
            error=one.error,
        )
        for one in sorted(found)
    ]
    output.table("elections", rows)
    if not rows:
        output.say("no partition needed another leader")
    return FAILED if any(row.error for row in rows) else OK
