"""What `penstock groups` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.cli.cluster import open_cluster
from penstock.cli.escapes import printable
from penstock.cli.output import Output
from penstock.cli.positions import find_places, resolve
from penstock.client import groups
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.groups import DescribedGroup
from penstock.client.offsets import LATEST, list_offsets

OK = 0
_DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    kind: ClassVar[str] = "group"
    group: str
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartitionRow:
    kind: ClassVar[str] = "group_partition"
    group: str
    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    member: str | None
    client_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRow:
    kind: ClassVar[str] = "group_reset"
    group: str
    topic: str
    partition: int
    before: int | None
    after: int


def run_list(servers: str, output: Output) -> int:
    with open_cluster(servers) as cluster:
        found = groups.list_groups(cluster)
    rows = [
        GroupRow(group=one.group_id, state=one.state, protocol_type=one.protocol_type, coordinator=one.coordinator)
        for one in found
    ]
    output.table("", rows)
    if not rows:
        output.say("no groups")
    return OK


def run_describe(servers: str, group_id: str, output: Output) -> int:
    with open_cluster(servers) as cluster:
        described = _existing(cluster, group_id)
        committed = groups.committed_offsets(cluster, group_id)
        readers = {place: member for member in described.members for place in member.partitions}
        places = sorted({*committed, *readers})
        there = set(cluster.metadata(tuple({place.topic for place in places})).topics)
        ends = list_offsets(cluster, {place: LATEST for place in places if place.topic in there})
    output.say(
        f"group {group_id}: {described.state}, {len(described.members)} members, coordinator {described.coordinator}"
        + (f", assignor {printable(described.protocol)}" if described.protocol else "")
    )
    rows = []
    for place in places:
        offset, end, member = committed.get(place), ends.get(place), readers.get(place)
        rows.append(
            GroupPartitionRow(
                group=group_id,
                topic=place.topic,
                partition=place.partition,
                committed_offset=offset,
                end_offset=None if end is None else end.offset,
                lag=None if end is None or offset is None else max(end.offset - offset, 0),
                member=None if member is None else member.instance_id or member.member_id,
                client_id=None if member is None else member.client_id,
                host=None if member is None else member.host,
            )
        )
    output.table("", rows)
    return OK


def _existing(cluster: Cluster, group_id: str) -> DescribedGroup:
    described = groups.describe_group(cluster, group_id)
    if described.state == _DEAD:
        raise ClientError(f"there is no group {group_id}")
    return described


def run_reset(servers: str, group_id: str, to: str, topics: Sequence[str], output: Output, *, only_say: bool) -> int:
    with open_cluster(servers) as cluster:
        described = groups.describe_group(cluster, group_id)
        if described.members:
            raise ClientError(f"group {group_id} has {len(described.members)} members; stop them first")
        before = groups.committed_offsets(cluster, group_id)
        places = find_places(cluster, topics) if topics else sorted(before)
        if not places:
            raise ClientError(f"group {group_id} has committed nothing; name its topics with --topic")
        after = resolve(cluster, places, to, "--to")
        if not only_say:
            groups.set_offsets(cluster, group_id, after)
    output.table(
        "what would be set" if only_say else "",
        [
            ResetRow(
                group=group_id, topic=place.topic, partition=place.partition, before=before.get(place), after=offset
            )
            for place, offset in after.items()
        ],
    )
    return OK


def run_delete(servers: str, group_ids: Sequence[str]) -> int:
    with open_cluster(servers) as cluster:
        for group_id in group_ids:
            groups.delete_group(cluster, group_id)
            print(f"deleted {group_id}", file=sys.stderr)
    return OK
