"""Fetch (key 1), version 17, as a follower sends it: by topic id, with the epoch of the broker's life, in a session (KIP-227).

The first request of a session names everything that is followed, the next ones what is asked for anew and what is not asked for any more. The
server's twin is `protocol.fetch`. Records stay where they arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
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
from penstock.replication.fetch_sessions import FetchSessionNotFoundError
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


_SESSION_LOST = (70, 71, 106)
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""
_EPOCH_MAX = 2**31 - 1


class FetchSession:
    """A follower's side of its session with one leader. Any failure ends it: what the leader made of a request is not known then."""

    __slots__ = ("_held", "_sent", "epoch", "names", "session_id")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """The next request begins a session."""
        self.session_id = self.epoch = 0
        self._held: dict[TopicPartition, bytes] = {}
        """What the leader has in the session, with the ids of topics."""
        self._sent: dict[TopicPartition, Asked] = {}
        """Of these the questions that stand: answered with nothing yet."""
        self.names: dict[bytes, str] = {}

    def ask(self, asked: list[Asked]) -> tuple[list[Asked], list[tuple[bytes, int]]]:
        """What to name in a request that asks for all of these, and what to forget."""
        held, sent = self._held, self._sent
        named = []
        forgotten = []
        for one in asked:
            key = one.topic_partition
            known = sent.get(key)
            if known is one or known == one:
                continue
            named.append(one)
            sent[key] = one
            if held.get(key, one.topic_id) != one.topic_id:
                forgotten.append((held[key], key.partition))
            held[key] = one.topic_id
            self.names[one.topic_id] = key.topic
        if len(held) > len(asked):
            for gone in held.keys() - {one.topic_partition for one in asked}:
                forgotten.append((held.pop(gone), gone.partition))
                sent.pop(gone, None)
        return named, sorted(forgotten)

    def answered(self, session_id: int, found: list[Got]) -> None:
        if session_id == 0:
            self.reset()  # the leader has no room
            return
        self.session_id = session_id
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        for got in found:
            # Whatever becomes of it here, the next question is a new one.
            if got.error is not None or got.diverging is not None or len(got.records):
                self._sent.pop(got.topic_partition, None)


class FetchLimits(NamedTuple):
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


def encode(
    asked: list[Asked],
    forgotten: list[tuple[bytes, int]],
    session: FetchSession,
    broker_id: int,
    broker_epoch: int,
    limits: FetchLimits,
) -> bytes:
    topics = [(topic_id, list(group)) for topic_id, group in groupby(asked, key=lambda one: one.topic_id)]
    parts = [
        _HEAD.pack(limits.wait_ms_max, limits.bytes_min, limits.bytes_max, 0, session.session_id, session.epoch),
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
    gone = [
        (topic_id, [number for _, number in group]) for topic_id, group in groupby(forgotten, key=lambda one: one[0])
    ]
    parts.append(unsigned_varint(len(gone) + 1))
    for topic_id, numbers in gone:
        parts += (topic_id, unsigned_varint(len(numbers) + 1), struct.pack(f">{len(numbers)}i", *numbers), b"\x00")
    # No rack; who asks is a tagged field.
    parts += (b"\x01", tag_section({1: _REPLICA.pack(broker_id, broker_epoch, 0)}))
    return b"".join(parts)


def decode(frame: Buffer, position: int, names: Mapping[bytes, str]) -> tuple[int, list[Got]]:
    """The session that the leader has, and what it said of partitions. An error of the whole answer is raised."""
    try:
        return _decode(frame, position, names)
    except (IndexError, struct.error) as error:
        raise MalformedMessageError(f"an answer to Fetch cannot be read: {error}") from error


def _decode(frame: Buffer, position: int, names: Mapping[bytes, str]) -> tuple[int, list[Got]]:
    _, code, session_id = _ANSWER.unpack_from(frame, position)
    if code in _SESSION_LOST:
        raise FetchSessionNotFoundError("the leader has lost the fetch session")
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
    return session_id, found


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
