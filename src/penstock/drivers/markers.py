"""Writes the markers that end transactions to the partitions this broker leads.

A port for the coordinator, which may live on another broker than the partition: there its requests arrive as WriteTxnMarkers.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.coordinator.errors import CoordinatorLoadInProgressError, NotCoordinatorError
from penstock.coordinator.transactions.model import EPOCH_BUMPS_FROM
from penstock.drivers import groups
from penstock.drivers.groups import GroupDriver
from penstock.drivers.shards import ShardsSurroundings, Then
from penstock.records.build import build_end_marker
from penstock.replication.errors import NotLeaderOrFollowerError
from penstock.replication.partition import Partition


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    version: int
    """The transactions protocol of the end: from 2 on the epoch is one that no data of the transaction has."""


class MarkerWriter(Protocol):
    def write(self, topic_partition: TopicPartition, marker: Marker, then: Then) -> None:
        """Calls back when the marker is below the high watermark, or with the reason why it is not."""


class LocalMarkers:
    def __init__(self, surroundings: ShardsSurroundings, groups: GroupDriver, clock: Clock) -> None:
        self._surroundings = surroundings
        self._groups = groups
        self._clock = clock

    def write(self, topic_partition: TopicPartition, marker: Marker, then: Then) -> None:
        try:
            partition = self._surroundings.partitions.get(*topic_partition)
            if _is_written(partition, marker):
                self._when_it_lasts(partition, then)
                return
            batch = build_end_marker(
                marker.commit,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                self._clock.wall_ms(),
            )
            if topic_partition.topic == groups.TOPIC:
                self._end_in_groups(topic_partition.partition, marker, batch, then)
                return
            appended = partition.append_marker(batch)
        except PenstockError as error:
            then(error)
            return
        self._surroundings.appended(partition, appended)
        self._surroundings.when_committed(partition, partition.leader_epoch, appended.end_offset, then)

    def _when_it_lasts(self, partition: Partition, then: Then) -> None:
        """A marker that stands may be lost yet, as when the try that wrote it failed for want of replicas."""
        partition.check_leader(-1)
        self._surroundings.when_committed(partition, partition.leader_epoch, partition.log.end_offset, then)

    def _end_in_groups(self, number: int, marker: Marker, batch: bytes, then: Then) -> None:
        def ended(error: PenstockError | None) -> None:
            if isinstance(error, NotCoordinatorError | CoordinatorLoadInProgressError):
                error = NotLeaderOrFollowerError(str(error))
            then(error)

        self._groups.end_transaction(number, marker.producer_id, batch, ended, commit=marker.commit)


def _is_written(partition: Partition, marker: Marker) -> bool:
    """Whether the marker stands in the log already: where ends raise the epoch, only it, or what followed it, has its epoch.

    To write it again could end the producer's next transaction, which goes on in that very epoch.
    """
    if marker.version < EPOCH_BUMPS_FROM:
        return False
    producer = partition.log.producers.get(marker.producer_id)
    return producer is not None and producer.epoch == marker.producer_epoch
