"""Produce (key 0), versions 3-13: one batch to the leader of its partition.

Sent again after an error that may pass: at least once, or exactly once per partition for a batch that carries a producer
id and a sequence, since the leader knows a batch it has already appended.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster, Leader
from penstock.client.connection import Connection
from penstock.client.errors import AnswerError, UnreachableError
from penstock.client.messages import call_codec
from penstock.protocol.primitives import (
    INT32,
    compact_string,
    nullable_compact_string,
    nullable_string,
    string,
    unsigned_varint,
)
from penstock.protocol.produce import FLEXIBLE_FROM, NO_TOPIC_ID, TOPIC_ID_FROM

KEY = 0
LOWEST, HIGHEST = 3, 13
TRANSACTIONS_HIGHEST = 11
"""From version 12 on a write adds its partition to the transaction, which then must end in the newer way too (KIP-890)."""
ACKS_ALL = -1

_ACKS_TIMEOUT = struct.Struct(">hi")


class ProduceCall(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    records: bytes | memoryview
    acks: int
    timeout_ms: int
    transactional_id: str | None


class Produced(NamedTuple):
    base_offset: int
    """-1 for a batch that the leader had already, if it no longer knows where."""
    log_append_time_ms: int


def encode_produce_call(call: ProduceCall, version: int) -> tuple[bytes, bytes | memoryview, bytes]:
    """The body in three parts, so that the records are not copied."""
    options = _ACKS_TIMEOUT.pack(call.acks, call.timeout_ms)
    index = INT32.pack(call.partition)
    if version >= FLEXIBLE_FROM:
        topic = call.topic_id if version >= TOPIC_ID_FROM else compact_string(call.topic)
        length = unsigned_varint(len(call.records) + 1)
        transactional_id = nullable_compact_string(call.transactional_id)
        head = b"".join((transactional_id, options, b"\x02", topic, b"\x02", index, length))
        return head, call.records, b"\x00\x00\x00"
    one = INT32.pack(1)
    length = INT32.pack(len(call.records))
    head = b"".join((nullable_string(call.transactional_id), options, one, string(call.topic), one, index, length))
    return head, call.records, b""


def produce(
    cluster: Cluster,
    partition: TopicPartition,
    records: bytes | memoryview,
    *,
    acks: int = ACKS_ALL,
    transactional_id: str | None = None,
) -> Produced:
    """Appends one batch and says where it stands. acks is 1 or -1; 0 would have no answer to wait for."""
    assert acks in (1, ACKS_ALL)
    attempts = cluster.attempts()
    while True:
        try:
            leader = cluster.leader(partition)
            with cluster.connection(leader.node) as connection:
                version = send_produce(connection, cluster, leader, partition, records, acks, transactional_id)
                return receive_produce(connection, cluster, partition, version)
        except (AnswerError, UnreachableError) as error:
            cluster.forget(partition.topic)
            attempts.failed(error)


def send_produce(
    connection: Connection,
    cluster: Cluster,
    leader: Leader,
    partition: TopicPartition,
    records: bytes | memoryview,
    acks: int,
    transactional_id: str | None,
) -> int:
    """Sends and does not wait; the version to read the answer in."""
    highest = HIGHEST if leader.topic_id != NO_TOPIC_ID else TOPIC_ID_FROM - 1
    if transactional_id is not None:
        highest = TRANSACTIONS_HIGHEST
    version = connection.version(KEY, "Produce", LOWEST, highest)
    timeout_ms = cluster.config.request_timeout_ms
    call = ProduceCall(
        partition.topic, leader.topic_id, partition.partition, records, acks, timeout_ms, transactional_id
    )
    connection.send(KEY, version, *encode_produce_call(call, version), is_flexible=version >= FLEXIBLE_FROM)
    return version


def receive_produce(connection: Connection, cluster: Cluster, partition: TopicPartition, version: int) -> Produced:
    """The oldest answer that is outstanding, which must be that of a batch of this partition."""
    answer = call_codec(KEY, version).decode(connection.receive(wait_ms=cluster.config.request_timeout_ms).body)
    entry = answer.responses[0].partition_responses[0]
    if entry.error_code not in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
        where = f"broker {connection.address}, Produce to {partition}"
        raise AnswerError(where, entry.error_code, detail=getattr(entry, "error_message", None) or "")
    return Produced(entry.base_offset, _milliseconds(entry.log_append_time))


def _milliseconds(moment: object) -> int:
    """kio gives a datetime, or None for -1."""
    timestamp = getattr(moment, "timestamp", None)
    return -1 if timestamp is None else round(timestamp() * 1000)
