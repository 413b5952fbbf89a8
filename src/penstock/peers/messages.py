"""What a controller and brokers say to each other, between its values and its wire, both ways.

Requests are written here for the sender and read here for the handlers, so that the two cannot come apart.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.messages import call_codec
from penstock.controller.peer_requests import (
    ControlledShutdown,
    IsrChange,
    IsrChanged,
    IsrMember,
    IsrRequest,
    LeaderAndIsr,
    LiveLeader,
    PartitionState,
    PeerAnswer,
    PeerRequest,
    RequestType,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.peers.errors import error_of

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN, ALTER_PARTITION = 4, 5, 6, 7, 56
VERSIONS = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8, CONTROLLED_SHUTDOWN: 3, ALTER_PARTITION: 3}

_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

T = TypeVar("T")
K = TypeVar("K")


class Call(NamedTuple):
    api_key: int
    version: int
    body: bytes


def _call(api_key: int, **values: object) -> Call:
    version = VERSIONS[api_key]
    codec = call_codec(api_key, version)
    return Call(api_key, version, codec.encode(codec.request.make(**values)))


def _shape(api_key: int) -> Any:
    return call_codec(api_key, VERSIONS[api_key]).request


def _grouped(items: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for key, item in items:
        groups.setdefault(key, []).append(item)
    return groups


# From a controller to a broker.
def write_request(request: PeerRequest) -> Call:
    if isinstance(request, LeaderAndIsr):
        return _write_leader_and_isr(request)
    if isinstance(request, StopReplica):
        return _write_stop_replica(request)
    return _write_update_metadata(request)


def _write_leader_and_isr(request: LeaderAndIsr) -> Call:
    shape = _shape(LEADER_AND_ISR)
    topics = _grouped(((state.topic, state.topic_id), state) for state in request.partitions)
    return _call(
        LEADER_AND_ISR,
        controller_id=request.controller_id,
        serial=request.serial,
        is_kraft_controller=False,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        type=int(request.type),
        topic_states=tuple(
            shape.topic_states.make(
                topic_name=topic,
                topic_id=topic_id,
                partition_states=tuple(
                    shape.topic_states.partition_states.make(
                        **_told(state),
                        partition_epoch=state.partition_epoch,
                        adding_replicas=state.adding_replicas,
                        removing_replicas=state.removing_replicas,
                        is_new=state.is_new,
                        leader_recovery_state=0,
                    )
                    for state in states
                ),
            )
            for (topic, topic_id), states in topics.items()
        ),
        live_leaders=tuple(
            shape.live_leaders.make(broker_id=live.broker_id, host_name=live.host, port=live.port)
            for live in request.live_leaders
        ),
    )


def _told(state: PartitionState) -> dict[str, Any]:
    """What LeaderAndIsr and UpdateMetadata both tell of a partition; `_partition_state` reads it."""
    return {
        "partition_index": state.partition,
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "replicas": state.replicas,
        "has_eligible": state.has_eligible,
    }


def _partition_state(topic: Any, state: Any, partition_epoch: int, **further: Any) -> PartitionState:
    """The other way round; the two have another name for a partition's epoch."""
    return PartitionState(
        topic=str(topic.topic_name),
        topic_id=topic.topic_id or uuid.UUID(int=0),
        partition=state.partition_index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        partition_epoch=partition_epoch,
        replicas=tuple(state.replicas),
        has_eligible=state.has_eligible,
        **further,
    )


def read_leader_and_isr(entity: Any) -> LeaderAndIsr:
    return LeaderAndIsr(
        controller_id=entity.controller_id,
        serial=entity.serial,
        controller_epoch=entity.controller_epoch,
        broker_epoch=entity.broker_epoch,
        type=RequestType(entity.type),
        partitions=tuple(
            _partition_state(
                topic,
                state,
                state.partition_epoch,
                adding_replicas=tuple(state.adding_replicas),
                removing_replicas=tuple(state.removing_replicas),
                is_new=state.is_new,
            )
            for topic in entity.topic_states
            for state in topic.partition_states
        ),
        live_leaders=tuple(
            LiveLeader(broker_id=live.broker_id, host=live.host_name, port=live.port) for live in entity.live_leaders
        ),
    )


def _write_stop_replica(request: StopReplica) -> Call:
    shape = _shape(STOP_REPLICA).topic_states
    return _call(
        STOP_REPLICA,
        controller_id=request.controller_id,
        serial=request.serial,
        is_kraft_controller=False,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=tuple(
            shape.make(
                topic_name=topic,
                partition_states=tuple(
                    shape.partition_states.make(
                        partition_index=one.partition, leader_epoch=one.leader_epoch, delete_partition=one.delete
                    )
                    for one in stopped
                ),
            )
            for topic, stopped in _grouped((one.topic, one) for one in request.partitions).items()
        ),
    )


def read_stop_replica(entity: Any) -> StopReplica:
    return StopReplica(
        controller_id=entity.controller_id,
        serial=entity.serial,
        controller_epoch=entity.controller_epoch,
        broker_epoch=entity.broker_epoch,
        partitions=tuple(
            StoppedPartition(
                topic=str(topic.topic_name),
                partition=state.partition_index,
                leader_epoch=state.leader_epoch,
                delete=state.delete_partition,
            )
            for topic in entity.topic_states
            for state in topic.partition_states
        ),
    )


def _write_update_metadata(request: UpdateMetadata) -> Call:
    shape = _shape(UPDATE_METADATA)
    topics = _grouped(((state.topic, state.topic_id), state) for state in request.partitions)
    return _call(
        UPDATE_METADATA,
        controller_id=request.controller_id,
        serial=request.serial,
        is_kraft_controller=False,
        type=int(request.type),
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=tuple(
            shape.topic_states.make(
                topic_name=topic,
                topic_id=topic_id,
                partition_states=tuple(
                    shape.topic_states.partition_states.make(
                        **_told(state),
                        zk_version=state.partition_epoch,
                        offline_replicas=state.offline_replicas,
                    )
                    for state in states
                ),
            )
            for (topic, topic_id), states in topics.items()
        ),
        live_brokers=tuple(
            shape.live_brokers.make(
                id=broker.broker_id,
                endpoints=tuple(
                    shape.live_brokers.endpoints.make(
                        port=end.port,
                        host=end.host,
                        listener=end.listener,
                        security_protocol=_SECURITY_PROTOCOLS.index(end.security_protocol),
                    )
                    for end in broker.endpoints
                ),
                rack=broker.rack,
            )
            for broker in request.brokers
        ),
    )


def read_update_metadata(entity: Any) -> UpdateMetadata:
    return UpdateMetadata(
        controller_id=entity.controller_id,
        serial=entity.serial,
        controller_epoch=entity.controller_epoch,
        broker_epoch=entity.broker_epoch,
        type=RequestType(entity.type),
        partitions=tuple(
            _partition_state(
                topic,
                state,
                state.zk_version,
                offline_replicas=tuple(state.offline_replicas),
            )
            for topic in entity.topic_states
            for state in topic.partition_states
        ),
        brokers=tuple(
            BrokerNode(
                broker_id=broker.id,
                endpoints=tuple(
                    Endpoint(
                        listener=end.listener,
                        security_protocol=_SECURITY_PROTOCOLS[end.security_protocol],
                        host=end.host,
                        port=end.port,
                    )
                    for end in broker.endpoints
                ),
                rack=broker.rack,
            )
            for broker in entity.live_brokers
        ),
    )


def read_peer_answer(request: PeerRequest, entity: Any) -> PeerAnswer:
    errors: dict[TopicPartition, PenstockError] = {}
    if isinstance(request, LeaderAndIsr):
        names = {state.topic_id: state.topic for state in request.partitions}
        for topic in entity.topics:
            for one in topic.partition_errors:
                key = TopicPartition(names.get(topic.topic_id, ""), one.partition_index)
                error = error_of(one.error_code, f"LeaderAndIsr of {key}")
                if error is not None:
                    errors[key] = error
    elif isinstance(request, StopReplica):
        for one in entity.partition_errors:
            key = TopicPartition(str(one.topic_name), one.partition_index)
            error = error_of(one.error_code, f"StopReplica of {key}")
            if error is not None:
                errors[key] = error
    return PeerAnswer(error=error_of(entity.error_code, type(request).__name__), partition_errors=errors)


# From a broker to the controller.
def write_isr_request(request: IsrRequest) -> Call:
    shape = _shape(ALTER_PARTITION).topics
    topics = _grouped((change.topic_id, change) for change in request.changes)
    return _call(
        ALTER_PARTITION,
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        topics=tuple(
            shape.make(
                topic_id=topic_id,
                partitions=tuple(
                    shape.partitions.make(
                        partition_index=change.partition,
                        leader_epoch=change.leader_epoch,
                        new_isr_with_epochs=tuple(
                            shape.partitions.new_isr_with_epochs.make(
                                broker_id=member.broker_id, broker_epoch=member.broker_epoch
                            )
                            for member in change.new_isr
                        ),
                        leader_recovery_state=0,
                        partition_epoch=change.partition_epoch,
                    )
                    for change in changes
                ),
            )
            for topic_id, changes in topics.items()
        ),
    )


def read_isr_request(entity: Any) -> IsrRequest:
    return IsrRequest(
        broker_id=entity.broker_id,
        broker_epoch=entity.broker_epoch,
        changes=tuple(
            IsrChange(
                topic_id=topic.topic_id or uuid.UUID(int=0),
                partition=change.partition_index,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
                new_isr=tuple(
                    IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                    for member in change.new_isr_with_epochs
                ),
            )
            for topic in entity.topics
            for change in topic.partitions
        ),
    )


def write_isr_answer(response: Any, error_code: int, changed: Iterable[tuple[IsrChanged, int]]) -> Any:
    """The answer's entity, of changes and their error codes."""
    shape = response.topics
    topics = _grouped((one.topic_id, (one, code)) for one, code in changed)
    return response.make(
        throttle_time=timedelta(),
        error_code=error_code,
        topics=tuple(
            shape.make(
                topic_id=topic_id,
                partitions=tuple(
                    shape.partitions.make(
                        partition_index=one.partition,
                        error_code=code,
                        leader_id=one.leader,
                        leader_epoch=one.leader_epoch,
                        isr=one.isr,
                        leader_recovery_state=0,
                        partition_epoch=one.partition_epoch,
                        has_eligible=one.has_eligible,
                    )
                    for one, code in changes
                ),
            )
            for topic_id, changes in topics.items()
        ),
    )


def read_isr_answer(entity: Any) -> list[IsrChanged] | PenstockError:
    refused = error_of(entity.error_code, "AlterPartition")
    if refused is not None:
        return refused
    return [
        IsrChanged(
            topic_id=topic.topic_id or uuid.UUID(int=0),
            partition=one.partition_index,
            error=error_of(one.error_code, "a change of an ISR"),
            leader=one.leader_id,
            leader_epoch=one.leader_epoch,
            isr=tuple(one.isr),
            partition_epoch=one.partition_epoch,
            has_eligible=one.has_eligible,
        )
        for topic in entity.topics
        for one in topic.partitions
    ]


def write_controlled_shutdown(request: ControlledShutdown) -> Call:
    return _call(CONTROLLED_SHUTDOWN, broker_id=request.broker_id, broker_epoch=request.broker_epoch)
