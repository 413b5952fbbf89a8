"""The hand-written Fetch codec says what kio's schemas say, in every version."""

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
from penstock.protocol.fetch import (
    HIGH_WATERMARK_UNKNOWN,
    AbortedTransaction,
    EpochEndOffset,
    FetchAnswer,
    FetchedPartition,
    FetchedTopic,
    decode_fetch_request,
    encode_fetch_answer,
)
from penstock.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from penstock.protocol.schemas import Shape

VERSIONS = range(4, 19)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
topic_ids = st.binary(min_size=16, max_size=16).filter(any)
milliseconds = st.integers(0, 2**31 - 1)


class FakeSlice:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)


def write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@st.composite
def requests(draw: st.DrawFn, version: int) -> Any:
    shape = Shape(load_request_schema(1, version))
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = tuple(
            shape.topics.partitions.make(
                partition=draw(int32),
                current_leader_epoch=draw(int32),
                fetch_offset=draw(int64),
                last_fetched_epoch=draw(int32),
                log_start_offset=draw(int64),
                partition_max_bytes=draw(int32),
                replica_directory_id=draw(st.none() | st.uuids()),
                high_watermark=draw(st.just(HIGH_WATERMARK_UNKNOWN) | int64),
            )
            for _ in range(draw(st.integers(0, 3)))
        )
        topic_id = uuid.UUID(bytes=draw(topic_ids))
        topics.append(shape.topics.make(topic=draw(names), topic_id=topic_id, partitions=partitions))
    forgotten = tuple(
        shape.forgotten_topics_data.make(
            topic=draw(names), topic_id=uuid.UUID(bytes=draw(topic_ids)), partitions=tuple(draw(st.lists(int32)))
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    optional: dict[str, Any] = {}
    if version >= 15:
        optional["replica_state"] = shape.replica_state.make(replica_id=draw(int32), replica_epoch=draw(int64))
    return shape.make(
        cluster_id=draw(st.none() | names),
        replica_id=draw(int32),
        max_wait=datetime.timedelta(milliseconds=draw(milliseconds)),
        min_bytes=draw(int32),
        max_bytes=draw(int32),
        isolation_level=draw(st.integers(0, 1)),
        session_id=draw(int32),
        session_epoch=draw(int32),
        topics=tuple(topics),
        forgotten_topics_data=forgotten,
        rack_id=draw(names),
        **optional,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_reads_as_kio_wrote_it(version: int) -> None:
    @settings(max_examples=60)
    @given(requests(version), st.binary(max_size=8))
    def check(entity: Any, prefix: bytes) -> None:
        request = decode_fetch_request(prefix + write(entity), len(prefix), version)
        assert request.wait_ms_max == round(entity.max_wait.total_seconds() * 1000)
        assert request.bytes_min == entity.min_bytes
        assert request.bytes_max == entity.max_bytes
        assert request.isolation_level == entity.isolation_level
        assert request.session_id == getattr(entity, "session_id", 0)
        assert request.session_epoch == getattr(entity, "session_epoch", -1)
        assert request.rack_id == getattr(entity, "rack_id", "")
        assert request.cluster_id == getattr(entity, "cluster_id", None)
        state = getattr(entity, "replica_state", entity)
        assert request.replica_id == state.replica_id
        assert request.replica_epoch == getattr(state, "replica_epoch", -1)
        for topic, expected in zip(request.topics, entity.topics, strict=True):
            assert topic.name == getattr(expected, "topic", "")
            assert version < 13 or topic.topic_id == expected.topic_id.bytes
            for got, partition in zip(topic.partitions, expected.partitions, strict=True):
                assert got.partition == partition.partition
                assert got.fetch_offset == partition.fetch_offset
                assert got.bytes_max == partition.partition_max_bytes
                assert got.current_leader_epoch == getattr(partition, "current_leader_epoch", -1)
                assert got.last_fetched_epoch == getattr(partition, "last_fetched_epoch", -1)
                assert got.log_start_offset == getattr(partition, "log_start_offset", -1)
                assert got.high_watermark == getattr(partition, "high_watermark", HIGH_WATERMARK_UNKNOWN)
        for forgotten, expected in zip(request.forgotten, getattr(entity, "forgotten_topics_data", ()), strict=True):
            assert forgotten.partitions == expected.partitions

    check()


@st.composite
def answers(draw: st.DrawFn) -> FetchAnswer:
    topics = []
    for _ in range(draw(st.integers(0, 3))):
        partitions = [
            FetchedPartition(
                draw(int32),
                draw(st.sampled_from(ErrorCode)).value,
                draw(int64),
                draw(int64),
                draw(int64),
                draw(st.none() | st.lists(st.builds(AbortedTransaction, int64, int64), max_size=2).map(tuple)),
                draw(int32),
                draw(st.none() | st.binary(max_size=300) | st.binary(max_size=300).map(FakeSlice)),
                draw(st.none() | st.builds(EpochEndOffset, st.integers(0, 9), st.integers(0, 9))),
                draw(st.none() | st.builds(LeaderIdAndEpoch, st.integers(0, 9), st.integers(0, 9))),
            )
            for _ in range(draw(st.integers(0, 3)))
        ]
        topics.append(FetchedTopic(draw(names), draw(topic_ids), partitions))
    endpoints = tuple(
        draw(st.lists(st.builds(NodeEndpoint, st.integers(0, 9), names, int32, st.none() | names), max_size=2))
    )
    error_code = draw(st.sampled_from(ErrorCode)).value
    return FetchAnswer(error_code, draw(int32), topics, draw(milliseconds), endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_reads_in_kio_as_it_was_meant(version: int) -> None:
    read: Any = entity_reader(load_response_schema(1, version))

    @settings(max_examples=60)
    @given(answers())
    def check(answer: FetchAnswer) -> None:
        parts = encode_fetch_answer(answer, version)
        encoded = b"".join(part.data if isinstance(part, FakeSlice) else part for part in parts)  # type: ignore[misc]
        entity, size = read(encoded, 0)
        assert size == len(encoded)
        assert write(entity) == encoded, "kio writes the same bytes"
        assert round(entity.throttle_time.total_seconds() * 1000) == answer.throttle_ms
        for topic, expected in zip(entity.responses, answer.topics, strict=True):
            for got, partition in zip(topic.partitions, expected.partitions, strict=True):
                records = partition.records.data if isinstance(partition.records, FakeSlice) else partition.records
                assert (got.partition_index, got.error_code, got.high_watermark) == partition[:3]
                assert got.last_stable_offset == partition.last_stable_offset
                assert got.records == records
                if partition.aborted is None:
                    assert got.aborted_transactions is None
                else:
                    assert [(a.producer_id, a.first_offset) for a in got.aborted_transactions] == list(
                        partition.aborted
                    )

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
            decode_fetch_request(bytes(frame), 0, version)

    check()
