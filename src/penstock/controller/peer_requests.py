"""What a controller tells brokers, and what a leader asks of it: plain values, no wire.

`peers` writes them as Kafka's LeaderAndIsr, UpdateMetadata, StopReplica and AlterPartition; handlers read those into the same
values. Every request to a broker bears the controller's epoch and the broker's: whoever knows a newer one refuses it. Of one controller
epoch the requests are numbered (`serial`): one that lay in a connection that was given up is refused when it comes after later ones.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.metadata.layout import NO_LEADER, BrokerNode

LEADER_DURING_DELETION = -2
"""Told in UpdateMetadata instead of a leader: the topic is going, forget the partition."""
NO_EPOCH = -1
EPOCH_DURING_DELETION = -2
"""Told in StopReplica instead of a leader epoch: newer than any, because the topic is going."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as the controller has it, confirmed by the store."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    controller_epoch: int
    """Of the controller that wrote this state, which may have been an earlier one."""
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    """The version of the partition's `state` node."""
    replicas: tuple[int, ...]
    has_eligible: bool = False
    """Whether members that left the ISR may still be elected: the leader commits nothing that they lack."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    """Told in UpdateMetadata only: replicas on dead brokers and in failed log directories."""
    is_new: bool = False
    """Told in LeaderAndIsr only: there was no replica of it on this broker before."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader:
    """Where a broker is reached by the other brokers."""

    broker_id: int
    host: str
    port: int


class RequestType(IntEnum):
    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2
    """All there is: partitions that the broker should hold, and others on its disk are strays; or topics, and others are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """Roles that a broker shall take."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    serial: int = 0
    type: RequestType = RequestType.INCREMENTAL
    partitions: tuple[PartitionState, ...]
    live_leaders: tuple[LiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadata:
    """What a broker shall tell clients: the partitions that changed, and every broker that is alive."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    serial: int = 0
    type: RequestType = RequestType.INCREMENTAL
    partitions: tuple[PartitionState, ...]
    brokers: tuple[BrokerNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPartition:
    topic: str
    partition: int
    leader_epoch: int
    delete: bool
    """Whether its log goes too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplica:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    serial: int = 0
    partitions: tuple[StoppedPartition, ...]


PeerRequest = LeaderAndIsr | UpdateMetadata | StopReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """What a broker said to a request of the controller: an error of the whole, or errors of partitions."""

    error: PenstockError | None = None
    partition_errors: dict[TopicPartition, PenstockError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRequests:
    """One decision's requests: at most one of each kind for a broker, sent in this order of kinds."""

    leader_and_isr: dict[int, LeaderAndIsr] = field(default_factory=dict)
    update_metadata: dict[int, UpdateMetadata] = field(default_factory=dict)
    stop_replica: dict[int, StopReplica] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrMember:
    broker_id: int
    broker_epoch: int
    """NO_EPOCH where the leader does not know it: of members that stay, it is not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """What a leader asks with AlterPartition, one partition of it."""

    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrRequest:
    """One AlterPartition request."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChanged:
    """The controller's answer of one partition: what stands now, or why nothing changed."""

    topic_id: uuid.UUID
    partition: int
    error: PenstockError | None = None
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    has_eligible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdown:
    """A broker that wants to stop asks for its leaders to move first."""

    broker_id: int
    broker_epoch: int
