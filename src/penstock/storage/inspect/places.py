"""What a path is: a log directory, a partition's directory, or one of their files, told by names alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from penstock.base.errors import LogDirectoryError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage import names


class FileKind(Enum):
    LOG = names.LOG
    OFFSET_INDEX = names.OFFSET_INDEX
    TIME_INDEX = names.TIME_INDEX
    TRANSACTION_INDEX = names.TRANSACTION_INDEX
    SNAPSHOT = names.SNAPSHOT
    LEADER_EPOCHS = names.LEADER_EPOCHS
    OFFSET_CHECKPOINT = "offset-checkpoint"
    PARTITION_METADATA = names.PARTITION_METADATA
    META_PROPERTIES = names.META_PROPERTIES
    CLEAN_SHUTDOWN = names.CLEAN_SHUTDOWN


OFFSET_CHECKPOINTS = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS, names.CLEANER_OFFSETS)

_BY_NAME = {
    names.LEADER_EPOCHS: FileKind.LEADER_EPOCHS,
    names.PARTITION_METADATA: FileKind.PARTITION_METADATA,
    names.META_PROPERTIES: FileKind.META_PROPERTIES,
    names.CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
    **dict.fromkeys(OFFSET_CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
}
_SEGMENT_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)((?:\.\d+)*\.cut|\.cleaned|\.swap|\.deleted)?\Z"
)
_OTHER_DIRECTORIES = frozenset({"lost+found"})
_KIND_ORDER = {kind: order for order, kind in enumerate(FileKind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """One file. `base_offset` is -1 for a file that belongs to no segment, `suffix` what follows a segment file's kind."""

    path: str
    kind: FileKind
    base_offset: int = -1
    suffix: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0] or "."


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    """A directory of segments. `partition` is None where its name is no partition's."""

    path: str
    partition: TopicPartition | None

    @property
    def parent(self) -> str:
        return parent_of(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlace:
    """A log directory and its partitions."""

    path: str
    partitions: tuple[PartitionPlace, ...]


Place = FilePlace | PartitionPlace | DirectoryPlace


def parent_of(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or ("/" if slash else ".")


def file_place(path: str) -> FilePlace | None:
    """The file's place by its name; None for a name that no log uses."""
    name = path.rpartition("/")[2]
    kind = _BY_NAME.get(name)
    if kind is not None:
        return FilePlace(path=path, kind=kind)
    match = _SEGMENT_FILE.match(name)
    if match is None:
        return None
    return FilePlace(path=path, kind=FileKind(match[2]), base_offset=int(match[1]), suffix=match[3] or "")


def find_place(files: Files, path: str) -> Place:
    """What stands at `path`; LogDirectoryError where it is nothing of a log's, OSError where it cannot be looked at."""
    path = path.rstrip("/") or "/"
    if not files.is_directory(path):
        files.size(path)  # FileNotFoundError names it better than any sentence about kinds
        place = file_place(path)
        if place is None:
            raise LogDirectoryError(
                f"{path} is not a file of a log: such a file is called like {names.segment_file(0, names.LOG)} "
                f"or {names.LEADER_EPOCHS}"
            )
        return place
    listed = files.list(path)
    if any(_is_of_partition(name) for name in listed):
        return PartitionPlace(path=path, partition=names.parse_partition_directory(path.rpartition("/")[2]))
    partitions = tuple(_partitions(files, path, listed))
    if any(name in _BY_NAME for name in listed) or any(_has_segments(files, found) for found in partitions):
        return DirectoryPlace(path=path, partitions=partitions)
    raise LogDirectoryError(
        f"{path} is neither a log directory nor a partition's: it holds no segments and no checkpoint"
    )


def _is_of_partition(name: str) -> bool:
    return name in (names.LEADER_EPOCHS, names.PARTITION_METADATA) or _SEGMENT_FILE.match(name) is not None


def _has_segments(files: Files, place: PartitionPlace) -> bool:
    return any(_is_of_partition(name) for name in files.list(place.path))


def _partitions(files: Files, path: str, listed: list[str]) -> Iterator[PartitionPlace]:
    """Its partitions; a directory that no log would hold means, as at a start, that this is none."""
    for name in listed:
        if not files.is_directory(f"{path}/{name}"):
            continue
        partition = names.parse_partition_directory(name)
        if partition is not None:
            yield PartitionPlace(path=f"{path}/{name}", partition=partition)
        elif name not in _OTHER_DIRECTORIES and not (
            names.is_deleted_directory(name) or names.is_future_directory(name)
        ):
            raise LogDirectoryError(f"{path} is not a log directory: it holds {name!r}, which no partition is called")


def is_kafkas_own(place: PartitionPlace) -> bool:
    """The metadata log of a Kafka controller: shown and checked, never changed."""
    return place.partition is not None and place.partition.topic == "__cluster_metadata"


def files_of(files: Files, place: Place) -> Iterator[FilePlace]:
    """The files of a place, in the order in which a reader wants them: segment by segment, its log first."""
    if isinstance(place, FilePlace):
        yield place
        return
    found = [file_place(f"{place.path}/{name}") for name in files.list(place.path)]
    yield from sorted((known for known in found if known is not None), key=_order)
    if isinstance(place, DirectoryPlace):
        for partition in place.partitions:
            yield from files_of(files, partition)


def _order(place: FilePlace) -> tuple[bool, int, str, int]:
    """Files without a segment last in a partition; they are all that a log directory has."""
    return place.base_offset < 0, place.base_offset, place.suffix, _KIND_ORDER[place.kind]


def home_of(files: Files, place: Place) -> str | None:
    """The log directory in which a place lies: the one whose `.lock` keeps writers apart. None where there is none."""
    if isinstance(place, DirectoryPlace):
        return place.path
    if isinstance(place, PartitionPlace):
        candidate = place.parent
    else:
        candidate = place.directory
        if place.base_offset >= 0 or place.kind in (FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA):
            candidate = parent_of(candidate)
    return candidate if any(files.exists(f"{candidate}/{name}") for name in (names.LOCK, *_BY_NAME)) else None
