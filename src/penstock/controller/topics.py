"""Topics made and removed: from what was asked and the image to store operations."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.ids import InvalidTopicError, TopicPartition, check_topic_name
from penstock.controller.cluster import Cluster
from penstock.controller.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    PolicyViolationError,
    TopicExistsError,
)
from penstock.controller.placement import place
from penstock.metadata import layout
from penstock.metadata.image import Image, TopicImage
from penstock.metadata.layout import PartitionState, TopicNode
from penstock.metadata.store import ANY_VERSION, Check, Create, Delete, Operation, SetData, Transaction
from penstock.storage.config import check_changes, log_config

PARTITIONS_MAX = 10_000
"""In one topic: a bound on what one request may do to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic somebody wants. Counts of -1 mean the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    partitions: int
    replication_factor: int
    log_values: Mapping[str, object]
    """The broker's values of topic keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDecision:
    name: str
    topic_id: uuid.UUID
    replicas: Mapping[int, tuple[int, ...]]
    transaction: Transaction

    @property
    def replication_factor(self) -> int:
        return len(next(iter(self.replicas.values())))


def decide_create(
    image: Image, wanted: NewTopic, defaults: TopicDefaults, new_id: Callable[[], uuid.UUID]
) -> TopicDecision:
    """What to write for a new topic; an error says why there will be none."""
    check_topic_name(wanted.name)
    if wanted.name in image.topics:
        raise TopicExistsError(f"topic {wanted.name} exists already")
    if wanted.name in image.deleting:
        raise TopicExistsError(f"topic {wanted.name} is still being deleted")
    check_no_collision(image, wanted.name)
    log_config(wanted.configs, defaults.log_values)
    replicas = _replicas(image, wanted, defaults)
    topic_id = new_id()
    operations: list[Operation] = [
        Create(path=layout.topic_config_path(wanted.name), data=layout.encode_config(wanted.configs)),
        Create(
            path=layout.topic_path(wanted.name),
            data=layout.encode_topic(TopicNode(topic_id=topic_id, replicas=replicas)),
        ),
        Create(path=f"{layout.topic_path(wanted.name)}/partitions"),
    ]
    operations += _partition_nodes(wanted.name, replicas)
    transaction = Transaction(operations=tuple(operations))
    return TopicDecision(name=wanted.name, topic_id=topic_id, replicas=replicas, transaction=transaction)


def leave_states_to_controller(transaction: Transaction) -> Transaction:
    """What any broker of a cluster may write of a new or grown topic: the controller then gives its partitions leaders."""
    kept = tuple(one for one in transaction.operations if not _is_below_topic(one.path))
    return Transaction(operations=kept)


def _is_below_topic(path: str) -> bool:
    return path.startswith(f"{layout.TOPICS}/") and layout.topic_of(path) is None


def decide_states(cluster: Cluster, topic: TopicImage, there: Collection[str]) -> list[Operation]:
    """First states for the partitions of a topic that have none yet; `there` are the nodes below the topic's that are there."""
    parent = f"{layout.topic_path(topic.name)}/partitions"
    operations: list[Operation] = []
    for number, partition in topic.partitions.items():
        if partition.leader_epoch >= 0:
            continue
        above = [f"{parent}/{number}"] if operations else [parent, f"{parent}/{number}"]
        operations += [Create(path=path) for path in above if path not in there]
        state = cluster.first_state(partition.replicas, TopicPartition(topic.name, number))
        operations.append(Create(path=layout.state_path(topic.name, number), data=layout.encode_state(state)))
    return operations


def _partition_nodes(topic: str, replicas: Mapping[int, tuple[int, ...]]) -> Iterator[Operation]:
    for partition, assigned in replicas.items():
        state = PartitionState(leader=assigned[0], leader_epoch=0, isr=assigned)
        yield Create(path=f"{layout.topic_path(topic)}/partitions/{partition}")
        yield Create(path=layout.state_path(topic, partition), data=layout.encode_state(state))


def check_no_collision(image: Image, name: str) -> None:
    """Metrics turn '.' into '_': two topics that differ only there cannot be told apart (as in Kafka)."""
    if "." not in name and "_" not in name:
        return
    flat = name.replace(".", "_")
    for other in image.topics:
        if other != name and other.replace(".", "_") == flat:
            raise InvalidTopicError(f"topic {name} collides with {other}: '.' and '_' are alike in metric names")


def _replicas(image: Image, wanted: NewTopic, defaults: TopicDefaults) -> dict[int, tuple[int, ...]]:
    if wanted.assignments:
        if wanted.partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequestError("replicas are given by hand: the counts of partitions and replicas must be -1")
        return _assigned(image, wanted.assignments)
    partitions = defaults.partitions if wanted.partitions == -1 else wanted.partitions
    factor = defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    if factor <= 0:
        raise InvalidReplicationFactorError(f"a topic has at least one replica, not {factor}")
    if partitions <= 0:
        raise InvalidPartitionsError(f"a topic has at least one partition, not {partitions}")
    if partitions > PARTITIONS_MAX:
        raise PolicyViolationError(f"{partitions} partitions are more than the {PARTITIONS_MAX} a topic may have")
    return place(sorted(image.brokers), partitions, factor, racks=_racks(image))


def _racks(image: Image) -> dict[int, str]:
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items() if broker.rack is not None}


def _assigned(image: Image, assignments: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignmentError("partitions given by hand are numbered from 0 without gaps")
    if len({len(replicas) for replicas in assignments.values()}) != 1:
        raise InvalidReplicaAssignmentError("every partition has the same number of replicas")
    for partition, replicas in assignments.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignmentError(f"partition {partition} names a broker twice, or none")
        unknown = [broker for broker in replicas if broker not in image.brokers]
        if unknown:
            raise InvalidReplicaAssignmentError(f"partition {partition} names brokers that are not there: {unknown}")
    return {partition: tuple(assignments[partition]) for partition in sorted(assignments)}


def decide_grow(
    image: Image, topic: TopicImage, count: int, assignments: Sequence[tuple[int, ...]] | None
) -> Transaction:
    """What to write so that a topic has `count` partitions; the new ones by hand, or as placement has it."""
    present = len(topic.partitions)
    if topic.name in image.deleting or 0 not in topic.partitions:  # a broker may have heard of the end of some already
        raise InvalidPartitionsError(f"topic {topic.name} is being deleted")
    if count <= present:
        raise InvalidPartitionsError(
            f"topic {topic.name} has {present} partitions already"
            if count == present
            else f"topic {topic.name} has {present} partitions, and partitions are never removed"
        )
    if count > PARTITIONS_MAX:
        raise PolicyViolationError(f"{count} partitions are more than the {PARTITIONS_MAX} a topic may have")
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        added = place(sorted(image.brokers), count - present, factor, first_partition=present, racks=_racks(image))
    else:
        if len(assignments) != count - present:
            raise InvalidReplicaAssignmentError(
                f"{count - present} partitions are new, {len(assignments)} are assigned"
            )
        by_hand = dict(enumerate(assignments))
        added = {present + number: replicas for number, replicas in _assigned(image, by_hand).items()}
    replicas = {number: state.replicas for number, state in topic.partitions.items()} | added
    node = TopicNode(topic_id=topic.topic_id, replicas=replicas)
    operations: list[Operation] = [SetData(path=layout.topic_path(topic.name), data=layout.encode_topic(node))]
    operations += _partition_nodes(topic.name, added)
    return Transaction(operations=tuple(operations))


def decide_config(image: Image, topic: TopicImage, config: Mapping[str, str]) -> Transaction:
    """What to write so that a topic's own configuration is `config`."""
    check_changes(image.topic_configs.get(topic.name, {}), config)
    path, data = layout.topic_config_path(topic.name), layout.encode_config(config)
    if topic.name in image.topic_configs:
        return Transaction(operations=(SetData(path=path, data=data),))
    is_there = Check(path=layout.topic_path(topic.name), version=ANY_VERSION)  # or the next of its name would find this
    return Transaction(operations=(is_there, Create(path=path, data=data)))


def decide_mark_deleted(topic: TopicImage) -> Transaction:
    """The first step of a deletion: from here on it happens, whatever crashes."""
    return Transaction(operations=(Create(path=layout.deletion_mark(topic.name)),))


def decide_delete(image: Image, name: str, *, logs_are_gone: bool) -> Transaction:
    """The last step: what the tree says of a topic whose logs were removed, children first.

    The mark stays while a log of the topic may lie in a directory that is offline: it would come back with it.
    """
    path = f"{layout.topic_path(name)}/partitions"
    topic = image.topics.get(name)
    there = [] if topic is None else [layout.topic_path(name), path]
    for partition, state in topic.partitions.items() if topic is not None else ():
        if state.state_version >= 0:
            there += (f"{path}/{partition}", layout.state_path(name, partition))
    if name in image.topic_configs:
        there.append(layout.topic_config_path(name))
    return decide_remove(name, there, logs_are_gone=logs_are_gone)


def decide_remove(name: str, there: Collection[str], *, logs_are_gone: bool) -> Transaction:
    """The same where `there` are the topic's nodes."""
    paths = sorted(there, reverse=True)
    if logs_are_gone:
        paths.append(layout.deletion_mark(name))
    return Transaction(operations=tuple(Delete(path=path) for path in paths))
