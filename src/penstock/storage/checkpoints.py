"""Small text files that remember offsets: what they are, and how they survive a crash.

Bytes: a version line (`0`), a line with the number of entries, then one entry a line, fields separated by one space.
Invariant: a file is either the old one or the new one, whole: written to `NAME.tmp`, synced, renamed, and the directory
synced. A crash leaves at most a `.tmp`, which the next write replaces. An unreadable file raises CorruptFileError; the
caller decides what forgetting it means (for recovery points: recover from 0).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from penstock.base.errors import CorruptFileError, PenstockError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition, topic_id_from_text, topic_id_text
from penstock.storage import names

T = TypeVar("T")
_VERSION = "0"


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


_writing = tuple(threading.RLock() for _ in range(64))


def write_atomically(files: Files, path: str, data: bytes) -> None:
    """Safe from any thread: two writers of one file take turns, and the later one's bytes stay."""
    temporary = path + ".tmp"
    with _writing[hash(path) % len(_writing)]:
        if files.exists(temporary):
            files.remove(temporary)
        file = files.create(temporary)
        try:
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        files.rename(temporary, path)
        files.sync_directory(path.rpartition("/")[0])


def _write_lines(files: Files, path: str, lines: list[str]) -> None:
    text = "\n".join((_VERSION, str(len(lines)), *lines)) + "\n"
    write_atomically(files, path, text.encode())


def _read_lines(files: Files, path: str, parse: Callable[[list[str]], T]) -> list[T]:
    if not files.exists(path):
        return []
    data = files.read(path)
    if not data:
        return []  # Kafka makes the file before it has anything to write
    try:
        lines = data.decode().split("\n")
        if lines[0].strip() != _VERSION:
            raise CorruptFileError(path, f"version {lines[0][:20]!r} is not known (expected {_VERSION})")
        expected = int(lines[1])
        entries = [parse(line.split()) for line in lines[2:] if line.strip()]
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise CorruptFileError(path, f"is not a checkpoint file ({error})") from None
    if len(entries) != expected:
        raise CorruptFileError(path, f"promises {expected} entries and holds {len(entries)}")
    return entries


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; empty where there is no file."""

    def parse(fields: list[str]) -> tuple[TopicPartition, int]:
        topic, partition, offset = fields
        return TopicPartition(topic, int(partition)), int(offset)

    return dict(_read_lines(files, path, parse))


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{partition.topic} {partition.partition} {offset}" for partition, offset in sorted(offsets.items())]
    _write_lines(files, path, lines)


def drop_offset(files: Files, path: str, partition: TopicPartition) -> None:
    """Takes one partition out of a checkpoint, where it can be read and names it."""
    with _writing[hash(path) % len(_writing)], suppress(CorruptFileError):
        offsets = read_offsets(files, path)
        if offsets.pop(partition, None) is not None:
            write_offsets(files, path, offsets)


def read_epochs(files: Files, path: str) -> list[EpochStart]:
    def parse(fields: list[str]) -> EpochStart:
        epoch, start_offset = fields
        return EpochStart(int(epoch), int(start_offset))

    return _read_lines(files, path, parse)


def write_epochs(files: Files, path: str, entries: Iterable[EpochStart]) -> None:
    _write_lines(files, path, [f"{entry.epoch} {entry.start_offset}" for entry in entries])


def read_topic_id(files: Files, directory: str) -> uuid.UUID | None:
    path = f"{directory}/{names.PARTITION_METADATA}"
    if not files.exists(path):
        return None
    fields = _properties(files, path, ":")
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptFileError(path, "is not a version 0 partition.metadata with a topic_id")
    try:
        return topic_id_from_text(fields["topic_id"])
    except PenstockError as error:
        raise CorruptFileError(path, str(error)) from None


def write_topic_id(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    text = f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n"
    write_atomically(files, f"{directory}/{names.PARTITION_METADATA}", text.encode())


def _properties(files: Files, path: str, separator: str) -> dict[str, str]:
    try:
        text = files.read(path).decode()
    except UnicodeDecodeError:
        raise CorruptFileError(path, "is not text") from None
    fields = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            key, _, value = line.partition(separator)
            fields[key.strip()] = value.strip()
    return fields


def read_meta_properties(files: Files, directory: str) -> dict[str, str]:
    path = f"{directory}/{names.META_PROPERTIES}"
    return _properties(files, path, "=") if files.exists(path) else {}


def write_meta_properties(files: Files, directory: str, properties: Mapping[str, str]) -> None:
    text = "#\n" + "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    write_atomically(files, f"{directory}/{names.META_PROPERTIES}", text.encode())


def write_clean_marker(files: Files, directory: str, broker_epoch: int = -1) -> None:
    """Says that every log of the directory was flushed. Written last at a clean stop, removed first at a start."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(files, f"{directory}/{names.CLEAN_SHUTDOWN}", text.encode())
