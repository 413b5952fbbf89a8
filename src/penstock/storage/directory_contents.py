"""What stands in a log directory before it is opened: partitions, its owner, remembered offsets. Changes nothing."""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import CorruptFileError, LogDirectoryError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints, names

_KNOWN_DIRECTORIES = frozenset({"__cluster_metadata-0", "lost+found"})


class Owner(NamedTuple):
    """Whose directory it is, by its `meta.properties`; None where that does not say."""

    node_id: str | None
    cluster_id: str | None


class Remembered(NamedTuple):
    """What a directory's checkpoints say of its partitions."""

    recovery_points: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]


def partitions_in(files: Files, path: str) -> list[TopicPartition]:
    """Partitions of a directory. One that is nobody's means: not a log directory, and nothing in it is touched."""
    partitions = []
    for name in files.list(path):
        partition = names.parse_partition_directory(name)
        if not files.is_directory(f"{path}/{name}"):
            if files.is_link(f"{path}/{name}") and partition is not None:
                raise LogDirectoryError(
                    f"{path}/{name} is a link that leads nowhere; mount what it points at, or remove it"
                )
            continue
        if name in _KNOWN_DIRECTORIES or names.is_deleted_directory(name) or names.is_future_directory(name):
            continue
        if partition is None:
            raise LogDirectoryError(
                f"{path} is not a log directory: it holds {name!r}, which no partition is called; choose another"
            )
        partitions.append(partition)
    return partitions


def owner_of(files: Files, path: str) -> Owner:
    known = checkpoints.read_meta_properties(files, path)
    return Owner(known.get("node.id", known.get("broker.id")), known.get("cluster.id") or None)


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """A checkpoint that cannot be read is the same as none: recovery from 0, high watermarks from the start."""
    try:
        return checkpoints.read_offsets(files, path)
    except CorruptFileError:
        return {}


def read_remembered(files: Files, path: str) -> Remembered:
    return Remembered(
        read_offsets(files, f"{path}/{names.RECOVERY_POINTS}"),
        read_offsets(files, f"{path}/{names.HIGH_WATERMARKS}"),
        read_offsets(files, f"{path}/{names.LOG_STARTS}"),
    )
