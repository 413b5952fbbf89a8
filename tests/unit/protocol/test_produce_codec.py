"""The hand-written Produce codec says what kio's schemas say, in every version."""

from __future__ import annotations

import contextlib
import datetime
import io
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.produce import (
    NO_TOPIC_ID,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProduceAnswer,
    ProducedPartition,
    ProducedTopic,
    RecordError,
    decode_produce_request,
    encode_produce_answer,
)
from penstock.protocol.schemas import Shape

VERSIONS = range(3, 14)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
topic_ids = st.binary(min_size=16, max_size=16).filter(any)
milliseconds = st.integers(0, 2**31 - 1)


def write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@st.composite
def requests(draw: st.DrawFn, version: int) -> Any:
    shape = Shape(load_request_schema(0, version))
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = tuple(
            shape.topic_data.partition_data.make(index=draw(int32), records=draw(st.none() | st.binary(max_size=200)))
            for _ in range(draw(st.integers(0, 3)))
        )
        topic_id = uuid.UUID(bytes=draw(topic_ids))
        topics.append(shape.topic_data.make(name=draw(names), topic_id=topic_id, partition_data=partitions))
    return shape.make(
        transactional_id=draw(st.none() | names),
        acks=draw(st.integers(-1, 1)),
        timeout=datetime.timedelta(milliseconds=draw(milliseconds)),
        topic_data=tuple(topics),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_reads_as_kio_wrote_it(version: int) -> None:
    @settings(max_examples=60)
    @given(requests(version), st.binary(max_size=8))
    def check(entity: Any, prefix: bytes) -> None:
        request = decode_produce_request(prefix + write(entity), len(prefix), version)
        assert request.transactional_id == entity.transactional_id
        assert request.acks == entity.acks
        assert request.timeout_ms == round(entity.timeout.total_seconds() * 1000)
        assert len(request.topics) == len(entity.topic_data)
        for topic, expected in zip(request.topics, entity.topic_data, strict=True):
            assert topic.name == getattr(expected, "name", "")
            assert topic.topic_id == (expected.topic_id.bytes if version >= 13 else NO_TOPIC_ID)
            assert [(p.partition, None if p.records is None else bytes(p.records)) for p in topic.partitions] == [
                (p.index, p.records) for p in expected.partition_data
            ]

    check()


@st.composite
def answers(draw: st.DrawFn) -> ProduceAnswer:
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = [
            ProducedPartition(
                draw(int32),
                draw(st.sampled_from(ErrorCode)).value,
                draw(int64),
                draw(st.just(-1) | st.integers(0, 2**41)),
                draw(int64),
                tuple(RecordError(draw(int32), draw(st.none() | names)) for _ in range(draw(st.integers(0, 2)))),
                draw(st.none() | names),
                draw(st.none() | st.builds(LeaderIdAndEpoch, st.integers(0, 9), st.integers(0, 9))),
            )
            for _ in range(draw(st.integers(0, 3)))
        ]
        topics.append(ProducedTopic(draw(names), draw(topic_ids), partitions))
    endpoints = tuple(
        draw(st.lists(st.builds(NodeEndpoint, st.integers(0, 9), names, int32, st.none() | names), max_size=2))
    )
    return ProduceAnswer(topics, draw(milliseconds), endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_reads_in_kio_as_it_was_meant(version: int) -> None:
    read: Any = entity_reader(load_response_schema(0, version))

    @settings(max_examples=60)
    @given(answers())
    def check(answer: ProduceAnswer) -> None:
        encoded = encode_produce_answer(answer, version)
        entity, size = read(encoded, 0)
        assert size == len(encoded)
        assert write(entity) == encoded, "kio writes the same bytes"
        assert round(entity.throttle_time.total_seconds() * 1000) == answer.throttle_ms
        for topic, expected in zip(entity.responses, answer.topics, strict=True):
            if version >= 13:
                assert topic.topic_id.bytes == expected.topic_id
            else:
                assert topic.name == expected.name
            for got, partition in zip(topic.partition_responses, expected.partitions, strict=True):
                assert (got.index, got.error_code, got.base_offset) == partition[:3]
                if version >= 5:
                    assert got.log_start_offset == partition.log_start_offset
                if version >= 8:
                    assert got.error_message == partition.error_message
                    assert [(e.batch_index, e.batch_index_error_message) for e in got.record_errors] == list(
                        partition.record_errors
                    )
                if version >= 10 and partition.current_leader is not None:
                    assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == partition.current_leader

    check()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_and_every_changed_byte_is_read_or_refused(version: int) -> None:
    @settings(max_examples=40)
    @given(requests(version), st.data())
    # A3
    def check(entity: Any, data: st.DataObject) -> None:
        frame = bytearray(write(entity))
        for _ in range(data.draw(st.integers(1, 4))):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        frame = frame[: data.draw(st.integers(0, len(frame)))]
        with contextlib.suppress(MalformedMessageError):
            decode_produce_request(bytes(frame), 0, version)

    check()


def test_a_claim_of_many_partitions_in_a_small_frame_is_refused() -> None:
    # A2
    plain = b"\xff\xff" + b"\x00\x01" + bytes(4) + b"\x7f\xff\xff\xff"
    with pytest.raises(MalformedMessageError, match="elements are claimed"):
        decode_produce_request(plain, 0, 7)
    flexible = b"\x00" + b"\x00\x01" + bytes(4) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(MalformedMessageError, match="elements are claimed"):
        decode_produce_request(flexible, 0, 9)
