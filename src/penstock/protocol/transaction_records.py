"""The records of `__transaction_state`, in Kafka's formats: encoding and decoding of both stand here.

A key has version 0 and names the transactional id; a value has version 0 or 1, flexible from 1 on, and is everything that
its coordinator knows of the id. A null value removes it. Written is version 1, as Kafka does from `transaction.version` 1
on; 3.5 and later read it. Bytes that do not fit are a MalformedMessageError.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.protocol import primitives
from penstock.protocol.cursor import Cursor, version_of
from penstock.protocol.errors import MalformedMessageError

_KEY_VERSION = 0
VALUE_VERSION = VALUE_VERSION_MAX = 1
_FLEXIBLE_FROM = 1
_HEAD, _TIMES = struct.Struct(">hqhib"), struct.Struct(">qq")
_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = 0, 1, 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1


class TransactionState(IntEnum):
    """Where a transactional id stands; the numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Its name on the wire and in tools."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class TransactionValue(NamedTuple):
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TopicPartition, ...]
    """Sorted; none in the state Empty."""
    last_update_ms: int
    start_ms: int
    """-1 before the first partition."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """The transactions protocol (KIP-890) of the client that caused this state: 0 or 2."""
    version: int = VALUE_VERSION


def decode_transaction_key(data: bytes) -> str | None:
    """The transactional id; None for a key of another version."""
    if version_of(data) != _KEY_VERSION:
        return None
    cursor = Cursor(data, 2, flexible=False)
    try:
        transactional_id = cursor.string()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"no key of a transactional id: {error}") from None
    cursor.end()
    return transactional_id


def decode_transaction_value(data: bytes) -> TransactionValue:
    version = version_of(data)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise MalformedMessageError(f"value version {version} is not known (0 to {VALUE_VERSION_MAX} are)")
    cursor = Cursor(data, 2, flexible=version >= _FLEXIBLE_FROM)
    try:
        producer_id, epoch, timeout_ms = cursor.int64(), cursor.int16(), cursor.int32()
        state = _state(cursor.int8())
        topics = cursor.list(_partitions) or []
        last_update_ms, start_ms = cursor.int64(), cursor.int64()
        tags = cursor.tags()
        previous_id = _tagged(tags, _PREVIOUS_ID_TAG, primitives.INT64, NO_PRODUCER_ID)
        next_id = _tagged(tags, _NEXT_ID_TAG, primitives.INT64, NO_PRODUCER_ID)
        client_version = _tagged(tags, _CLIENT_VERSION_TAG, primitives.INT16, 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"no value of a transactional id: {error}") from None
    cursor.end()
    partitions = tuple(sorted(partition for topic in topics for partition in topic))
    return TransactionValue(
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        start_ms,
        previous_id,
        next_id,
        client_version,
        version,
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise MalformedMessageError(f"{number} is no state of a transaction") from None


def _partitions(cursor: Cursor) -> list[TopicPartition]:
    topic = cursor.string()
    numbers = cursor.list(Cursor.int32) or []
    cursor.tags()
    return [TopicPartition(topic, number) for number in numbers]


def _tagged(tags: dict[int, bytes], tag: int, kind: struct.Struct, default: int) -> int:
    return int(kind.unpack(tags[tag])[0]) if tag in tags else default


def encode_transaction_key(transactional_id: str) -> bytes:
    return primitives.INT16.pack(_KEY_VERSION) + primitives.string(transactional_id)


def encode_transaction_value(value: TransactionValue) -> bytes:
    """Version 1, whatever version the value was read from."""
    head = _HEAD.pack(VALUE_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    times = _TIMES.pack(value.last_update_ms, value.start_ms)
    tags = {}
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_ID_TAG] = primitives.INT64.pack(value.previous_producer_id)
    if value.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_ID_TAG] = primitives.INT64.pack(value.next_producer_id)
    if value.client_version != 0:
        tags[_CLIENT_VERSION_TAG] = primitives.INT16.pack(value.client_version)
    return head + _encode_partitions(value) + times + primitives.tag_section(tags)


def _encode_partitions(value: TransactionValue) -> bytes:
    if value.state is TransactionState.EMPTY:
        return primitives.unsigned_varint(0)
    if not value.partitions:
        return b"\x01"
    by_topic: dict[str, list[int]] = {}
    for topic, number in value.partitions:
        by_topic.setdefault(topic, []).append(number)
    out = bytearray(primitives.unsigned_varint(len(by_topic) + 1))
    for topic, numbers in by_topic.items():
        out += primitives.compact_string(topic) + primitives.unsigned_varint(len(numbers) + 1)
        out += struct.pack(f">{len(numbers)}ix", *numbers)
    return bytes(out)
