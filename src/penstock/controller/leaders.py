"""Who leads, after a broker came back or one of its log directories failed."""

from __future__ import annotations

from collections.abc import Collection

from penstock.base.ids import TopicPartition
from penstock.metadata import layout
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.layout import NO_LEADER, PartitionState
from penstock.metadata.store import Operation, SetData, Transaction


def decide_start_alone(image: Image, broker_id: int, offline: Collection[TopicPartition] = ()) -> Transaction:
    """The only broker of a cluster started: it leads what it held, in a new epoch, but for what is `offline`.

    A new epoch, because a log that was cut by an unclean end may give offsets out again: clients that read the lost ones
    learn of it by the epoch (KIP-320).
    """
    operations: list[Operation] = []
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            if broker_id not in partition.replicas:
                continue
            key = TopicPartition(topic.name, number)
            operations.append(led_by(NO_LEADER if key in offline else broker_id, (broker_id,), key, partition))
    return Transaction(operations=tuple(operations))


def decide_offline(image: Image, partitions: Collection[TopicPartition]) -> Transaction:
    """Partitions whose only replica cannot serve them: nobody leads, and the ISR stays, so that it may again."""
    operations: list[Operation] = []
    for key in partitions:
        partition = image.partition(key.topic, key.partition)
        if partition is not None and partition.leader != NO_LEADER:
            operations.append(led_by(NO_LEADER, partition.isr, key, partition))
    return Transaction(operations=tuple(operations))


def led_by(leader: int, isr: tuple[int, ...], key: TopicPartition, partition: PartitionImage) -> SetData:
    """One partition's new state, in a new epoch, against the version of it that the image knows."""
    state = PartitionState(leader=leader, leader_epoch=partition.leader_epoch + 1, isr=isr, extra=dict(partition.extra))
    return SetData(
        path=layout.state_path(key.topic, key.partition),
        data=layout.encode_state(state),
        version=partition.state_version,
    )
