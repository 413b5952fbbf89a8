"""Records of `__consumer_offsets` and `__transaction_state` as objects.

Versions: an offset commit has key 0 or 1 and value 0-4, a group's metadata key 2 and value 0-4, a transactional id's
state key 0 and value 0-1; values are flexible from 4 and 1 on. Other keys (groups of the newer protocols) are named, not
read. Names are Kafka's, in snake case. Bytes that do not fit raise `UndecodableError`.
"""

from __future__ import annotations

import base64
import struct
import uuid
from enum import Enum

from penstock.base.errors import PenstockError
from penstock.base.ids import topic_id_text
from penstock.protocol import primitives
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.group_records import (
    Cursor,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    version_of,
)

Decoded = dict[str, object]


class Decoder(Enum):
    """Which topic's records are to be read."""

    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


TOPICS = {"__consumer_offsets": Decoder.OFFSETS, "__transaction_state": Decoder.TRANSACTIONS}

_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip


class UndecodableError(PenstockError):
    """A key or value that is not what its topic holds, or of a version unknown here."""


def decode(decoder: Decoder, key: bytes | None, value: bytes | None) -> tuple[Decoded, Decoded | None]:
    """Key and value as objects; a null value (a tombstone) stays None."""
    if key is None:
        raise UndecodableError("the record has no key")
    try:
        return _decode(decoder, key, value)
    except (struct.error, IndexError, UnicodeDecodeError, MalformedMessageError) as error:
        raise UndecodableError(f"not a record of this topic: {error}") from None


def _decode(decoder: Decoder, key: bytes, value: bytes | None) -> tuple[Decoded, Decoded | None]:
    version = version_of(key)
    if decoder is Decoder.TRANSACTIONS:
        if version != 0:
            raise UndecodableError(f"key version {version} is not known (0 is)")
        cursor = Cursor(key, 2, flexible=False)
        decoded: Decoded = {"type": "transaction", "version": version, "transactional_id": cursor.string()}
        cursor.end()
        return decoded, None if value is None else _transaction_value(value)
    found = decode_key(key)
    if found is None:
        raise UndecodableError(f"key version {version} is not known (0 to 2 are)")
    if isinstance(found, OffsetKey):
        decoded = {"type": "offset_commit", "version": version, "group": found.group, "topic": found.topic}
        decoded["partition"] = found.partition
        return decoded, None if value is None else _offset_fields(decode_offset_value(value))
    decoded = {"type": "group_metadata", "version": version, "group": found.group}
    return decoded, None if value is None else _group_fields(decode_group_value(value))


def _offset_fields(value: OffsetValue) -> Decoded:
    fields: Decoded = {"version": value.version, "offset": value.offset}
    if value.version >= 3:
        fields["leader_epoch"] = value.leader_epoch
    fields["metadata"] = value.metadata
    fields["commit_timestamp"] = value.commit_timestamp_ms
    if value.version == 1:
        fields["expire_timestamp"] = value.expire_timestamp_ms
    if value.topic_id is not None:
        fields["topic_id"] = topic_id_text(uuid.UUID(bytes=value.topic_id))
    return fields


def _group_fields(value: GroupValue) -> Decoded:
    fields: Decoded = {
        "version": value.version,
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
    }
    if value.version >= 2:
        fields["current_state_timestamp"] = value.current_state_timestamp_ms
    fields["members"] = [_member_fields(member, value.version) for member in value.members]
    return fields


def _member_fields(member: MemberValue, version: int) -> Decoded:
    fields: Decoded = {"member_id": member.member_id}
    if version >= 3:
        fields["group_instance_id"] = member.group_instance_id
    fields["client_id"] = member.client_id
    fields["client_host"] = member.client_host
    if version >= 1:
        fields["rebalance_timeout"] = member.rebalance_timeout_ms
    fields["session_timeout"] = member.session_timeout_ms
    fields["subscription"] = {"base64": base64.b64encode(member.subscription).decode()}
    fields["assignment"] = {"base64": base64.b64encode(member.assignment).decode()}
    return fields


def _transaction_value(data: bytes) -> Decoded:
    version = version_of(data)
    if not 0 <= version <= 1:
        raise UndecodableError(f"value version {version} is not known (0 to 1 are)")
    cursor = Cursor(data, 2, flexible=version >= 1)
    fields: Decoded = {
        "version": version,
        "producer_id": cursor.int64(),
        "producer_epoch": cursor.int16(),
        "transaction_timeout_ms": cursor.int32(),
        "transaction_status": _state(cursor.int8()),
    }

    def partitions(cursor: Cursor) -> Decoded:
        of_topic: Decoded = {"topic": cursor.string(), "partition_ids": cursor.list(Cursor.int32)}
        cursor.tags()
        return of_topic

    fields["transaction_partitions"] = cursor.list(partitions)
    fields["transaction_last_update_timestamp_ms"] = cursor.int64()
    fields["transaction_start_timestamp_ms"] = cursor.int64()
    tags = cursor.tags()
    cursor.end()
    if version >= 1:
        fields["previous_producer_id"] = _tagged(tags, 0, primitives.INT64, -1)
        fields["next_producer_id"] = _tagged(tags, 1, primitives.INT64, -1)
        fields["client_transaction_version"] = _tagged(tags, 2, primitives.INT16, 0)
    return fields


def _state(number: int) -> str | int:
    return _STATES[number] if 0 <= number < len(_STATES) else number


def _tagged(tags: dict[int, bytes], tag: int, kind: struct.Struct, default: int) -> int:
    return int(kind.unpack(tags[tag])[0]) if tag in tags else default
