"""What a dump shows, one value per line of it. `kind` is what a program tells them apart by; bytes stay bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

Field = bytes | Mapping[str, object] | None
"""A key or value: its bytes, what a decoder made of them, or null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    kind: ClassVar[str] = "batch"
    file: str
    position: int
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    size: int
    magic: int
    compress_codec: str
    crc: int
    is_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderItem:
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordItem:
    kind: ClassVar[str] = "record"
    file: str
    offset: int
    timestamp: int
    timestamp_type: str
    sequence: int
    key_size: int
    value_size: int
    key: Field
    value: Field
    headers: tuple[HeaderItem, ...]
    decode_error: str | None = None
    """Why the decoder left key and value as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecordItem:
    kind: ClassVar[str] = "control_record"
    file: str
    offset: int
    timestamp: int
    type: str
    version: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    """Of the coordinator that ended the transaction; None for control records of another kind."""
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetIndexItem:
    kind: ClassVar[str] = "offset_index"
    file: str
    offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeIndexItem:
    kind: ClassVar[str] = "time_index"
    file: str
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionIndexItem:
    kind: ClassVar[str] = "transaction_index"
    file: str
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSnapshotItem:
    kind: ClassVar[str] = "producer_snapshot"
    file: str
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointItem:
    kind: ClassVar[str] = "checkpoint"
    file: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochItem:
    kind: ClassVar[str] = "leader_epoch"
    file: str
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertiesItem:
    """`meta.properties`, `partition.metadata` and the clean marker: names and values as they stand."""

    kind: ClassVar[str] = "properties"
    file: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemItem:
    kind: ClassVar[str] = "problem"
    file: str
    position: int | None
    offset: int | None
    reason: str


Item = (
    BatchItem
    | RecordItem
    | ControlRecordItem
    | OffsetIndexItem
    | TimeIndexItem
    | TransactionIndexItem
    | ProducerSnapshotItem
    | CheckpointItem
    | LeaderEpochItem
    | PropertiesItem
    | ProblemItem
)
