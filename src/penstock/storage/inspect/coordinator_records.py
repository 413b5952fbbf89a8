"""Records of `__consumer_offsets` and `__transaction_state` as objects.

Versions: an offset commit has key 0 or 1 and value 0-4, a group's metadata key 2 and value 0-4, a transactional id's
state key 0 and value 0-1; values are flexible from 4 and 1 on. Other keys (groups of the newer protocols) are named, not
read. Names are Kafka's, in snake case. Bytes that do not fit raise `UndecodableError`.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from penstock.base.errors import PenstockError
from penstock.base.ids import topic_id_text
from penstock.protocol import primitives
from penstock.protocol.errors import MalformedMessageError

T = TypeVar("T")
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


class _Cursor:
    """Reads one field after the other; the primitives see to it that nothing is read beyond the end."""

    def __init__(self, data: bytes, position: int, *, flexible: bool) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def _number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack_from(self._data, self._position)
        self._position += kind.size
        return int(value)

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(primitives.INT16)

    def int32(self) -> int:
        return self._number(primitives.INT32)

    def int64(self) -> int:
        return self._number(primitives.INT64)

    def nullable_string(self) -> str | None:
        read = primitives.read_nullable_compact_string if self._flexible else primitives.read_nullable_string
        value, self._position = read(self._data, self._position)
        return value

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedMessageError("a string that may not be null is null")
        return value

    def _length(self) -> int:
        if not self._flexible:
            return self.int32()
        length, self._position = primitives.read_unsigned_varint(self._data, self._position)
        return length - 1

    def base64(self) -> Decoded:
        length = self._length()
        end = primitives.read_span(self._data, self._position, length)
        value = self._data[self._position : end]
        self._position = end
        return {"base64": base64.b64encode(value).decode()}

    def list(self, element: Callable[[_Cursor], T]) -> list[T] | None:
        count = self._length()
        if count < 0:
            return None
        primitives.read_count(self._data, self._position, count, 1)
        return [element(self) for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        found, self._position = primitives.read_tags(self._data, self._position)
        return found

    def end(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise MalformedMessageError(f"{left} bytes are left")


_INT8 = struct.Struct(">b")


def decode(decoder: Decoder, key: bytes | None, value: bytes | None) -> tuple[Decoded, Decoded | None]:
    """Key and value as objects; a null value (a tombstone) stays None."""
    if key is None:
        raise UndecodableError("the record has no key")
    try:
        return _decode(decoder, key, value)
    except (struct.error, IndexError, UnicodeDecodeError, MalformedMessageError) as error:
        raise UndecodableError(f"not a record of this topic: {error}") from None


def _decode(decoder: Decoder, key: bytes, value: bytes | None) -> tuple[Decoded, Decoded | None]:
    version = _version(key)
    cursor = _Cursor(key, 2, flexible=False)
    if decoder is Decoder.TRANSACTIONS:
        if version != 0:
            raise UndecodableError(f"key version {version} is not known (0 is)")
        decoded: Decoded = {"type": "transaction", "version": version, "transactional_id": cursor.string()}
        read, newest = _transaction_value, 1
    elif version in (0, 1):
        decoded = {"type": "offset_commit", "version": version, "group": cursor.string(), "topic": cursor.string()}
        decoded["partition"] = cursor.int32()
        read, newest = _offset_value, 4
    elif version == 2:
        decoded = {"type": "group_metadata", "version": version, "group": cursor.string()}
        read, newest = _group_value, 4
    else:
        raise UndecodableError(f"key version {version} is not known (0 to 2 are)")
    cursor.end()
    if value is None:
        return decoded, None
    value_version = _version(value)
    if not 0 <= value_version <= newest:
        raise UndecodableError(f"value version {value_version} is not known (0 to {newest} are)")
    return decoded, read(value, value_version)


def _version(data: bytes) -> int:
    return int(primitives.INT16.unpack_from(data)[0])


def _offset_value(data: bytes, version: int) -> Decoded:
    cursor = _Cursor(data, 2, flexible=version >= 4)
    fields: Decoded = {"version": version, "offset": cursor.int64()}
    if version >= 3:
        fields["leader_epoch"] = cursor.int32()
    fields["metadata"] = cursor.string()
    fields["commit_timestamp"] = cursor.int64()
    if version == 1:
        fields["expire_timestamp"] = cursor.int64()
    tags = cursor.tags()
    cursor.end()
    if len(tags.get(0, b"")) == 16:
        fields["topic_id"] = topic_id_text(uuid.UUID(bytes=tags[0]))
    return fields


def _group_value(data: bytes, version: int) -> Decoded:
    cursor = _Cursor(data, 2, flexible=version >= 4)
    fields: Decoded = {
        "version": version,
        "protocol_type": cursor.string(),
        "generation": cursor.int32(),
        "protocol": cursor.nullable_string(),
        "leader": cursor.nullable_string(),
    }
    if version >= 2:
        fields["current_state_timestamp"] = cursor.int64()

    def member(cursor: _Cursor) -> Decoded:
        of_member: Decoded = {"member_id": cursor.string()}
        if version >= 3:
            of_member["group_instance_id"] = cursor.nullable_string()
        of_member["client_id"] = cursor.string()
        of_member["client_host"] = cursor.string()
        if version >= 1:
            of_member["rebalance_timeout"] = cursor.int32()
        of_member["session_timeout"] = cursor.int32()
        of_member["subscription"] = cursor.base64()
        of_member["assignment"] = cursor.base64()
        cursor.tags()
        return of_member

    fields["members"] = cursor.list(member)
    cursor.tags()
    cursor.end()
    return fields


def _transaction_value(data: bytes, version: int) -> Decoded:
    cursor = _Cursor(data, 2, flexible=version >= 1)
    fields: Decoded = {
        "version": version,
        "producer_id": cursor.int64(),
        "producer_epoch": cursor.int16(),
        "transaction_timeout_ms": cursor.int32(),
        "transaction_status": _state(cursor.int8()),
    }

    def partitions(cursor: _Cursor) -> Decoded:
        of_topic: Decoded = {"topic": cursor.string(), "partition_ids": cursor.list(_Cursor.int32)}
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
