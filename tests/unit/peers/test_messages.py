"""What a controller and brokers say to each other reads as it was written."""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from penstock.base.ids import TopicPartition
from penstock.controller.errors import InvalidUpdateVersionError, StaleControllerEpochError
from penstock.controller.peer_requests import (
    IsrChange,
    IsrChanged,
    IsrMember,
    IsrRequest,
    LeaderAndIsr,
    LiveLeader,
    PartitionState,
    PeerRequest,
    RequestType,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.peers import messages
from penstock.protocol.schemas import codec

TOPIC_ID = uuid.UUID(int=5)
STATE = PartitionState(
    topic="t",
    topic_id=TOPIC_ID,
    partition=2,
    controller_epoch=3,
    leader=4,
    leader_epoch=5,
    isr=(4, 6),
    partition_epoch=7,
    replicas=(4, 6, 8),
    has_eligible=True,
)
HEAD: Any = {"controller_id": 1, "controller_epoch": 2, "broker_epoch": 3}
REQUESTS: list[tuple[PeerRequest, Any]] = [
    (
        LeaderAndIsr(
            **HEAD,
            type=RequestType.FULL,
            partitions=(STATE,),
            live_leaders=(LiveLeader(broker_id=4, host="h", port=9),),
        ),
        messages.read_leader_and_isr,
    ),
    (
        StopReplica(**HEAD, partitions=(StoppedPartition(topic="t", partition=2, leader_epoch=-2, delete=True),)),
        messages.read_stop_replica,
    ),
    (
        UpdateMetadata(
            **HEAD,
            partitions=(STATE,),
            brokers=(
                BrokerNode(
                    broker_id=4,
                    endpoints=(Endpoint(listener="L", security_protocol="SASL_SSL", host="h", port=9),),
                    rack="r",
                ),
            ),
        ),
        messages.read_update_metadata,
    ),
]


@pytest.mark.parametrize(("request_", "read"), REQUESTS)
def test_a_controllers_request_reads_as_it_was_written(request_: PeerRequest, read: Any) -> None:
    call = messages.write_request(request_)
    assert read(codec(call.api_key, call.version).decode(call.body, 0)) == request_


def test_an_answer_names_the_partitions_that_failed() -> None:
    request = REQUESTS[0][0]
    shape = codec(4, 7).response
    errors = (shape.topics.partition_errors.make(partition_index=2, error_code=ErrorCode.stale_controller_epoch),)
    entity = shape.make(
        error_code=ErrorCode.none, topics=(shape.topics.make(topic_id=TOPIC_ID, partition_errors=errors),)
    )
    answer = messages.read_peer_answer(request, entity)
    assert answer.error is None
    assert isinstance(answer.partition_errors[TopicPartition("t", 2)], StaleControllerEpochError)


def test_a_change_of_an_isr_and_its_answer_read_as_they_were_written() -> None:
    members = (IsrMember(broker_id=4, broker_epoch=10), IsrMember(broker_id=6, broker_epoch=-1))
    change = IsrChange(topic_id=TOPIC_ID, partition=2, leader_epoch=5, partition_epoch=7, new_isr=members)
    request = IsrRequest(broker_id=4, broker_epoch=10, changes=(change,))
    call = messages.write_isr_request(request)
    assert messages.read_isr_request(codec(56, 3).decode(call.body, 0)) == request
    done = IsrChanged(
        topic_id=TOPIC_ID, partition=2, leader=4, leader_epoch=5, isr=(4, 6), partition_epoch=8, has_eligible=True
    )
    failed = IsrChanged(topic_id=TOPIC_ID, partition=3)
    entity = messages.write_isr_answer(
        codec(56, 3).response, ErrorCode.none, [(done, ErrorCode.none), (failed, ErrorCode.invalid_update_version)]
    )
    read = messages.read_isr_answer(entity)
    assert isinstance(read, list)
    assert read[0] == done
    assert isinstance(read[1].error, InvalidUpdateVersionError)
