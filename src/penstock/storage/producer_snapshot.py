"""Snapshots of producer state: `%020d.snapshot`, the state before the offset in its name.

Bytes, big-endian: int16 version (1), uint32 CRC-32C of what follows, int32 count, then 46 bytes per producer: int64
producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator
epoch, int64 first offset of the open transaction (-1: none). Of the five batches only the last is kept.
What a crash leaves: a torn file; its CRC fails, it is removed, and an older one is replayed from (KAFKA-5747).
Who may call: `partition_log` and `load`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.base.errors import CorruptFileError
from penstock.base.files import Files
from penstock.records import kernels
from penstock.storage import names
from penstock.storage.producer_state import Producer, ProducerBatch

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_VERSION = 1


def encode(producers: Iterable[Producer]) -> bytes:
    entries = []
    for producer in producers:
        last = producer.batches[-1] if producer.batches else ProducerBatch(-1, -1, 0, -1)
        entries.append(
            _ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        )
    data = bytearray(_HEAD.pack(_VERSION, 0, len(entries)) + b"".join(entries))
    struct.pack_into(">I", data, 2, kernels.crc32c(data, _CRC_START, len(data)))
    return bytes(data)


def decode(data: bytes, path: str) -> list[Producer]:
    if len(data) < _HEAD.size:
        raise CorruptFileError(path, f"a snapshot has at least {_HEAD.size} bytes, this has {len(data)}")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptFileError(path, f"snapshot version {version} is not known (expected {_VERSION})")
    if crc != kernels.crc32c(data, _CRC_START, len(data)):
        raise CorruptFileError(path, "its CRC does not match")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptFileError(path, f"promises {count} producers and has {len(data)} bytes")
    producers = []
    for fields in _ENTRY.iter_unpack(data[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first = fields
        producer = Producer(producer_id, epoch)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = first
        if last_offset >= 0:
            producer.batches.append(ProducerBatch(last_sequence, last_offset, offset_delta, timestamp))
        producers.append(producer)
    return producers


class Snapshots:
    """The snapshot files of one partition's directory."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{names.segment_file(offset, names.SNAPSHOT)}"

    def write(self, offset: int, producers: Iterable[Producer]) -> None:
        """Written here, synced with the flush that moves the recovery point; torn by a crash before that, its CRC fails."""
        path = self.path(offset)
        if self._files.exists(path):
            self._files.remove(path)
        file = self._files.create(path)
        try:
            file.pwrite(encode(producers), 0)
        finally:
            file.close()
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()

    def says(self, offset: int, producers: Iterable[Producer]) -> bool:
        """Whether the snapshot at `offset` is there, and just these producers stand in it."""
        try:
            return offset in self.offsets and self._files.read(self.path(offset)) == encode(producers)
        except FileNotFoundError:
            return False

    def read(self, offset: int) -> list[Producer]:
        path = self.path(offset)
        return decode(self._files.read(path), path)

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            if self._files.exists(self.path(offset)):
                self._files.remove(self.path(offset))

    def set_aside(self, offset: int) -> list[str]:
        """Renames a snapshot `.deleted`, to be removed with its segment; its path then, if there was one."""
        if offset not in self.offsets:
            return []
        self.offsets.remove(offset)
        path = self.path(offset)
        if not self._files.exists(path):
            return []
        self._files.rename(path, path + names.DELETED)
        return [path + names.DELETED]

    def latest_at_or_below(self, offset: int) -> int | None:
        found = [known for known in self.offsets if known <= offset]
        return found[-1] if found else None
