"""Names of a partition's files and directories, exactly Kafka's (row S1)."""

from __future__ import annotations

import re
import uuid

from penstock.base.ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
CUT = ".cut"
"""What recovery or repair cut off and keeps; Kafka ignores the name, and so does every start."""

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"

_SEGMENT_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.cleaned|\.swap|\.deleted)?\Z", re.ASCII
)
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})\Z", re.ASCII)
_PARTITION_MAX = 2**31 - 1
_DELETED_DIRECTORY = re.compile(r"(.+)\.([0-9a-f]{32})-delete\Z")
_FUTURE_DIRECTORY = re.compile(r"(.+)\.([0-9a-f]{32})-(future|stray)\Z")


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str, str] | None:
    """(base offset, kind, temporary suffix or '') of a segment's file, or None for any other name."""
    match = _SEGMENT_FILE.match(name)
    if match is None:
        return None
    return int(match[1]), match[2], match[3] or ""


def partition_directory(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition that a directory is called after; None unless `partition_directory` gives the very same name."""
    match = _PARTITION_DIRECTORY.match(name)
    if match is None or match[1] in (".", "..") or int(match[2]) > _PARTITION_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


def deleted_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    """`T-P.UUID-delete`, with the topic cut so that the name stays within 255 characters, as Kafka cuts it."""
    return _suffixed(partition, f".{unique.hex}-delete")


def stray_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    """`T-P.UUID-stray`: a replica that the cluster does not know of. Kept, and read by no start."""
    return _suffixed(partition, f".{unique.hex}-stray")


def _suffixed(partition: TopicPartition, suffix: str) -> str:
    return partition_directory(partition)[: 255 - len(suffix)] + suffix


def future_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    """`T-P.UUID-future`: a replica that is being copied here from another directory of the same broker."""
    return f"{partition_directory(partition)}.{unique.hex}-future"


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition that a `-future` directory is to become; None for any other name."""
    match = _FUTURE_DIRECTORY.match(name)
    return None if match is None or match[3] != "future" else parse_partition_directory(match[1])


def is_deleted_directory(name: str) -> bool:
    return _DELETED_DIRECTORY.match(name) is not None


def is_future_directory(name: str) -> bool:
    """A replica on its way between directories, or one the cluster no longer knows."""
    return _FUTURE_DIRECTORY.match(name) is not None
