"""Fetch (key 1), versions 4-18, seen from a consumer: one partition is asked for, its records stay where they arrived.

The server's twin is `protocol.fetch`; tested against kio's schemas, version by version. From version 13 on a topic is
named by its id.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.fetch import CONSUMER_REPLICA_ID, FLEXIBLE_FROM, TOPIC_ID_FROM, AbortedTransaction
from penstock.protocol.primitives import (
    INT32,
    Buffer,
    compact_string,
    read_count,
    read_span,
    read_string,
    read_unsigned_varint,
    skip_tags,
    string,
)
from penstock.protocol.produce import read_topic

KEY = 1
LOWEST, HIGHEST = 4, 18

_NO_SESSION = 0, -1
_NO_EPOCH = -1
_HEAD = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_ASKED = {4: struct.Struct(">iqi"), 5: struct.Struct(">iqqi"), 9: struct.Struct(">iiqqi")}
_ASKED_FLEXIBLE = struct.Struct(">iiqiqi")
_ERROR_SESSION = struct.Struct(">ihi")
_FOUND = {4: struct.Struct(">ihqq"), 5: struct.Struct(">ihqqq")}
_ABORTED = struct.Struct(">qq")
_NONE = b"\x00\x00\x00\x00"


class FetchCall(NamedTuple):
    """One partition, from an offset on, outside of any session."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    bytes_max: int
    wait_ms: int
    read_committed: bool


class FetchFound(NamedTuple):
    """What a broker had of the partition; `records` is a stretch of the frame that was read."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    records: memoryview


_NOTHING = memoryview(b"")


def encode_fetch_call(call: FetchCall, version: int) -> bytes:
    head = _HEAD.pack(call.wait_ms, 1, call.bytes_max, int(call.read_committed))
    if version < 15:
        head = INT32.pack(CONSUMER_REPLICA_ID) + head
    if version >= 7:
        head += _SESSION.pack(*_NO_SESSION)
    if version >= FLEXIBLE_FROM:
        topic = call.topic_id if version >= TOPIC_ID_FROM else compact_string(call.topic)
        asked = _ASKED_FLEXIBLE.pack(call.partition, call.leader_epoch, call.offset, _NO_EPOCH, -1, call.bytes_max)
        # Arrays of one; the forgotten topics, the rack and three sections of tags are empty.
        return b"".join((head, b"\x02", topic, b"\x02", asked, b"\x00\x00", b"\x01\x01\x00"))
    if version >= 9:
        asked = _ASKED[9].pack(call.partition, call.leader_epoch, call.offset, -1, call.bytes_max)
    elif version >= 5:
        asked = _ASKED[5].pack(call.partition, call.offset, -1, call.bytes_max)
    else:
        asked = _ASKED[4].pack(call.partition, call.offset, call.bytes_max)
    tail = (_NONE if version >= 7 else b"") + (b"\x00\x00" if version >= 11 else b"")
    return b"".join((head, INT32.pack(1), string(call.topic), INT32.pack(1), asked, tail))


def decode_fetch_answer(body: Buffer, position: int, version: int) -> FetchFound:
    """The one partition of the answer to a call, which starts at `position` of the frame."""
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(body, position, version)
        return _decode_plain(body, position, version)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"an answer to Fetch version {version} cannot be read: {error}") from error


def _failed(error_code: int) -> FetchFound:
    return FetchFound(error_code, -1, -1, -1, (), _NOTHING)


def _check_count(count: int, what: str) -> None:
    if count != 1:
        raise MalformedMessageError(f"a Fetch for one partition was answered with {count} {what}")


def _decode_plain(frame: Buffer, position: int, version: int) -> FetchFound:
    position += 4
    if version >= 7:
        _, error_code, _ = _ERROR_SESSION.unpack_from(frame, position - 4)
        if error_code:
            return _failed(error_code)
        position += 6
    (count,) = INT32.unpack_from(frame, position)
    _check_count(count, "topics")
    _, position = read_string(frame, position + 4)
    (count,) = INT32.unpack_from(frame, position)
    _check_count(count, "partitions")
    layout = _FOUND[5 if version >= 5 else 4]
    fields = layout.unpack_from(frame, position + 4)
    position += 4 + layout.size
    (count,) = INT32.unpack_from(frame, position)
    position += 4
    count = 0 if count == -1 else read_count(frame, position, count, _ABORTED.size)
    aborted = tuple(AbortedTransaction(*_ABORTED.unpack_from(frame, position + 16 * n)) for n in range(count))
    position += 16 * count
    if version >= 11:
        position += 4
    (length,) = INT32.unpack_from(frame, position)
    position += 4
    records = _NOTHING
    if length != -1:
        records = memoryview(frame)[position : read_span(frame, position, length)]
    return FetchFound(fields[1], fields[2], fields[3], fields[4] if version >= 5 else -1, aborted, records)


def _decode_flexible(frame: Buffer, position: int, version: int) -> FetchFound:
    _, error_code, _ = _ERROR_SESSION.unpack_from(frame, position)
    if error_code:
        return _failed(error_code)
    count, position = read_unsigned_varint(frame, position + _ERROR_SESSION.size)
    _check_count(count - 1, "topics")
    _, _, position = read_topic(frame, position, by_id=version >= TOPIC_ID_FROM)
    count, position = read_unsigned_varint(frame, position)
    _check_count(count - 1, "partitions")
    fields = _FOUND[5].unpack_from(frame, position)
    count, position = read_unsigned_varint(frame, position + _FOUND[5].size)
    count = 0 if count == 0 else read_count(frame, position, count - 1, _ABORTED.size + 1)
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(frame, position)))
        position = skip_tags(frame, position + _ABORTED.size)
    length, position = read_unsigned_varint(frame, position + 4)
    records = _NOTHING
    if length:
        records = memoryview(frame)[position : read_span(frame, position, length - 1)]
    return FetchFound(fields[1], fields[2], fields[3], fields[4], tuple(aborted), records)
