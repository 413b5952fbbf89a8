"""The four messages that kio lacks, against bytes that Kafka 3.9.2's own classes read into these values and wrote again."""

import io
import uuid
from datetime import timedelta
from typing import Any, cast

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.client.messages import call_codec
from penstock.protocol import zookeeper_era as era
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.schemas import Shape, codec

TOPIC_ID = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def leader_and_isr(**changed: Any) -> era.LeaderAndIsrRequest:
    entity: Any = era.LeaderAndIsrPartitionState
    state = entity(
        partition_index=2,
        controller_epoch=3,
        leader=4,
        leader_epoch=5,
        isr=(4, 6),
        partition_epoch=7,
        replicas=(4, 6, 8),
        adding_replicas=(9,),
        removing_replicas=(8,),
        is_new=True,
        leader_recovery_state=1,
    )
    topic: Any = era.LeaderAndIsrTopicState
    live: Any = era.LeaderAndIsrLiveLeader
    request: Any = era.LeaderAndIsrRequest
    values = {
        "controller_id": 1,
        "is_kraft_controller": False,
        "controller_epoch": 12,
        "broker_epoch": 1 << 40,
        "type": 2,
        "topic_states": (topic(topic_name="täpic", topic_id=TOPIC_ID, partition_states=(state,)),),
        "live_leaders": (live(broker_id=4, host_name="host", port=9092),),
    }
    return request(**{**values, **changed})  # type: ignore[no-any-return]


def update_metadata() -> era.UpdateMetadataRequest:
    state: Any = era.UpdateMetadataPartitionState
    topic: Any = era.UpdateMetadataTopicState
    endpoint: Any = era.UpdateMetadataEndpoint
    broker: Any = era.UpdateMetadataBroker
    request: Any = era.UpdateMetadataRequest
    partition = state(
        partition_index=2,
        controller_epoch=3,
        leader=-2,
        leader_epoch=5,
        isr=(4,),
        zk_version=7,
        replicas=(4, 6),
        offline_replicas=(6,),
    )
    ends = (endpoint(port=9092, host="::1", listener="PLAINTEXT", security_protocol=0),)
    return request(  # type: ignore[no-any-return]
        controller_id=1,
        is_kraft_controller=False,
        type=2,
        controller_epoch=12,
        broker_epoch=13,
        topic_states=(topic(topic_name="t", topic_id=TOPIC_ID, partition_states=(partition,)),),
        live_brokers=(broker(id=4, endpoints=ends, rack="r1"), broker(id=6, endpoints=(), rack=None)),
    )


def stop_replica() -> era.StopReplicaRequest:
    state: Any = era.StopReplicaPartitionState
    topic: Any = era.StopReplicaTopicState
    request: Any = era.StopReplicaRequest
    states = (
        state(partition_index=2, leader_epoch=-2, delete_partition=True),
        state(partition_index=3, leader_epoch=5, delete_partition=False),
    )
    return request(  # type: ignore[no-any-return]
        controller_id=1,
        is_kraft_controller=False,
        controller_epoch=12,
        broker_epoch=13,
        topic_states=(topic(topic_name="t", partition_states=states),),
    )


def controlled_shutdown() -> era.ControlledShutdownRequest:
    request: Any = era.ControlledShutdownRequest
    return request(broker_id=4, broker_epoch=1 << 33)  # type: ignore[no-any-return]


def responses() -> dict[int, Any]:
    one: Any = era.LeaderAndIsrPartitionError
    topic: Any = era.LeaderAndIsrTopicError
    stopped: Any = era.StopReplicaPartitionError
    left: Any = era.RemainingPartition
    stale, storage = ErrorCode.stale_controller_epoch, ErrorCode.kafka_storage_error
    error = one(partition_index=2, error_code=storage)
    return {
        4: era.LeaderAndIsrResponse(error_code=stale, topics=(topic(topic_id=TOPIC_ID, partition_errors=(error,)),)),
        5: era.StopReplicaResponse(
            error_code=stale, partition_errors=(stopped(topic_name="t", partition_index=2, error_code=storage),)
        ),
        6: era.UpdateMetadataResponse(error_code=stale),
        7: era.ControlledShutdownResponse(
            error_code=stale, remaining_partitions=(left(topic_name="t", partition_index=2),)
        ),
    }


REQUESTS: dict[int, Any] = {4: leader_and_isr, 5: stop_replica, 6: update_metadata, 7: controlled_shutdown}

REQUEST_BYTES: dict[int, str] = {
    4: (
        "00000001000000000c000001000000000002020774c3a47069630102030405060708090a0b0c0d0e0f10020000000200"
        "000003000000040000000503000000040000000600000007040000000400000006000000080200000009020000000801"
        "010000020000000405686f7374000023840000"
    ),
    5: "00000001000000000c000000000000000d0202740300000002fffffffe0100000000030000000500000000",
    6: (
        "00000001000000000c000000000000000d0202740102030405060708090a0b0c0d0e0f10020000000200000003ffffff"
        "fe000000050200000004000000070300000004000000060200000006000003000000040200002384043a3a310a504c41"
        "494e54455854000000037231000000000601000001000102"
    ),
    7: "00000004000000020000000000",
}
RESPONSE_BYTES: dict[int, str] = {
    4: "000b020102030405060708090a0b0c0d0e0f1002000000020038000000",
    5: "000b0202740000000200380000",
    6: "000b00",
    7: "000b020274000000020000",
}


@pytest.mark.parametrize("key", sorted(REQUESTS))
def test_requests_are_kafkas_byte_for_byte(key: int) -> None:
    version = era.VERSIONS[key]
    request = REQUESTS[key]()
    assert call_codec(key, version).encode(request).hex() == REQUEST_BYTES[key]
    assert codec(key, version).decode(bytes.fromhex(REQUEST_BYTES[key]), 0) == request


@pytest.mark.parametrize("key", sorted(REQUESTS))
def test_responses_are_kafkas_byte_for_byte(key: int) -> None:
    version = era.VERSIONS[key]
    response = responses()[key]
    assert codec(key, version).encode(response).hex() == RESPONSE_BYTES[key]
    assert call_codec(key, version).decode(bytes.fromhex(RESPONSE_BYTES[key])) == response


def test_a_frame_that_claims_too_much_is_refused() -> None:
    # A2
    frame = bytearray(bytes.fromhex(REQUEST_BYTES[4]))
    frame[22:23] = b"\xff\xff\xff\xff\x07"  # topic states
    with pytest.raises(MalformedMessageError):
        codec(4, 7).decode(bytes(frame), 0)


def test_what_is_beyond_kafka_is_a_tagged_field_and_not_there_where_it_says_nothing() -> None:
    """Kafka's own classes skip a tag that they do not know."""
    kafkas = load_response_schema(56, 3)
    partition: Any = era.AlteredPartition
    topic: Any = era.AlteredTopic
    values = {
        "partition_index": 2,
        "error_code": ErrorCode.none,
        "leader_id": 4,
        "leader_epoch": 5,
        "isr": (4, 6),
        "leader_recovery_state": 0,
        "partition_epoch": 8,
    }
    shape = Shape(kafkas).topics
    plain = shape.make(topic_id=TOPIC_ID, partitions=(shape.partitions.make(**values),))
    buffer = io.BytesIO()
    entity_writer(kafkas)(
        buffer, Shape(kafkas).make(throttle_time=timedelta(), error_code=ErrorCode.none, topics=(plain,))
    )
    sizes = []
    for has_eligible in (False, True):
        one = partition(**values, has_eligible=has_eligible)
        answer = era.AlterPartitionResponse(
            throttle_time=cast(Any, timedelta()),
            error_code=ErrorCode.none,
            topics=(topic(topic_id=TOPIC_ID, partitions=(one,)),),
        )
        written = codec(56, 3).encode(answer)
        assert call_codec(56, 3).decode(written) == answer
        sizes.append(len(written))
        if not has_eligible:
            assert written == buffer.getvalue()
    assert sizes[1] > sizes[0]
