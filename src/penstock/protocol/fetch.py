"""Fetch (key 1), versions 4-18, flexible from 12: the hot codec.

Versions: 4 isolation levels; 5 log start offset; 7 sessions (KIP-227); 9 leader epoch (KIP-320); 11 racks (KIP-392);
    12 flexible, last fetched epoch (KIP-595); 13 topic ids for names (KIP-516); 15 replica state as a tag (KIP-903); 16
    leaders' endpoints (KIP-951); 17 directory ids; 18 the follower's high watermark (KIP-1166).
Tested against kio's schemas, version by version.
An answer is a list of parts: bytes, and slices of files that the connection reads as its socket drains.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol, TypeVar

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.primitives import (
    INT32,
    Buffer,
    compact_string,
    read_compact_string,
    read_count,
    read_nullable_compact_string,
    read_string,
    read_tags,
    read_unsigned_varint,
    skip_tags,
    string,
    tag_section,
    unsigned_varint,
)
from penstock.protocol.produce import (
    NO_TOPIC_ID,
    LeaderIdAndEpoch,
    NodeEndpoint,
    endpoints_tag,
    leader_bytes,
    read_topic,
)

FLEXIBLE_FROM = 12
TOPIC_ID_FROM = 13
CONSUMER_REPLICA_ID = -1
HIGH_WATERMARK_UNKNOWN = 2**63 - 1


class Slice(Protocol):
    """A stretch of a file; what it is a slice of only the connection needs to know."""

    @property
    def length(self) -> int: ...


S = TypeVar("S", bound=Slice)


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int
    high_watermark: int = HIGH_WATERMARK_UNKNOWN


class FetchTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


class FetchRequest(NamedTuple):
    replica_id: int
    replica_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str
    cluster_id: str | None


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class FetchedPartition(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None
    preferred_read_replica: int
    records: Slice | bytes | None
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None


class FetchedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[FetchedPartition]


class FetchAnswer(NamedTuple):
    error_code: int
    session_id: int
    topics: list[FetchedTopic]
    throttle_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


_HEAD = struct.Struct(">iiiib")
_HEAD_WITH_SESSION = struct.Struct(">iiiibii")
_PARTITION = {
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iqqi"),
    9: struct.Struct(">iiqqi"),
    12: struct.Struct(">iiqiqi"),
}
_REPLICA_STATE = struct.Struct(">iq")
_ABORTED = struct.Struct(">qq")
_FETCHED = {4: struct.Struct(">ihqq"), 5: struct.Struct(">ihqqq")}
_EPOCH_END = struct.Struct(">iq")
_ERROR_SESSION = struct.Struct(">ihi")


def _partition_plain(version: int, values: tuple[int, ...]) -> FetchPartition:
    if version >= 9:
        partition, leader_epoch, offset, start, bytes_max = values
        return FetchPartition(partition, leader_epoch, offset, -1, start, bytes_max)
    if version >= 5:
        partition, offset, start, bytes_max = values
        return FetchPartition(partition, -1, offset, -1, start, bytes_max)
    partition, offset, bytes_max = values
    return FetchPartition(partition, -1, offset, -1, -1, bytes_max)


def _decode_plain(frame: Buffer, position: int, version: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= 7:
        head = _HEAD_WITH_SESSION.unpack_from(frame, position)
        session_id, session_epoch = head[5], head[6]
        position += _HEAD_WITH_SESSION.size
    else:
        head = _HEAD.unpack_from(frame, position)
        position += _HEAD.size
    layout = _PARTITION[9 if version >= 9 else 5 if version >= 5 else 4]
    (count,) = INT32.unpack_from(frame, position)
    position += 4
    topics = []
    for _ in range(read_count(frame, position, count, 6)):
        name, position = read_string(frame, position)
        (count,) = INT32.unpack_from(frame, position)
        position += 4
        partitions = []
        for _ in range(read_count(frame, position, count, layout.size)):
            partitions.append(_partition_plain(version, layout.unpack_from(frame, position)))
            position += layout.size
        topics.append(FetchTopic(name, NO_TOPIC_ID, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= 7:
        forgotten, position = _forgotten_plain(frame, position)
    rack_id = ""
    if version >= 11:
        rack_id, position = read_string(frame, position)
    return FetchRequest(
        head[0], -1, head[1], head[2], head[3], head[4], session_id, session_epoch, topics, forgotten, rack_id, None
    )


def _forgotten_plain(frame: Buffer, position: int) -> tuple[list[ForgottenTopic], int]:
    (count,) = INT32.unpack_from(frame, position)
    position += 4
    forgotten = []
    for _ in range(read_count(frame, position, count, 6)):
        name, position = read_string(frame, position)
        (count,) = INT32.unpack_from(frame, position)
        position += 4
        read_count(frame, position, count, 4)
        forgotten.append(ForgottenTopic(name, NO_TOPIC_ID, struct.unpack_from(f">{count}i", frame, position)))
        position += 4 * count
    return forgotten, position


def _decode_flexible(frame: Buffer, position: int, version: int) -> FetchRequest:
    replica_id, replica_epoch = CONSUMER_REPLICA_ID, -1
    if version < 15:
        (replica_id,) = INT32.unpack_from(frame, position)
        position += 4
    wait, bytes_min, bytes_max, isolation, session_id, session_epoch = _FLEXIBLE_HEAD.unpack_from(frame, position)
    position += _FLEXIBLE_HEAD.size
    by_id = version >= TOPIC_ID_FROM
    layout = _PARTITION[12]
    count, position = read_unsigned_varint(frame, position)
    topics = []
    for _ in range(read_count(frame, position, count - 1, 3)):
        name, topic_id, position = read_topic(frame, position, by_id=by_id)
        count, position = read_unsigned_varint(frame, position)
        partitions = []
        for _ in range(read_count(frame, position, count - 1, layout.size + 1)):
            partition = FetchPartition(*layout.unpack_from(frame, position))
            position += layout.size
            if frame[position] == 0:
                position += 1
            else:
                tags, position = read_tags(frame, position)
                if version >= 18 and 1 in tags:
                    partition = partition._replace(high_watermark=int.from_bytes(tags[1], "big", signed=True))
            partitions.append(partition)
        position = skip_tags(frame, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten, position = _forgotten_flexible(frame, position, by_id=by_id)
    rack_id, position = read_compact_string(frame, position)
    cluster_id = None
    if frame[position]:
        tags, position = read_tags(frame, position)
        if 0 in tags:
            cluster_id, _ = read_nullable_compact_string(tags[0], 0)
        if version >= 15 and 1 in tags:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(tags[1])
    return FetchRequest(
        replica_id,
        replica_epoch,
        wait,
        bytes_min,
        bytes_max,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        cluster_id,
    )


_FLEXIBLE_HEAD = struct.Struct(">iiibii")


def _forgotten_flexible(frame: Buffer, position: int, *, by_id: bool) -> tuple[list[ForgottenTopic], int]:
    count, position = read_unsigned_varint(frame, position)
    forgotten = []
    for _ in range(read_count(frame, position, count - 1, 3)):
        name, topic_id, position = read_topic(frame, position, by_id=by_id)
        count, position = read_unsigned_varint(frame, position)
        count = read_count(frame, position, count - 1, 4)
        partitions = struct.unpack_from(f">{count}i", frame, position)
        position = skip_tags(frame, position + 4 * count)
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def decode_fetch_request(frame: Buffer, position: int, version: int) -> FetchRequest:
    try:
        if version < FLEXIBLE_FROM:
            return _decode_plain(frame, position, version)
        return _decode_flexible(frame, position, version)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"Fetch version {version} cannot be read: {error}") from error


def encode_fetch_answer(answer: FetchAnswer, version: int) -> list[bytes | Slice]:
    """The answer's body in parts; neighbouring bytes are joined."""
    pieces = _flexible_pieces(answer, version) if version >= FLEXIBLE_FROM else _plain_pieces(answer, version)
    parts: list[bytes | Slice] = []
    run: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            run.append(piece)
            continue
        parts += (b"".join(run), piece)
        run = []
    if run:
        parts.append(b"".join(run))
    return parts


def records_length(records: Slice | bytes | None) -> int:
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes) else records.length


def _plain_pieces(answer: FetchAnswer, version: int) -> list[bytes | Slice]:
    pieces: list[bytes | Slice] = [INT32.pack(answer.throttle_ms)]
    if version >= 7:
        pieces = [_ERROR_SESSION.pack(answer.throttle_ms, answer.error_code, answer.session_id)]
    pieces.append(INT32.pack(len(answer.topics)))
    for topic in answer.topics:
        pieces += (string(topic.name), INT32.pack(len(topic.partitions)))
        for partition in topic.partitions:
            pieces.append(_FETCHED[5].pack(*partition[:5]) if version >= 5 else _FETCHED[4].pack(*partition[:4]))
            if partition.aborted is None:
                pieces.append(b"\xff\xff\xff\xff")
            else:
                pieces.append(INT32.pack(len(partition.aborted)))
                pieces += (_ABORTED.pack(*aborted) for aborted in partition.aborted)
            if version >= 11:
                pieces.append(INT32.pack(partition.preferred_read_replica))
            if partition.records is None:
                pieces.append(b"\xff\xff\xff\xff")
            else:
                pieces += (INT32.pack(records_length(partition.records)), partition.records)
    return pieces


def _flexible_pieces(answer: FetchAnswer, version: int) -> list[bytes | Slice]:
    pieces: list[bytes | Slice] = [
        _ERROR_SESSION.pack(answer.throttle_ms, answer.error_code, answer.session_id),
        unsigned_varint(len(answer.topics) + 1),
    ]
    for topic in answer.topics:
        pieces.append(topic.topic_id if version >= TOPIC_ID_FROM else compact_string(topic.name))
        pieces.append(unsigned_varint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            pieces.append(_FETCHED[5].pack(*partition[:5]))
            if partition.aborted is None:
                pieces.append(b"\x00")
            else:
                pieces.append(unsigned_varint(len(partition.aborted) + 1))
                pieces += (_ABORTED.pack(*aborted) + b"\x00" for aborted in partition.aborted)
            pieces.append(INT32.pack(partition.preferred_read_replica))
            if partition.records is None:
                pieces.append(b"\x00")
            else:
                pieces += (unsigned_varint(records_length(partition.records) + 1), partition.records)
            pieces.append(_partition_tags(partition))
        pieces.append(b"\x00")
    pieces.append(endpoints_tag(answer.node_endpoints) if version >= 16 else b"\x00")
    return pieces


def _partition_tags(partition: FetchedPartition) -> bytes:
    if partition.diverging_epoch is None and partition.current_leader is None:
        return b"\x00"
    tags = {}
    if partition.diverging_epoch is not None:
        tags[0] = _EPOCH_END.pack(*partition.diverging_epoch) + b"\x00"
    if partition.current_leader is not None:
        tags[1] = leader_bytes(partition.current_leader)
    return tag_section(tags)
