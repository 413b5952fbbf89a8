"""Who leads after brokers died, came back or are about to stop (rows C2, C5, R6): one rule for each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.base.ids import TopicPartition
from penstock.controller.cluster import Cluster, eligible_of
from penstock.metadata.image import PartitionImage
from penstock.metadata.layout import NO_LEADER
from penstock.metadata.store import Operation, SetData


def keys_on(cluster: Cluster, broker_ids: Collection[int]) -> list[TopicPartition]:
    """Every partition with a replica on one of these brokers, in order."""
    return [
        TopicPartition(topic.name, number)
        for topic in sorted(cluster.image.topics.values())
        for number, partition in topic.partitions.items()
        if any(one in broker_ids for one in partition.replicas)
    ]


def every_key(cluster: Cluster) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in sorted(cluster.image.topics.values())
        for number in topic.partitions
    ]


def decide_leaders(
    cluster: Cluster, keys: Iterable[TopicPartition], *, gone: Collection[int] = (), even_unclean: bool = False
) -> list[Operation]:
    """What to write so that each of these partitions is led by somebody who may. Nothing where all is well.

    `gone` are brokers that must not be counted on though they are there: they died in between, or are about to stop.
    """
    operations: list[Operation] = []
    for key in keys:
        partition = cluster.partition(key)
        if partition is None or partition.leader_epoch < 0 or key.topic in cluster.image.deleting:
            continue
        changed = _changed(cluster, key, partition, gone, even_unclean)
        if changed is not None:
            operations.append(changed)
    return operations


def _changed(
    cluster: Cluster, key: TopicPartition, partition: PartitionImage, gone: Collection[int], even_unclean: bool
) -> SetData | None:
    usable = [
        one
        for one in partition.replicas
        if one not in gone and one not in cluster.shutting_down and cluster.is_alive(key, one)
    ]
    trusted = [one for one in usable if cluster.is_trusted(key, partition, one)]
    leader = partition.leader
    # One that is about to stop goes on with what only it can lead: who comes back meanwhile may catch up with it.
    stays = (
        leader not in gone
        and cluster.is_trusted(key, partition, leader)
        and not any(one in partition.isr for one in trusted)
    )
    if stays or leader in trusted:
        isr = tuple(one for one in partition.isr if one in trusted or one == leader)
        return None if isr == partition.isr else cluster.becomes(key, partition, leader, isr)
    leader, isr = _elected(cluster, key, partition, usable, trusted, even_unclean)
    if leader == partition.leader == NO_LEADER:
        return None
    return cluster.becomes(key, partition, leader, isr)


def _elected(
    cluster: Cluster,
    key: TopicPartition,
    partition: PartitionImage,
    usable: list[int],
    trusted: list[int],
    even_unclean: bool,
) -> tuple[int, tuple[int, ...]]:
    in_sync = [one for one in trusted if one in partition.isr]
    if in_sync:
        return in_sync[0], tuple(one for one in partition.isr if one in trusted)
    eligible = [one for one in trusted if one in eligible_of(partition)]
    if eligible:
        return eligible[0], (eligible[0],)
    members = {*partition.isr, *eligible_of(partition)}
    if len(partition.replicas) == 1 and usable and members <= set(usable):
        return usable[0], (usable[0],)  # what it has is all there is
    if usable and (even_unclean or cluster.allows_unclean(key.topic)):
        return usable[0], (usable[0],)
    return NO_LEADER, partition.isr


def decide_preferred(cluster: Cluster, keys: Iterable[TopicPartition]) -> list[Operation]:
    """Gives partitions back to their first replica, where that is alive, trusted and in sync."""
    operations: list[Operation] = []
    for key in keys:
        partition = cluster.partition(key)
        if partition is None or partition.leader_epoch < 0 or key.topic in cluster.image.deleting:
            continue
        preferred = partition.replicas[0]
        if (
            partition.leader not in (preferred, NO_LEADER)
            and preferred in partition.isr
            and preferred not in cluster.shutting_down
            and cluster.is_trusted(key, partition, preferred)
        ):
            operations.append(cluster.becomes(key, partition, preferred, partition.isr))
    return operations


def decide_rebalance(cluster: Cluster, imbalance_percent_max: int) -> list[Operation]:
    """Preferred elections for brokers that lead too few of the partitions that are theirs."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for topic in sorted(cluster.image.topics.values()):
        for number, partition in topic.partitions.items():
            if partition.replicas:
                by_broker.setdefault(partition.replicas[0], []).append(TopicPartition(topic.name, number))
    operations: list[Operation] = []
    for broker_id, keys in sorted(by_broker.items()):
        elsewhere = [key for key in keys if (found := cluster.partition(key)) and found.leader != broker_id]
        if 100 * len(elsewhere) > imbalance_percent_max * len(keys):
            operations += decide_preferred(cluster, elsewhere)
    return operations


def decide_forget_eligible(cluster: Cluster, topics: Collection[str]) -> list[Operation]:
    """Where min ISR was lowered to what the ISR has: from now on its leader, if there is one, acknowledges records that others lack."""
    operations: list[Operation] = []
    for name in sorted(topics):
        topic = cluster.image.topics.get(name)
        for number, partition in topic.partitions.items() if topic is not None else ():
            if (
                eligible_of(partition)
                and partition.leader != NO_LEADER
                and len(partition.isr) >= cluster.min_isr(name, partition)
            ):
                operations.append(cluster.with_isr(TopicPartition(name, number), partition, partition.isr))
    return operations


def still_led(cluster: Cluster, broker_id: int) -> list[TopicPartition]:
    """Partitions that a broker about to stop leads, though somebody else could one day."""
    return [
        key
        for key in keys_on(cluster, (broker_id,))
        if (found := cluster.partition(key)) is not None and found.leader == broker_id and len(found.replicas) > 1
    ]


def decide_shutdown(cluster: Cluster, broker_id: int) -> list[Operation]:
    """Moves leaders away from a broker that asked to stop, and takes it out of ISRs.

    What only it can lead stays with it until it is gone: half a minute of no leader serves nobody.
    """
    operations: list[Operation] = []
    for key in keys_on(cluster, (broker_id,)):
        partition = cluster.partition(key)
        if partition is None or partition.leader_epoch < 0 or key.topic in cluster.image.deleting:
            continue
        others = [
            one
            for one in partition.replicas
            if one in partition.isr
            and one not in cluster.shutting_down
            and one != broker_id
            and cluster.is_trusted(key, partition, one)
        ]
        if broker_id not in partition.isr or not others:
            continue
        leader = others[0] if partition.leader == broker_id else partition.leader
        isr = tuple(one for one in partition.isr if one != broker_id)
        operations.append(cluster.becomes(key, partition, leader, isr))
    return operations
