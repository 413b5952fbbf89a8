"""The client's hand-written Fetch and Produce say what kio's schemas say, in every version."""

from __future__ import annotations

import io
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.client import fetch_codec, produce
from penstock.client.fetch_codec import FetchCall, decode_fetch_answer, encode_fetch_call
from penstock.client.produce import ProduceCall, encode_produce_call
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.fetch import AbortedTransaction
from penstock.protocol.schemas import Shape

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16).filter(any)
fetch_calls = st.builds(
    FetchCall, st.text(max_size=20), topic_ids, int32, int32, int64, int32, st.integers(0, 2**31 - 1), st.booleans()
)


def read_request(api_key: int, version: int, body: bytes) -> tuple[Any, int]:
    return entity_reader(load_request_schema(api_key, version))(body, 0)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize("version", range(fetch_codec.LOWEST, fetch_codec.HIGHEST + 1))
@settings(max_examples=20)
@given(call=fetch_calls)
def test_a_fetch_call_is_what_kio_reads(version: int, call: FetchCall) -> None:
    body = encode_fetch_call(call, version)
    request, size = read_request(1, version, body)
    assert size == len(body)
    assert request.isolation_level == int(call.read_committed)
    assert request.max_wait == timedelta(milliseconds=call.wait_ms)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert topic.topic_id == uuid.UUID(bytes=call.topic_id) if version >= 13 else topic.topic == call.topic
    assert (partition.partition, partition.fetch_offset) == (call.partition, call.offset)
    assert partition.partition_max_bytes == call.bytes_max
    if version >= 9:
        assert partition.current_leader_epoch == call.leader_epoch
    if version >= 7:
        assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, -1, ())


def fetch_answer(version: int, *, records: bytes | None, aborted: tuple[AbortedTransaction, ...] | None) -> Any:
    shape = Shape(load_response_schema(1, version))
    found = shape.responses.partitions
    partition = found.make(
        partition_index=5,
        error_code=ErrorCode.none,
        high_watermark=11,
        last_stable_offset=10,
        log_start_offset=2,
        aborted_transactions=None
        if aborted is None
        else tuple(found.aborted_transactions.make(producer_id=one[0], first_offset=one[1]) for one in aborted),
        preferred_read_replica=-1,
        records=records,
    )
    topic = shape.responses.make(topic="t", topic_id=uuid.UUID(int=1), partitions=(partition,))
    return shape.make(throttle_time=timedelta(), error_code=ErrorCode.none, session_id=0, responses=(topic,))


@pytest.mark.parametrize("version", range(fetch_codec.LOWEST, fetch_codec.HIGHEST + 1))
@settings(max_examples=20)
@given(
    records=st.none() | st.binary(max_size=300),
    aborted=st.none() | st.lists(st.builds(AbortedTransaction, int64, int64), max_size=3).map(tuple),
)
def test_a_fetch_answer_is_read_as_kio_writes_it(
    version: int, records: bytes | None, aborted: tuple[AbortedTransaction, ...] | None
) -> None:
    body = b"head" + written(fetch_answer(version, records=records, aborted=aborted))
    found = decode_fetch_answer(bytearray(body), 4, version)
    assert found.error_code == 0
    assert (found.high_watermark, found.last_stable_offset) == (11, 10)
    assert found.log_start_offset == (2 if version >= 5 else -1)
    assert found.aborted == (aborted or ())
    assert bytes(found.records) == (records or b"")


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_fetch_answer_that_is_cut_off_is_refused(version: int) -> None:
    body = written(fetch_answer(version, records=b"x" * 40, aborted=(AbortedTransaction(1, 2),)))
    tail = 4 if version >= 12 else 0  # sections of tags, which nobody needs
    for size in range(len(body) - tail):
        with pytest.raises(MalformedMessageError):
            decode_fetch_answer(bytearray(body[:size]), 0, version)


@pytest.mark.parametrize("version", range(produce.LOWEST, produce.HIGHEST + 1))
@settings(max_examples=20)
@given(records=st.binary(max_size=300), transactional_id=st.none() | st.text(max_size=10), partition=int32)
def test_a_produce_call_is_what_kio_reads(
    version: int, records: bytes, transactional_id: str | None, partition: int
) -> None:
    call = ProduceCall("t", bytes(range(16)), partition, records, -1, 1500, transactional_id)
    body = b"".join(encode_produce_call(call, version))
    request, size = read_request(0, version, body)
    assert size == len(body)
    assert (request.transactional_id, request.acks) == (transactional_id, -1)
    assert request.timeout == timedelta(milliseconds=1500)
    (topic,) = request.topic_data
    (entry,) = topic.partition_data
    assert topic.topic_id == uuid.UUID(bytes=bytes(range(16))) if version >= 13 else topic.name == "t"
    assert (entry.index, bytes(entry.records)) == (partition, records)
