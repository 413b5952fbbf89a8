"""Apache Kafka's DumpLogSegments as a function, and what it prints as values.

What it complains of (an index that does not match its log, offsets that jump, a snapshot that is corrupt) it prints on
stderr beside an exit code of 0, so a test looks at `Dump.complaints` first. One JVM dumps any number of
files: pass them together.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kafka_jvm import java_command

_MAIN = {"3.9": "kafka.tools.DumpLogSegments", "4.3": "org.apache.kafka.tools.DumpLogSegments"}
_FIELD = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(
    r"^\| offset: (?P<offset>-?\d+) (?P<timestamp_type>\w+): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+)"
    r" valueSize: (?P<value_size>-?\d+)(?: sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_keys>.*?)\])?"
    r"(?P<rest>.*)$",
    re.DOTALL,
)
# What a JVM newer than Kafka's jars, or one with options in its environment, says of itself.
_JVM_REMARK = re.compile(r"^(?:WARNING: |OpenJDK .* warning: |Picked up \w+: ).*\n", re.MULTILINE)
# A single argument of a program may hold 128 KiB on Linux.
_ARGUMENT_BYTES_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size_bytes: int
    magic: int
    codec: str
    crc: int
    is_valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """`rest` is what follows the sizes: key and payload decoded as text, or what a control record says."""

    offset: int
    timestamp_type: str
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]
    rest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedAbort:
    producer_id: int
    base_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedProducer:
    """The sequence fields are None for a producer of which the snapshot holds no batch."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_base_offset: int | None
    last_timestamp: int
    base_sequence: int | None
    last_sequence: int | None
    last_offset: int | None


@dataclass(slots=True)
class DumpedFile:
    batches: list[DumpedBatch] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)
    offset_entries: list[tuple[int, int]] = field(default_factory=list)
    """(offset, position)"""
    time_entries: list[tuple[int, int]] = field(default_factory=list)
    """(timestamp, offset)"""
    aborts: list[DumpedAbort] = field(default_factory=list)
    producers: list[DumpedProducer] = field(default_factory=list)
    passed_sanity_check: bool = False
    """Said only with `--index-sanity-check`, and not of an empty offset index."""


@dataclass(slots=True)
class Dump:
    files: dict[Path, DumpedFile] = field(default_factory=dict)
    complaints: str = ""


def dump_log_segments(version: str, files: Iterable[Path], *arguments: str) -> str:
    """What DumpLogSegments prints about the files, complaints and all."""
    return "".join(printed + complained for printed, complained in _run(version, files, arguments))


def dump(version: str, files: Iterable[Path], *arguments: str) -> Dump:
    """What DumpLogSegments says about the files (`.log .index .timeindex .txnindex .snapshot`), as values.

    Useful arguments: `--deep-iteration` (records), `--print-data-log` (records with their data; text without line feeds
    only), `--index-sanity-check`, `--offsets-decoder`, `--transaction-log-decoder`.
    """
    found = Dump()
    for printed, complained in _run(version, files, arguments):
        found.complaints += complained
        _parse(printed, found.files)
    return found


def dump_directory(version: str, partition: Path, *arguments: str) -> Dump:
    """Like `dump`, of everything in a partition's directory that the tool knows."""
    known = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    return dump(version, sorted(path for path in partition.iterdir() if path.suffix in known), *arguments)


def _run(version: str, files: Iterable[Path], arguments: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    for some in _portions(files):
        command = java_command(version, _MAIN[version])
        # After the log's own settings: the last definition of a property counts.
        command[-1:-1] = [quiet]
        command = [*command, "--files", some, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600, check=False)
        complained = _JVM_REMARK.sub("", ran.stderr)
        if ran.returncode != 0:
            complained += f"DumpLogSegments ended with {ran.returncode}\n"
        yield ran.stdout, complained


def _portions(files: Iterable[Path]) -> Iterator[str]:
    portion = ""
    for file in files:
        assert "," not in str(file), "DumpLogSegments splits its argument at commas"
        if portion and len(portion) + len(str(file)) > _ARGUMENT_BYTES_MAX:
            yield portion
            portion = ""
        portion = f"{portion},{file}" if portion else str(file)
    if portion:
        yield portion


def _parse(printed: str, files: dict[Path, DumpedFile]) -> None:
    current = DumpedFile()
    for line in printed.split("\n"):
        if line.startswith("Dumping "):
            current = files.setdefault(Path(line.removeprefix("Dumping ")), DumpedFile())
        elif line.startswith("baseOffset: "):
            current.batches.append(_batch(line))
        elif line.startswith("| offset: "):
            current.records.append(_record(line))
        elif line.startswith("offset: "):
            fields = _fields(line)
            current.offset_entries.append((int(fields["offset"]), int(fields["position"])))
        elif line.startswith("timestamp: "):
            fields = _fields(line)
            current.time_entries.append((int(fields["timestamp"]), int(fields["offset"])))
        elif line.startswith("version: "):
            current.aborts.append(_abort(_fields(line)))
        elif line.startswith("producerId: "):
            current.producers.append(_producer(_fields(line)))
        elif line.endswith(" passed sanity check."):
            current.passed_sanity_check = True


def _fields(line: str) -> dict[str, str]:
    return dict(_FIELD.findall(line))


def _optional(text: str) -> int | None:
    """Java's OptionalLong as it prints itself."""
    digits = re.search(r"\[(-?\d+)\]", text)
    return int(digits[1]) if digits else None


def _batch(line: str) -> DumpedBatch:
    fields = _fields(line)
    timestamp_type = next(name for name in ("CreateTime", "LogAppendTime", "NoTimestampType") if name in fields)
    return DumpedBatch(
        base_offset=int(fields["baseOffset"]),
        last_offset=int(fields["lastOffset"]),
        count=int(fields["count"]),
        base_sequence=int(fields["baseSequence"]),
        last_sequence=int(fields["lastSequence"]),
        producer_id=int(fields["producerId"]),
        producer_epoch=int(fields["producerEpoch"]),
        leader_epoch=int(fields["partitionLeaderEpoch"]),
        is_transactional=fields["isTransactional"] == "true",
        is_control=fields["isControl"] == "true",
        delete_horizon_ms=_optional(fields["deleteHorizonMs"]),
        position=int(fields["position"]),
        timestamp_type=timestamp_type,
        max_timestamp=int(fields[timestamp_type]),
        size_bytes=int(fields["size"]),
        magic=int(fields["magic"]),
        codec=fields["compresscodec"],
        crc=int(fields["crc"]),
        is_valid=fields["isvalid"] == "true",
    )


def _record(line: str) -> DumpedRecord:
    parts = _RECORD.match(line)
    assert parts is not None, line
    header_keys = parts["header_keys"] or ""
    return DumpedRecord(
        offset=int(parts["offset"]),
        timestamp_type=parts["timestamp_type"],
        timestamp=int(parts["timestamp"]),
        key_size=int(parts["key_size"]),
        value_size=int(parts["value_size"]),
        sequence=int(parts["sequence"] or -1),
        header_keys=tuple(header_keys.split(",")) if header_keys else (),
        rest=parts["rest"].lstrip(),
    )


def _abort(fields: dict[str, str]) -> DumpedAbort:
    return DumpedAbort(
        producer_id=int(fields["producerId"]),
        base_offset=int(fields["firstOffset"]),
        last_offset=int(fields["lastOffset"]),
        last_stable_offset=int(fields["lastStableOffset"]),
    )


def _producer(fields: dict[str, str]) -> DumpedProducer:
    def number(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    return DumpedProducer(
        producer_id=int(fields["producerId"]),
        producer_epoch=int(fields["producerEpoch"]),
        coordinator_epoch=int(fields["coordinatorEpoch"]),
        current_txn_base_offset=_optional(fields["currentTxnFirstOffset"]),
        last_timestamp=int(fields["lastTimestamp"]),
        base_sequence=number("firstSequence"),
        last_sequence=number("lastSequence"),
        last_offset=number("lastOffset"),
    )
