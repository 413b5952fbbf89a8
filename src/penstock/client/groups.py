"""Consumer groups as an operator sees them: ListGroups (16), DescribeGroups (15), OffsetFetch (9), OffsetCommit (8), DeleteGroups (42)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.coordinators import GROUP, again, coordinator
from penstock.client.errors import AnswerError
from penstock.client.messages import call_codec
from penstock.protocol.cursor import Cursor
from penstock.protocol.schemas import Shape

T = TypeVar("T")

_CONSUMER = "consumer"
_NAMES_UP_TO = 9
"""The last version of OffsetFetch and OffsetCommit that names topics; later ones use ids."""


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    coordinator: int


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class DescribedGroup(NamedTuple):
    group_id: str
    coordinator: int
    state: str
    protocol: str
    members: tuple[Member, ...]


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Those of every broker."""
    found: list[ListedGroup] = []
    for node in cluster.metadata(()).brokers:
        with cluster.connection(node) as connection:
            version = connection.version(16, "ListGroups", 0, 5)
            request = call_codec(16, version).request.make(states_filter=(), types_filter=())
            answer = connection.call(16, version, request)
        if answer.error_code != 0:
            raise AnswerError(f"broker {cluster.address(node)}, ListGroups", answer.error_code)
        found += (
            ListedGroup(one.group_id, one.protocol_type, getattr(one, "group_state", ""), node) for one in answer.groups
        )
    return sorted(found)


def describe_group(cluster: Cluster, group_id: str) -> DescribedGroup:
    """Its state `Dead` means that there is no such group."""

    def ask(connection: Connection, node: int) -> DescribedGroup:
        version = connection.version(15, "DescribeGroups", 0, 6)
        request = call_codec(15, version).request.make(groups=(group_id,), include_authorized_operations=False)
        (found,) = connection.call(15, version, request).groups
        if found.error_code != 0 and found.group_state != "Dead":
            raise AnswerError(f"group {group_id}", found.error_code)
        members = tuple(
            Member(
                one.member_id,
                getattr(one, "group_instance_id", None),
                one.client_id,
                one.client_host,
                assigned(one.member_assignment) if found.protocol_type == _CONSUMER else (),
            )
            for one in found.members
        )
        return DescribedGroup(group_id, node, found.group_state, found.protocol_data, members)

    return _with_coordinator(cluster, group_id, ask)


def assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a consumer's assignment; none where it cannot be read."""

    def topic(cursor: Cursor) -> list[TopicPartition]:
        name = cursor.string()
        return [TopicPartition(name, number) for number in cursor.list(Cursor.int32) or []]

    if len(assignment) < 6:
        return ()
    cursor = Cursor(assignment, 2, flexible=False)
    try:
        topics = cursor.list(topic) or []
    except Exception:  # whatever a client of another kind put there
        return ()
    return tuple(sorted(one for partitions in topics for one in partitions))


def committed_offsets(cluster: Cluster, group_id: str, *, is_stable: bool = False) -> dict[TopicPartition, int]:
    """What the group has committed; partitions without an offset are left out.

    With is_stable, not before every transaction with offsets of the group has ended (KIP-447).
    """

    def ask(connection: Connection, node: int) -> dict[TopicPartition, int]:
        version = connection.version(9, "OffsetFetch", 7 if is_stable else 2, _NAMES_UP_TO)
        shape = call_codec(9, version).request
        group = shape.groups.make(group_id=group_id, topics=None, member_id=None, member_epoch=-1)
        request = shape.make(group_id=group_id, topics=None, groups=(group,), require_stable=is_stable)
        answer = connection.call(9, version, request)
        found = answer.groups[0] if version >= 8 else answer
        if found.error_code != 0:
            raise AnswerError(f"offsets of group {group_id}", found.error_code)
        for topic in found.topics:
            for one in topic.partitions:
                if one.error_code != 0:
                    raise AnswerError(f"offset of group {group_id}, {topic.name}-{one.partition_index}", one.error_code)
        return {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for topic in found.topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }

    return _with_coordinator(cluster, group_id, ask)


def offset_topics(shape: Shape, offsets: Mapping[TopicPartition, int]) -> tuple[Any, ...]:
    """The topics of an OffsetCommit or a TxnOffsetCommit."""
    by_topic: dict[str, list[Any]] = {}
    for partition, offset in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            shape.topics.partitions.make(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata="",
            )
        )
    return tuple(shape.topics.make(name=name, partitions=tuple(made)) for name, made in by_topic.items())


def set_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits for a group that has no members; the coordinator refuses it while it has."""

    def ask(connection: Connection, node: int) -> None:
        version = connection.version(8, "OffsetCommit", 2, _NAMES_UP_TO)
        shape = call_codec(8, version).request
        request = shape.make(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=offset_topics(shape, offsets),
        )
        for topic in connection.call(8, version, request).topics:
            for one in topic.partitions:
                if one.error_code != 0:
                    where = f"group {group_id}, {TopicPartition(topic.name, one.partition_index)}"
                    raise AnswerError(where, one.error_code)

    _with_coordinator(cluster, group_id, ask)


def delete_group(cluster: Cluster, group_id: str) -> None:
    def ask(connection: Connection, node: int) -> None:
        version = connection.version(42, "DeleteGroups", 0, 2)
        (result,) = connection.call(42, version, call_codec(42, version).request.make(groups_names=(group_id,))).results
        if result.error_code != 0:
            raise AnswerError(f"group {group_id}", result.error_code)

    _with_coordinator(cluster, group_id, ask)


def _with_coordinator(cluster: Cluster, group_id: str, ask: Callable[[Connection, int], T]) -> T:
    def once() -> T:
        node = coordinator(cluster, group_id, GROUP)
        with cluster.connection(node) as connection:
            return ask(connection, node)

    return again(cluster, once)
