"""What a controller and brokers say to each other where ZooKeeper coordinates: LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown, as entities in kio's manner, which has none for them; and the answer to AlterPartition.

Kafka dropped the first four with ZooKeeper. Each stands here in the last version it had, that of 3.9: LeaderAndIsr 7, StopReplica
4, UpdateMetadata 8, ControlledShutdown 3, all flexible. Checked byte for byte against Kafka 3.9's own classes.

Beyond Kafka's: a partition's state says with a tagged field whether members that left its ISR may still be elected (`has_eligible`), which Kafka
skips where it is true and never sees where it is not.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

VERSIONS = {4: 7, 5: 4, 6: 8, 7: 3, 56: 3}
"""The one version of each API key."""

C = TypeVar("C", bound=type)


def _entity(api_key: int, kind: EntityType, header: type[Any]) -> Callable[[C], C]:
    """What kio asks of an entity beside its fields."""

    def add(schema: C) -> C:
        described: Any = schema
        described.__type__ = kind
        described.__version__ = i16(VERSIONS[api_key])
        described.__flexible__ = True
        described.__api_key__ = i16(api_key)
        described.__header_schema__ = header
        return schema

    return add


def _request(api_key: int, kind: EntityType = EntityType.nested) -> Callable[[C], C]:
    return _entity(api_key, kind, RequestHeader)


def _response(api_key: int, kind: EntityType = EntityType.nested) -> Callable[[C], C]:
    return _entity(api_key, kind, ResponseHeader)


_INT8 = {"kafka_type": "int8"}
_INT16 = {"kafka_type": "int16"}
_INT32 = {"kafka_type": "int32"}
_INT64 = {"kafka_type": "int64"}
_BOOL = {"kafka_type": "bool"}
_STRING = {"kafka_type": "string"}
_UUID = {"kafka_type": "uuid"}
_ERROR = {"kafka_type": "error_code"}
_HAS_ELIGIBLE = {"kafka_type": "bool", "tag": 10_000}
_SERIAL = {"kafka_type": "int64", "tag": 10_001}


# LeaderAndIsr.
@_request(4)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState:
    partition_index: i32 = field(metadata=_INT32)
    controller_epoch: i32 = field(metadata=_INT32)
    leader: BrokerId = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[BrokerId, ...] = field(metadata=_INT32)
    partition_epoch: i32 = field(metadata=_INT32)
    replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    adding_replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    removing_replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    is_new: bool = field(metadata=_BOOL)
    leader_recovery_state: i8 = field(metadata=_INT8)
    has_eligible: bool = field(metadata=_HAS_ELIGIBLE, default=False)


@_request(4)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState:
    topic_name: TopicName = field(metadata=_STRING)
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@_request(4)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader:
    broker_id: BrokerId = field(metadata=_INT32)
    host_name: str = field(metadata=_STRING)
    port: i32 = field(metadata=_INT32)


@_request(4, EntityType.request)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    controller_id: BrokerId = field(metadata=_INT32)
    is_kraft_controller: bool = field(metadata=_BOOL)
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64)
    type: i8 = field(metadata=_INT8)
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...]
    serial: i64 = field(metadata=_SERIAL, default=i64(0))


@_response(4)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError:
    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR)


@_response(4)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError:
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@_response(4, EntityType.response)
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse:
    error_code: ErrorCode = field(metadata=_ERROR)
    topics: tuple[LeaderAndIsrTopicError, ...]


# StopReplica.
@_request(5)
@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState:
    partition_index: i32 = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    delete_partition: bool = field(metadata=_BOOL)


@_request(5)
@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState:
    topic_name: TopicName = field(metadata=_STRING)
    partition_states: tuple[StopReplicaPartitionState, ...]


@_request(5, EntityType.request)
@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    controller_id: BrokerId = field(metadata=_INT32)
    is_kraft_controller: bool = field(metadata=_BOOL)
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64)
    topic_states: tuple[StopReplicaTopicState, ...]
    serial: i64 = field(metadata=_SERIAL, default=i64(0))


@_response(5)
@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError:
    topic_name: TopicName = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR)


@_response(5, EntityType.response)
@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse:
    error_code: ErrorCode = field(metadata=_ERROR)
    partition_errors: tuple[StopReplicaPartitionError, ...]


# UpdateMetadata.
@_request(6)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState:
    partition_index: i32 = field(metadata=_INT32)
    controller_epoch: i32 = field(metadata=_INT32)
    leader: BrokerId = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[BrokerId, ...] = field(metadata=_INT32)
    zk_version: i32 = field(metadata=_INT32)
    replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    offline_replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    has_eligible: bool = field(metadata=_HAS_ELIGIBLE, default=False)


@_request(6)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState:
    topic_name: TopicName = field(metadata=_STRING)
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@_request(6)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint:
    port: i32 = field(metadata=_INT32)
    host: str = field(metadata=_STRING)
    listener: str = field(metadata=_STRING)
    security_protocol: i16 = field(metadata=_INT16)


@_request(6)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker:
    id: BrokerId = field(metadata=_INT32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=_STRING)


@_request(6, EntityType.request)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    controller_id: BrokerId = field(metadata=_INT32)
    is_kraft_controller: bool = field(metadata=_BOOL)
    type: i8 = field(metadata={"kafka_type": "int8", "tag": 0}, default=i8(0))
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64)
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]
    serial: i64 = field(metadata=_SERIAL, default=i64(0))


@_response(6, EntityType.response)
@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse:
    error_code: ErrorCode = field(metadata=_ERROR)


# ControlledShutdown.
@_request(7, EntityType.request)
@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest:
    broker_id: BrokerId = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64)


@_response(7)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition:
    topic_name: TopicName = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)


@_response(7, EntityType.response)
@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse:
    error_code: ErrorCode = field(metadata=_ERROR)
    remaining_partitions: tuple[RemainingPartition, ...]


# AlterPartition: the request is kio's.
@_response(56)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredPartition:
    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR)
    leader_id: BrokerId = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[BrokerId, ...] = field(metadata=_INT32)
    leader_recovery_state: i8 = field(metadata=_INT8)
    partition_epoch: i32 = field(metadata=_INT32)
    has_eligible: bool = field(metadata=_HAS_ELIGIBLE, default=False)


@_response(56)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTopic:
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partitions: tuple[AlteredPartition, ...]


@_response(56, EntityType.response)
@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse:
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    error_code: ErrorCode = field(metadata=_ERROR)
    topics: tuple[AlteredTopic, ...]


SCHEMAS: dict[int, tuple[type, type]] = {
    4: (LeaderAndIsrRequest, LeaderAndIsrResponse),
    5: (StopReplicaRequest, StopReplicaResponse),
    6: (UpdateMetadataRequest, UpdateMetadataResponse),
    7: (ControlledShutdownRequest, ControlledShutdownResponse),
    56: (AlterPartitionRequest, AlterPartitionResponse),
}
"""Request and response by API key."""
