"""What is said here of Apache Kafka's files is what Apache Kafka's own tool says of them."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.dump_log import DumpedFile, dump
from tests.support.kafka_directories import KafkaDirectory

from penstock.base.files import SystemFiles
from penstock.cli.main import main
from penstock.storage.inspect.dump import DumpOptions, dump_file
from penstock.storage.inspect.items import (
    BatchItem,
    ControlRecordItem,
    OffsetIndexItem,
    ProblemItem,
    ProducerSnapshotItem,
    RecordItem,
    TimeIndexItem,
    TransactionIndexItem,
)
from penstock.storage.inspect.places import files_of, find_place

FILES = SystemFiles()
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
Row = tuple[object, ...]


@dataclass(slots=True)
class Rows:
    """What either side says of one file."""

    batches: list[Row] = field(default_factory=list)
    records: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    aborts: list[Row] = field(default_factory=list)
    producers: list[Row] = field(default_factory=list)


def ours(log_dir: Path) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(Rows)
    for place in files_of(FILES, find_place(FILES, str(log_dir))):
        for item in dump_file(FILES, place, DumpOptions(deep=True)):
            rows = found[place.path]
            match item:
                case ProblemItem():
                    raise AssertionError(item)
                case BatchItem():
                    rows.batches.append(
                        (
                            item.base_offset, item.last_offset, item.count, item.base_sequence, item.last_sequence,
                            item.producer_id, item.producer_epoch, item.partition_leader_epoch, item.is_transactional,
                            item.is_control, item.delete_horizon_ms, item.position,
                            {"create_time": "CreateTime", "log_append_time": "LogAppendTime"}[item.timestamp_type],
                            item.max_timestamp, item.size, item.magic, item.compress_codec, item.crc, item.is_valid,
                        )
                    )  # fmt: skip
                case RecordItem():
                    headers = tuple(header.key for header in item.headers)
                    rows.records.append((item.offset, item.timestamp, item.key_size, item.value_size, headers))
                case ControlRecordItem():
                    sizes = (len(item.key or b""), len(item.value or b""))
                    rows.records.append((item.offset, item.timestamp, *sizes, ()))
                case OffsetIndexItem():
                    rows.offsets.append((item.offset, item.position))
                case TimeIndexItem():
                    rows.times.append((item.timestamp, item.offset))
                case TransactionIndexItem():
                    rows.aborts.append((item.producer_id, item.first_offset, item.last_offset, item.last_stable_offset))
                case ProducerSnapshotItem():
                    first = item.transaction_first_offset
                    rows.producers.append(
                        (
                            item.producer_id, item.producer_epoch, item.coordinator_epoch,
                            None if first < 0 else first, item.last_timestamp,
                        )
                    )  # fmt: skip
    return found


def theirs(file: DumpedFile) -> Rows:
    return Rows(
        batches=[
            (
                batch.base_offset, batch.last_offset, batch.count, batch.base_sequence, batch.last_sequence,
                batch.producer_id, batch.producer_epoch, batch.leader_epoch, batch.is_transactional, batch.is_control,
                batch.delete_horizon_ms, batch.position, batch.timestamp_type, batch.max_timestamp, batch.size_bytes,
                batch.magic, batch.codec, batch.crc, batch.is_valid,
            )
            for batch in file.batches
        ],
        records=[
            (record.offset, record.timestamp, record.key_size, record.value_size, record.header_keys)
            for record in file.records
        ],
        offsets=list(file.offset_entries),
        times=list(file.time_entries),
        aborts=[(item.producer_id, item.base_offset, item.last_offset, item.last_stable_offset) for item in file.aborts],
        producers=[
            (
                item.producer_id, item.producer_epoch, item.coordinator_epoch, item.current_txn_base_offset,
                item.last_timestamp,
            )
            for item in file.producers
        ],
    )  # fmt: skip


def test_a_dump_says_what_kafkas_says(kafka_directory: KafkaDirectory) -> None:
    log_dir = kafka_directory.log_dir
    paths = sorted(path for path in log_dir.glob("*/*") if path.suffix in SUFFIXES)
    kafkas = dump(kafka_directory.version, paths, "--deep-iteration").files
    here = ours(log_dir)
    seen = Rows()
    for path in paths:
        expected, found = theirs(kafkas[path]), here[str(path)]
        if path.suffix == ".index":
            # Of an empty index Kafka's tool prints the entry that a look-up would give.
            expected.offsets = expected.offsets if path.stat().st_size else []
        if path.suffix == ".timeindex":
            expected.times = expected.times if path.stat().st_size else []
        for name in Rows.__slots__:
            theirs_of_name = getattr(expected, name)
            if name == "records" and any(header for row in theirs_of_name for header in row[4]):
                # Kafka joins header keys with commas and prints an empty one as nothing.
                assert [row[:4] for row in getattr(found, name)] == [row[:4] for row in theirs_of_name], path
            else:
                assert getattr(found, name) == theirs_of_name, (path, name)
            getattr(seen, name).extend(theirs_of_name)
    assert all(getattr(seen, name) for name in Rows.__slots__), "every kind of file should have been compared"


def test_what_kafka_wrote_is_without_fault(kafka_directory: KafkaDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(kafka_directory.log_dir)]) == 0, capsys.readouterr().out


def test_coordinators_records_are_read(kafka_directory: KafkaDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "--deep", "--json", str(kafka_directory.log_dir / "__consumer_offsets-0")]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    commits = [item for item in items if item["kind"] == "record"]
    assert [item.get("decode_error") for item in commits] == [None] * len(commits)
    assert [(item["key"]["group"], item["value"]["offset"]) for item in commits] == [("readers", 100)]
    assert main(["log", "dump", "--deep", "--json", str(kafka_directory.log_dir / "__transaction_state-0")]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    states = [item for item in items if item["kind"] == "record"]
    assert [item.get("decode_error") for item in states] == [None] * len(states)
    assert {"Ongoing", "PrepareAbort", "CompleteCommit"} <= {item["value"]["transaction_status"] for item in states}


def test_a_killed_kafka_is_recovered_to_where_kafka_recovers_it(
    killed_kafka_directory: KafkaDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = killed_kafka_directory.copy_logs(tmp_path / "logs")
    assert main(["log", "recover", "--json", str(log_dir)]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = {item["partition"]: item["end_offset"] for item in items}
    expected = {name: read.end_offset for name, read in killed_kafka_directory.reads.items()}
    assert {name: ends[name] for name in expected} == expected
    assert main(["log", "verify", str(log_dir)]) == 0, capsys.readouterr().out
