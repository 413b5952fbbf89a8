"""Leaders elected because somebody asked: the preferred replica, or an unclean one where nobody leads."""

from __future__ import annotations

from enum import IntEnum

from penstock.base.ids import TopicPartition
from penstock.controller.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from penstock.controller.leaders import led_by
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.store import Transaction


class Election(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def decide_election(image: Image, key: TopicPartition, partition: PartitionImage, election: Election) -> Transaction:
    """What to write so that another replica leads; an error says why none will."""
    live = [
        replica
        for replica in partition.replicas
        if replica in image.brokers and replica not in image.offline_replicas.get((key.topic, key.partition), ())
    ]
    if election is Election.PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeededError(f"{key} is led by its preferred replica {preferred}")
        if preferred not in live or preferred not in partition.isr:
            raise PreferredLeaderNotAvailableError(f"replica {preferred} of {key} is not alive and in sync")
        return Transaction(operations=(led_by(preferred, partition.isr, key, partition),))
    if partition.leader in image.brokers:
        raise ElectionNotNeededError(f"{key} is led by broker {partition.leader}")
    if not live:
        raise EligibleLeadersNotAvailableError(f"no replica of {key} is alive")
    in_sync = [replica for replica in live if replica in partition.isr]
    leader = (in_sync or live)[0]
    isr = partition.isr if leader in partition.isr else (leader,)
    return Transaction(operations=(led_by(leader, isr, key, partition),))
