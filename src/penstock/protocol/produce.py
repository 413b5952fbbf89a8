"""Produce (key 0), versions 3-13, flexible from 9: the hot codec.

Versions: 5 log start offset in the answer; 8 record errors (KIP-467); 9 flexible; 10 the current leader in the answer
    (KIP-951); 13 topic ids for names (KIP-516). Tested against kio's schemas, version by version.
Records stay where they are in the frame: a partition's records are a view, so a frame lives as long as a view of it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.primitives import (
    INT16,
    INT32,
    Buffer,
    compact_string,
    nullable_compact_string,
    nullable_string,
    read_count,
    read_nullable_compact_string,
    read_nullable_string,
    read_span,
    read_unsigned_varint,
    skip_tags,
    string,
    tag_section,
    unsigned_varint,
)

FLEXIBLE_FROM = 9
TOPIC_ID_FROM = 13
NO_TOPIC_ID = bytes(16)


class ProducePartition(NamedTuple):
    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    name: str
    """Empty where the version speaks in ids."""
    topic_id: bytes
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    batch_index: int
    message: str | None


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProducedPartition(NamedTuple):
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


class ProducedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[ProducedPartition]


class ProduceAnswer(NamedTuple):
    topics: list[ProducedTopic]
    throttle_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_LENGTH = struct.Struct(">ii")
_ANSWER_WITHOUT_START = struct.Struct(">ihqq")
_ANSWER = struct.Struct(">ihqqq")


def _decode_plain(frame: Buffer, position: int) -> ProduceRequest:
    """Bounds are checked in place here: the calls would cost as much as the rest."""
    available = len(frame)
    transactional_id = None
    if frame[position] == 0xFF:
        position += 2
    else:
        transactional_id, position = read_nullable_string(frame, position)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    if topic_count != 1:
        read_count(frame, position, topic_count, 6)
    topics = []
    for _ in range(topic_count):
        (name_length,) = INT16.unpack_from(frame, position)
        end = position + 2 + name_length
        if name_length < 0 or end > available:
            read_span(frame, position + 2, name_length)
        name = frame[position + 2 : end].decode()
        (partition_count,) = INT32.unpack_from(frame, end)
        position = end + 4
        if partition_count != 1:
            read_count(frame, position, partition_count, 8)
        partitions = []
        for _ in range(partition_count):
            partition, length = _INDEX_LENGTH.unpack_from(frame, position)
            position += 8
            if length == -1:
                partitions.append(ProducePartition(partition, None))
                continue
            end = position + length
            if length < 0 or end > available:
                read_span(frame, position, length)
            partitions.append(ProducePartition(partition, memoryview(frame)[position:end]))
            position = end
        topics.append(ProduceTopic(name, NO_TOPIC_ID, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(frame: Buffer, position: int, version: int) -> ProduceRequest:
    transactional_id, position = read_nullable_compact_string(frame, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_unsigned_varint(frame, position + 6)
    topic_count = read_count(frame, position, topic_count - 1, 3)
    view = memoryview(frame)
    topics = []
    for _ in range(topic_count):
        name, topic_id, position = read_topic(frame, position, by_id=version >= TOPIC_ID_FROM)
        partition_count, position = read_unsigned_varint(frame, position)
        partition_count = read_count(frame, position, partition_count - 1, 6)
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(frame, position)
            length, position = read_unsigned_varint(frame, position + 4)
            records = None
            if length:
                end = read_span(frame, position, length - 1)
                records = view[position:end]
                position = end
            position = skip_tags(frame, position)
            partitions.append(ProducePartition(index, records))
        position = skip_tags(frame, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
    skip_tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def read_topic(frame: Buffer, position: int, *, by_id: bool) -> tuple[str, bytes, int]:
    """A topic as flexible versions name it: name, id (one of them empty), next position."""
    if by_id:
        end = read_span(frame, position, 16)
        return "", bytes(frame[position:end]), end
    length, position = read_unsigned_varint(frame, position)
    if length == 0:
        raise MalformedMessageError("a topic's name is null")
    end = read_span(frame, position, length - 1)
    return frame[position:end].decode(), NO_TOPIC_ID, end


def decode_produce_request(frame: Buffer, position: int, version: int) -> ProduceRequest:
    try:
        if version < FLEXIBLE_FROM:
            return _decode_plain(frame, position)
        return _decode_flexible(frame, position, version)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"Produce version {version} cannot be read: {error}") from error


def encode_produce_answer(answer: ProduceAnswer, version: int) -> bytes:
    if version >= FLEXIBLE_FROM:
        return _encode_flexible(answer, version)
    parts = [INT32.pack(len(answer.topics))]
    for topic in answer.topics:
        parts += (string(topic.name), INT32.pack(len(topic.partitions)))
        for partition in topic.partitions:
            if version < 5:
                parts.append(_ANSWER_WITHOUT_START.pack(*partition[:4]))
                continue
            parts.append(_ANSWER.pack(*partition[:5]))
            if version >= 8:
                parts.append(INT32.pack(len(partition.record_errors)))
                for error in partition.record_errors:
                    parts += (INT32.pack(error.batch_index), nullable_string(error.message))
                parts.append(nullable_string(partition.error_message))
    parts.append(INT32.pack(answer.throttle_ms))
    return b"".join(parts)


def _encode_flexible(answer: ProduceAnswer, version: int) -> bytes:
    parts = [unsigned_varint(len(answer.topics) + 1)]
    for topic in answer.topics:
        parts.append(topic.topic_id if version >= TOPIC_ID_FROM else compact_string(topic.name))
        parts.append(unsigned_varint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            parts += (_ANSWER.pack(*partition[:5]), unsigned_varint(len(partition.record_errors) + 1))
            for error in partition.record_errors:
                parts += (INT32.pack(error.batch_index), nullable_compact_string(error.message), b"\x00")
            parts.append(nullable_compact_string(partition.error_message))
            parts.append(leader_tag(partition.current_leader, 0) if version >= 10 else b"\x00")
        parts.append(b"\x00")
    parts.append(INT32.pack(answer.throttle_ms))
    parts.append(endpoints_tag(answer.node_endpoints) if version >= 10 else b"\x00")
    return b"".join(parts)


def leader_tag(leader: LeaderIdAndEpoch | None, tag: int) -> bytes:
    """A tagged section with the current leader in it, or an empty one."""
    return b"\x00" if leader is None else tag_section({tag: leader_bytes(leader)})


def leader_bytes(leader: LeaderIdAndEpoch) -> bytes:
    return _INDEX_LENGTH.pack(leader.leader_id, leader.leader_epoch) + b"\x00"


def endpoints_tag(endpoints: tuple[NodeEndpoint, ...]) -> bytes:
    """A tagged section with the endpoints of leaders in it (tag 0), or an empty one."""
    if not endpoints:
        return b"\x00"
    parts = [unsigned_varint(len(endpoints) + 1)]
    for node in endpoints:
        parts += (
            INT32.pack(node.node_id),
            compact_string(node.host),
            INT32.pack(node.port),
            nullable_compact_string(node.rack),
            b"\x00",
        )
    return tag_section({0: b"".join(parts)})
