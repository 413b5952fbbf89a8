"""Log directories that Penstock writes on a real disk, of every kind, for Apache Kafka to judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.base.clock import SystemClock
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
from penstock.records.batch import Codec
from penstock.records.build import Record, build_batch, build_end_marker
from penstock.storage.answers import Bound
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.upkeep import compact, remove_files, retain
from tests.support.kafka_reads import ReadRecord
from tests.support.log_reads import read_records

FILES = SystemFiles()
CLOCK = SystemClock()
SMALL_SEGMENTS = {"segment.bytes": "4000", "index.interval.bytes": "200"}


def open_directories(path: Path, configs: Mapping[str, Mapping[str, str]] | None = None) -> LogDirectories:
    """The directory opened here, as a broker does, with these topics' configurations."""
    by_topic = configs or {}
    directories = LogDirectories(
        [str(path)],
        FILES,
        CLOCK,
        config_for=lambda partition: log_config(by_topic.get(partition.topic, {})),
    )
    directories.open()
    return directories


def abandon(directories: LogDirectories) -> None:
    """What kill -9 leaves: everything written, nothing finished."""
    for log in directories.logs.values():
        log.abandon()
    for state in directories.directories:
        state.lock.release()


CONFIGS: dict[str, dict[str, str]] = {
    **{f"codec-{codec.name.lower()}": SMALL_SEGMENTS for codec in Codec},
    **{f"recoded-{name}": {**SMALL_SEGMENTS, "compression.type": name} for name in ("gzip", "snappy", "lz4", "zstd")},
    "append-time": {**SMALL_SEGMENTS, "message.timestamp.type": "LogAppendTime"},
    "transactions": SMALL_SEGMENTS,
    "compacted": {**SMALL_SEGMENTS, "cleanup.policy": "compact", "delete.retention.ms": "0"},
    "trimmed": {**SMALL_SEGMENTS, "retention.ms": "-1", "file.delete.delay.ms": "0"},
    "preallocated": {**SMALL_SEGMENTS, "preallocate": "true"},
    "empty": {},
}


def write_directory(path: Path) -> LogDirectories:
    """Every kind of topic, one partition each; still open."""
    path.mkdir(parents=True, exist_ok=True)
    directories = open_directories(path, CONFIGS)
    for topic, config in CONFIGS.items():
        directories.create(TopicPartition(topic, 0), log_config(config))
    logs = {partition.topic: log for partition, log in directories.logs.items()}
    for codec in Codec:
        _fill(logs[f"codec-{codec.name.lower()}"], codec=codec)
    for name in ("gzip", "snappy", "lz4", "zstd"):
        _fill(logs[f"recoded-{name}"])
    _fill(logs["append-time"])
    _fill(logs["trimmed"])
    _fill(logs["preallocated"])
    _transact(logs["transactions"])
    _compact(logs["compacted"])
    logs["trimmed"].delete_records(logs["trimmed"].end_offset // 2)
    retain(logs["trimmed"], CLOCK)
    directories.checkpoint()
    return directories


def _fill(log: PartitionLog, *, codec: Codec = Codec.NONE, batches: int = 40) -> None:
    start_ms = CLOCK.wall_ms() - 100_000
    sequence = 0
    for number in range(batches):
        records = _records(start_ms + number * 1000, number)
        idempotent = number % 2 == 0
        batch = build_batch(
            records,
            codec=codec,
            producer_id=500 if idempotent else -1,
            producer_epoch=3 if idempotent else -1,
            base_sequence=sequence if idempotent else -1,
        )
        sequence += len(records) if idempotent else 0
        log.append_as_leader(batch, leader_epoch=number // 15)
    log.set_high_watermark(log.end_offset)


def _records(start_ms: int, number: int) -> list[Record]:
    late_ms = 5000 if number % 7 == 0 else 0
    return [
        (
            start_ms - late_ms,
            b"key-%d" % number,
            b"value-%d " % number * 10,
            (("kind", b"a"), ("empty", b""), ("none", None)),
        ),
        (start_ms + 5, None, b"no key", ()),
        (start_ms + 3, b"no value", None, ()),
        (start_ms + 9, b"", b"", (("\u00fc", b"\xff\x00"),)),
    ]


def _transact(log: PartitionLog) -> None:
    sequences = {600: 0, 601: 0}
    for number in range(30):
        for producer_id in sequences:
            batch = build_batch(
                [(CLOCK.wall_ms(), b"t%d" % number, b"x" * 60, ())] * 2,
                producer_id=producer_id,
                producer_epoch=1,
                base_sequence=sequences[producer_id],
                transactional=True,
            )
            sequences[producer_id] += 2
            log.append_as_leader(batch, leader_epoch=0)
        log.append_as_leader(build_batch([(CLOCK.wall_ms(), b"plain", b"p", ())]), leader_epoch=0)
        if number % 3 == 2:
            _end(log, 600, commit=number % 2 == 0)
        if number % 10 == 9 and number < 29:
            _end(log, 601, commit=False)
    log.set_high_watermark(log.end_offset)


def _end(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    marker = build_end_marker(commit, producer_id, 1, 4, CLOCK.wall_ms())
    log.append_as_leader(marker, leader_epoch=0, origin=Origin.COORDINATOR)


def _compact(log: PartitionLog) -> None:
    clean_offset = None
    for turn in range(3):
        for number in range(60):
            key = b"k%d" % (number % 17)
            value = None if number % 16 == turn else b"turn %d number %d " % (turn, number) * 6
            codec = list(Codec)[number % 5]
            log.append_as_leader(build_batch([(CLOCK.wall_ms(), key, value, ())] * 2, codec=codec), leader_epoch=turn)
        log.set_high_watermark(log.end_offset)
        log.roll()
        log.flush()
        clean_offset = compact(log, FILES, CLOCK, last_clean_offset=clean_offset)
        assert clean_offset is not None
    remove_files(FILES, log.removals.take_due(everything=True))


def consumer_view(log: PartitionLog, level: str) -> list[ReadRecord]:
    bound = Bound.LAST_STABLE if level == "read_committed" else Bound.HIGH_WATERMARK
    return read_records(log, bound)
