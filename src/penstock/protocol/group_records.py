"""The records of `__consumer_offsets`, in Kafka's formats: encoding and decoding of both stand here.

An offset commit has key version 0 or 1 and value versions 0-4; a group's metadata key version 2 and value versions 0-4.
Values are flexible from 4 on. Written are offset key 1 with value 3 (1 where the client chose an expiry) and group key 2
with value 3: every Kafka since 2.3 reads those. A key with a null value removes what it names. Keys of other versions
belong to groups of the newer protocols: `decode_key` gives None for them. Bytes that do not fit are a
MalformedMessageError.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.protocol import primitives
from penstock.protocol.cursor import Cursor, version_of
from penstock.protocol.errors import MalformedMessageError

_OFFSET_KEY, _GROUP_KEY = 1, 2
_VALUE_VERSION, _EXPIRING_VALUE_VERSION, VALUE_VERSION_MAX = 3, 1, 4
_FLEXIBLE_FROM = 4
NO_TIMESTAMP = -1


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int
    version: int = _OFFSET_KEY


class GroupKey(NamedTuple):
    group: str
    version: int = _GROUP_KEY


class OffsetValue(NamedTuple):
    offset: int
    leader_epoch: int
    """-1 where the client did not say."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """-1: by the broker's retention."""
    topic_id: bytes | None = None
    version: int = _VALUE_VERSION


class MemberValue(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberValue, ...]
    version: int = _VALUE_VERSION


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    version = version_of(data)
    cursor = Cursor(data, 2, flexible=False)
    key: OffsetKey | GroupKey | None = None
    try:
        if version in (0, 1):
            key = OffsetKey(cursor.string(), cursor.string(), cursor.int32(), version)
        elif version == _GROUP_KEY:
            key = GroupKey(cursor.string(), version)
        else:
            return None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"no key of a group's record: {error}") from None
    cursor.end()
    return key


def decode_offset_value(data: bytes) -> OffsetValue:
    version = _known_version(data)
    cursor = Cursor(data, 2, flexible=version >= _FLEXIBLE_FROM)
    try:
        offset = cursor.int64()
        leader_epoch = cursor.int32() if version >= 3 else -1
        metadata = cursor.string()
        committed_ms = cursor.int64()
        expire_ms = cursor.int64() if version == _EXPIRING_VALUE_VERSION else NO_TIMESTAMP
        tags = cursor.tags()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"no value of an offset commit: {error}") from None
    cursor.end()
    topic_id = tags.get(0)
    topic_id = topic_id if topic_id is not None and len(topic_id) == 16 else None
    return OffsetValue(offset, leader_epoch, metadata, committed_ms, expire_ms, topic_id, version)


def decode_group_value(data: bytes) -> GroupValue:
    version = _known_version(data)
    cursor = Cursor(data, 2, flexible=version >= _FLEXIBLE_FROM)

    def member(cursor: Cursor) -> MemberValue:
        member_id = cursor.string()
        instance_id = cursor.nullable_string() if version >= 3 else None
        client_id, client_host = cursor.string(), cursor.string()
        rebalance_ms = cursor.int32() if version >= 1 else -1
        session_ms = cursor.int32()
        value = MemberValue(
            member_id,
            instance_id,
            client_id,
            client_host,
            # Before version 1 the session's timeout was the rebalance's too.
            session_ms if rebalance_ms < 0 else rebalance_ms,
            session_ms,
            cursor.blob(),
            cursor.blob(),
        )
        cursor.tags()
        return value

    try:
        protocol_type, generation = cursor.string(), cursor.int32()
        protocol, leader = cursor.nullable_string(), cursor.nullable_string()
        state_ms = cursor.int64() if version >= 2 else NO_TIMESTAMP
        members = cursor.list(member)
        cursor.tags()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"no value of a group's metadata: {error}") from None
    cursor.end()
    return GroupValue(protocol_type, generation, protocol, leader, state_ms, tuple(members or ()), version)


def _known_version(data: bytes) -> int:
    version = version_of(data)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise MalformedMessageError(f"value version {version} is not known (0 to {VALUE_VERSION_MAX} are)")
    return version


def encode_key(key: OffsetKey | GroupKey) -> bytes:
    if isinstance(key, OffsetKey):
        names = primitives.string(key.group) + primitives.string(key.topic)
        return primitives.INT16.pack(_OFFSET_KEY) + names + primitives.INT32.pack(key.partition)
    return primitives.INT16.pack(_GROUP_KEY) + primitives.string(key.group)


def encode_offset_value(value: OffsetValue) -> bytes:
    expires = value.expire_timestamp_ms != NO_TIMESTAMP
    out = bytearray(primitives.INT16.pack(_EXPIRING_VALUE_VERSION if expires else _VALUE_VERSION))
    out += primitives.INT64.pack(value.offset)
    if not expires:
        out += primitives.INT32.pack(value.leader_epoch)
    out += primitives.string(value.metadata)
    out += primitives.INT64.pack(value.commit_timestamp_ms)
    if expires:
        out += primitives.INT64.pack(value.expire_timestamp_ms)
    return bytes(out)


def encode_group_value(value: GroupValue) -> bytes:
    out = bytearray(primitives.INT16.pack(_VALUE_VERSION))
    out += primitives.string(value.protocol_type)
    out += primitives.INT32.pack(value.generation)
    out += primitives.nullable_string(value.protocol) + primitives.nullable_string(value.leader)
    out += primitives.INT64.pack(value.current_state_timestamp_ms)
    out += primitives.INT32.pack(len(value.members))
    for member in value.members:
        out += primitives.string(member.member_id) + primitives.nullable_string(member.group_instance_id)
        out += primitives.string(member.client_id) + primitives.string(member.client_host)
        out += primitives.INT32.pack(member.rebalance_timeout_ms) + primitives.INT32.pack(member.session_timeout_ms)
        for field in (member.subscription, member.assignment):
            out += primitives.INT32.pack(len(field)) + field
    return bytes(out)
