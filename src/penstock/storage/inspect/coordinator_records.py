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
from penstock.protocol.cursor import version_of
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.group_records import (
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from penstock.protocol.transaction_records import (
    TransactionState,
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
)

Decoded = dict[str, object]


class Decoder(Enum):
    """Which topic's records are to be read."""

    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


TOPICS = {"__consumer_offsets": Decoder.OFFSETS, "__transaction_state": Decoder.TRANSACTIONS}


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
        transactional_id = decode_transaction_key(key)
        if transactional_id is None:
            raise UndecodableError(f"key version {version} is not known (0 is)")
        decoded: Decoded = {"type": "transaction", "version": version, "transactional_id": transactional_id}
        return decoded, None if value is None else _transaction_fields(decode_transaction_value(value))
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


def _transaction_fields(value: TransactionValue) -> Decoded:
    by_topic: dict[str, list[int]] = {}
    for topic, number in value.partitions:
        by_topic.setdefault(topic, []).append(number)
    fields: Decoded = {
        "version": value.version,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "transaction_timeout_ms": value.timeout_ms,
        "transaction_status": value.state.label,
        "transaction_partitions": None
        if value.state is TransactionState.EMPTY
        else [{"topic": topic, "partition_ids": numbers} for topic, numbers in by_topic.items()],
        "transaction_last_update_timestamp_ms": value.last_update_ms,
        "transaction_start_timestamp_ms": value.start_ms,
    }
    if value.version >= 1:
        fields["previous_producer_id"] = value.previous_producer_id
        fields["next_producer_id"] = value.next_producer_id
        fields["client_transaction_version"] = value.client_version
    return fields
