"""What leaders ask of the controller with AlterPartition (row R2): checked against what stands, decided one by one."""

from __future__ import annotations

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.cluster import Cluster, eligible_of
from penstock.controller.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
)
from penstock.controller.peer_requests import IsrChange, IsrChanged, IsrRequest
from penstock.metadata.image import PartitionImage
from penstock.metadata.store import SetData


def check_sender(cluster: Cluster, request: IsrRequest) -> None:
    """Whether the broker that asks is the one that is registered."""
    broker = cluster.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise StaleBrokerEpochError(
            f"broker {request.broker_id} asks in epoch {request.broker_epoch}, which is not the one registered"
        )


def decide_isr(cluster: Cluster, request: IsrRequest, change: IsrChange) -> SetData | None:
    """What to write for one change; None where it stands already; an error says why it will not."""
    key, partition = find(cluster, change)
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.state_version:
        raise NotControllerError(f"{key}: the leader knows more than this controller, which was perhaps replaced")
    if change.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError(
            f"{key} is in leader epoch {partition.leader_epoch}, the request says {change.leader_epoch}"
        )
    if partition.leader != request.broker_id:
        raise InvalidRequestError(f"{key} is led by broker {partition.leader}, not {request.broker_id}")
    isr = tuple(member.broker_id for member in change.new_isr)
    if set(isr) == set(partition.isr):
        return None  # it was written, and the answer was lost
    if change.partition_epoch < partition.state_version:
        raise InvalidUpdateVersionError(
            f"{key} has version {partition.state_version}, the request says {change.partition_epoch}"
        )
    if request.broker_id not in isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise InvalidRequestError(f"{key}: {isr} cannot be the ISR of leader {request.broker_id}")
    for member in change.new_isr:
        if member.broker_id not in partition.isr:
            _check_member(cluster, key, member.broker_id, member.broker_epoch)
    return cluster.with_isr(key, partition, isr)


def _check_member(cluster: Cluster, key: TopicPartition, broker_id: int, broker_epoch: int) -> None:
    """A replica joins only in the life in which it caught up (KAFKA-15221), and not on its way out (KAFKA-14140)."""
    if not cluster.is_alive(key, broker_id):
        raise IneligibleReplicaError(f"{key}: broker {broker_id} is not alive")
    if broker_id in cluster.shutting_down:
        raise IneligibleReplicaError(f"{key}: broker {broker_id} is shutting down")
    if broker_epoch != cluster.image.brokers[broker_id].epoch:
        raise IneligibleReplicaError(f"{key}: broker {broker_id} is not in epoch {broker_epoch} any more")


def find(cluster: Cluster, change: IsrChange) -> tuple[TopicPartition, PartitionImage]:
    topic = cluster.image.topic_by_id(change.topic_id.bytes)
    partition = None if topic is None else topic.partitions.get(change.partition)
    if topic is None or partition is None or topic.name in cluster.image.deleting:
        raise UnknownTopicIdError(f"there is no partition {change.partition} of a topic {change.topic_id}")
    return TopicPartition(topic.name, change.partition), partition


def answer_of(cluster: Cluster, change: IsrChange) -> IsrChanged:
    """What stands now."""
    try:
        _, partition = find(cluster, change)
    except PenstockError as error:
        return refusal_of(change, error)
    return IsrChanged(
        topic_id=change.topic_id,
        partition=change.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.state_version,
        has_eligible=bool(eligible_of(partition)),
    )


def refusal_of(change: IsrChange, error: PenstockError) -> IsrChanged:
    return IsrChanged(topic_id=change.topic_id, partition=change.partition, error=error)
