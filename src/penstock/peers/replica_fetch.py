"""Fetch (key 1), version 17, as a follower sends it: many partitions, by topic id, with the epoch of the broker's life.

The server's twin is `protocol.fetch`. Records stay where they arrived.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.peers.errors import error_of
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.primitives import (
    Buffer,
    read_count,
    read_span,
    read_tags,
    read_unsigned_varint,
    skip_tags,
    tag_section,
    unsigned_varint,
)
from penstock.replication.fetcher import Asked, Got
from penstock.replication.partition import Diverging

KEY, VERSION = 1, 17

_HEAD = struct.Struct(">iiibii")
_ASKED = struct.Struct(">iiqiqi")
_REPLICA = struct.Struct(">iqb")
_ANSWER = struct.Struct(">ihi")
_FOUND = struct.Struct(">ihqqq")
_EPOCH_END = struct.Struct(">iq")
_NOTHING = memoryview(b"")


class FetchLimits(NamedTuple):
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


def encode(asked: list[Asked], broker_id: int, broker_epoch: int, limits: FetchLimits) -> bytes:
    topics = [(topic_id, list(group)) for topic_id, group in groupby(asked, key=lambda one: one.topic_id)]
    parts = [
        _HEAD.pack(limits.wait_ms_max, limits.bytes_min, limits.bytes_max, 0, 0, -1),
        unsigned_varint(len(topics) + 1),
    ]
    for topic_id, partitions in topics:
        parts += (topic_id, unsigned_varint(len(partitions) + 1))
        for (_, number), _, leader_epoch, offset, last_epoch, log_start_offset in partitions:
            parts.append(
                _ASKED.pack(number, leader_epoch, offset, last_epoch, log_start_offset, limits.partition_bytes_max)
            )
            parts.append(b"\x00")
        parts.append(b"\x00")
    # No topic is forgotten, no rack; who asks is a tagged field.
    parts += (b"\x01\x01", tag_section({1: _REPLICA.pack(broker_id, broker_epoch, 0)}))
    return b"".join(parts)


def decode(frame: Buffer, position: int, asked: list[Asked]) -> list[Got]:
    """What the leader said of each partition. An error of the whole answer is raised."""
    try:
        return _decode(frame, position, {one.topic_id: one.topic_partition.topic for one in asked})
    except (IndexError, struct.error) as error:
        raise MalformedMessageError(f"an answer to Fetch cannot be read: {error}") from error


def _decode(frame: Buffer, position: int, names: dict[bytes, str]) -> list[Got]:
    _, code, _ = _ANSWER.unpack_from(frame, position)
    refused = error_of(code, "a fetch")
    if refused is not None:
        raise refused
    count, position = read_unsigned_varint(frame, position + _ANSWER.size)
    found = []
    for _ in range(read_count(frame, position, count - 1, 18)):
        topic = names.get(bytes(frame[position : position + 16]), "")
        count, position = read_unsigned_varint(frame, position + 16)
        for _ in range(read_count(frame, position, count - 1, _FOUND.size)):
            got, position = _partition(frame, position, topic)
            if topic:
                found.append(got)
        position = skip_tags(frame, position)
    return found


def _partition(frame: Buffer, position: int, topic: str) -> tuple[Got, int]:
    number, code, high_watermark, _, log_start_offset = _FOUND.unpack_from(frame, position)
    count, position = read_unsigned_varint(frame, position + _FOUND.size)
    for _ in range(max(count - 1, 0)):
        position = skip_tags(frame, position + 16)
    length, position = read_unsigned_varint(frame, position + 4)
    records = _NOTHING
    if length:
        end = read_span(frame, position, length - 1)
        records, position = memoryview(frame)[position:end], end
    diverging = None
    if frame[position] == 0:
        position += 1
    else:
        tags, position = read_tags(frame, position)
        if 0 in tags:
            diverging = Diverging(*_EPOCH_END.unpack_from(tags[0]))
    error = error_of(code, f"{topic}-{number}")
    return Got(TopicPartition(topic, number), error, high_watermark, log_start_offset, diverging, records), position
