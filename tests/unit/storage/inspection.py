"""A log directory to look at and to break: one plain partition of several segments, one with transactions."""

import os
import struct
import uuid
import zlib
from pathlib import Path

from penstock.base.clock import ManualClock
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
from penstock.records.batch import Codec
from penstock.records.build import build_batch, build_end_marker
from penstock.storage import checkpoints
from penstock.storage.config import log_config
from penstock.storage.inspect.places import DirectoryPlace, PartitionPlace, find_place
from penstock.storage.inspect.problems import Problem
from penstock.storage.inspect.verify import PartitionSummary, verify
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin

FILES = SystemFiles()
NOW_MS = 1_700_000_000_000
PLAIN, TRANSACTIONS = TopicPartition("plain", 0), TopicPartition("transactions", 3)
PLAIN_RECORDS = 600


def make_directory(path: Path) -> Path:
    """Closed cleanly. `plain-0` holds records 0 to 599 in batches of five, every codec, in two leader epochs."""
    path.mkdir(parents=True)
    directories = LogDirectories([str(path)], FILES, ManualClock(NOW_MS))
    directories.open()
    checkpoints.write_meta_properties(FILES, str(path), {"version": "0", "broker.id": "1"})
    _write_plain(directories)
    _write_transactions(directories)
    for log in directories.logs.values():
        log.set_high_watermark(log.end_offset)
    assert directories.close() == []
    return path


def _write_plain(directories: LogDirectories) -> None:
    config = log_config({"segment.bytes": "6000", "index.interval.bytes": "500"})
    log = directories.create(PLAIN, config, uuid.UUID(int=7))
    for first in range(0, PLAIN_RECORDS, 5):
        records = [
            (NOW_MS + number, b"key %d" % number, b"value %d" % number, (("h", b"x"), ("null", None)))
            for number in range(first, first + 5)
        ]
        log.append_as_leader(build_batch(records, codec=Codec(first // 5 % 5)), leader_epoch=first // 300)


def _write_transactions(directories: LogDirectories) -> None:
    config = log_config({"segment.bytes": "3000", "index.interval.bytes": "500"})
    log = directories.create(TRANSACTIONS, config, uuid.UUID(int=8))
    for number in range(24):
        _append_transactional(log, 7, number)
        if number % 3 == 0:
            _append_transactional(log, 8, number // 3)
        if number % 4 == 3:
            marker = build_end_marker(number % 8 == 7, 7, 0, 5, NOW_MS + number)
            log.append_as_leader(marker, leader_epoch=0, origin=Origin.COORDINATOR)
    log.append_as_leader(build_end_marker(False, 8, 0, 6, NOW_MS), leader_epoch=0, origin=Origin.COORDINATOR)


def _append_transactional(log: PartitionLog, producer_id: int, number: int) -> None:
    records = [(NOW_MS + number, None, b"\xff\x00\xfe", ()), (NOW_MS + number, b"k", None, ())] * 5
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=number * 10, transactional=True
    )
    log.append_as_leader(batch, leader_epoch=0)


def logs_of(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def flip(path: Path, position: int) -> None:
    """Changes one byte; negative positions count from the end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def content(path: Path) -> dict[str, bytes]:
    """Every file below a directory, the lock aside."""
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    found.pop(".lock", None)
    return found


def problems_of(path: Path, *, live: bool = False) -> list[Problem]:
    return verify_path(path, live=live)[0]


def verify_path(path: Path, *, live: bool = False) -> tuple[list[Problem], list[PartitionSummary]]:
    problems: list[Problem] = []
    summaries = verify(FILES, find_place(FILES, str(path)), problems.append, live=live)
    return problems, summaries


def partition_place(path: Path) -> PartitionPlace:
    place = find_place(FILES, str(path))
    assert isinstance(place, PartitionPlace)
    return place


def directory_place(path: Path) -> DirectoryPlace:
    place = find_place(FILES, str(path))
    assert isinstance(place, DirectoryPlace)
    return place


def old_message(magic: int, offset: int, value: bytes) -> bytes:
    """A message of record format 0 or 1 with a good CRC."""
    timestamp = struct.pack(">q", NOW_MS) if magic else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def make_old_directory(path: Path) -> Path:
    (path / "old-0").mkdir(parents=True)
    (path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    messages = b"".join(old_message(offset % 2, offset, b"v%d" % offset) for offset in range(5))
    (path / "old-0" / f"{0:020d}.log").write_bytes(messages)
    return path


def is_root() -> bool:
    return os.geteuid() == 0
