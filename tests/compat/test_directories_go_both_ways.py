"""Apache Kafka's directories are opened here, ours by Apache Kafka: the same records, the same ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support import judges
from tests.support.dump_log import dump
from tests.support.kafka_directories import KafkaDirectory
from tests.support.kafka_jvm import VERSIONS
from tests.support.kafka_reads import ISOLATION_LEVELS
from tests.support.kafka_recovery import kafka_reads_all, kafka_recovers, kafka_recovers_its_own
from tests.support.log_checks import check_indexes, check_names, check_producers
from tests.support.penstock_directories import (
    CONFIGS,
    FILES,
    abandon,
    consumer_view,
    open_directories,
    write_directory,
)

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def serious(complaints: str) -> list[str]:
    """What the dump tool holds against a log, less the gaps of a compacted one and 4.3's gap before each file."""
    found = []
    compacted = False
    for line in complaints.splitlines():
        if line.startswith("Non-consecutive offsets in"):
            compacted = "/compacted-0/" in line
        elif not (line.strip().startswith("-1 is followed by") or (compacted and "is followed by" in line)):
            found.append(line)
    return found


def is_internal(topic: str) -> bool:
    return topic.startswith("__")


def test_a_directory_that_kafka_closed_is_read_as_its_own_consumer_reads_it(
    kafka_directory: KafkaDirectory, tmp_path: Path
) -> None:
    directories = open_directories(kafka_directory.copy_logs(tmp_path / "logs"))
    logs = {str(partition): log for partition, log in directories.logs.items() if not is_internal(partition.topic)}
    assert set(logs) == set(kafka_directory.reads)
    for name, wanted in kafka_directory.reads.items():
        log = logs[name]
        assert (log.log_start_offset, log.high_watermark) == (wanted.start_offset, wanted.end_offset), name
        for level in ISOLATION_LEVELS:
            assert consumer_view(log, level) == wanted.records[level], (name, level)
        assert log.last_stable_offset == wanted.position["read_committed"], name
        check_producers(log)
    assert directories.close() == []


def test_kafka_opens_again_what_was_opened_and_closed_here(kafka_directory: KafkaDirectory, tmp_path: Path) -> None:
    data_dir = kafka_directory.copy(tmp_path / "data")
    log_dir = data_dir / kafka_directory.log_dir.relative_to(kafka_directory.data_dir)
    assert open_directories(log_dir).close() == []
    start = kafka_recovers_its_own(kafka_directory.version, data_dir, tmp_path / "again")
    assert start.was_clean
    for name, wanted in kafka_directory.reads.items():
        assert start.logs[name].end_offset == wanted.end_offset, name


def test_a_killed_directory_is_recovered_to_kafkas_own_end_offsets(
    killed_kafka_directory: KafkaDirectory, tmp_path: Path
) -> None:
    directories = open_directories(killed_kafka_directory.copy_logs(tmp_path / "logs"))
    start = kafka_recovers_its_own(
        killed_kafka_directory.version, killed_kafka_directory.copy(tmp_path / "data"), tmp_path / "kafka"
    )
    ours = {str(partition): log.end_offset for partition, log in directories.logs.items()}
    theirs = {name: log.end_offset for name, log in start.logs.items()}
    assert {name: end for name, end in ours.items() if name in theirs} == theirs
    for partition, log in directories.logs.items():
        check_indexes(log)
        check_producers(log)
        check_names(log, FILES)
        log.set_high_watermark(log.end_offset)
        if str(partition) in killed_kafka_directory.reads:
            wanted = killed_kafka_directory.reads[str(partition)]
            for level in ISOLATION_LEVELS:
                assert consumer_view(log, level) == wanted.records[level], (partition, level)
    assert directories.close() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_dump_tool_reads_every_kind_of_file_written_here(version: str, tmp_path: Path) -> None:
    judges.require(f"kafka-{version}")
    directories = write_directory(tmp_path / "logs")
    logs = dict(directories.logs)
    batches = {
        partition: [batch for segment in log.log.segments for batch in segment.headers(0)]
        for partition, log in logs.items()
    }
    assert directories.close() == []
    paths = [path for path in sorted((tmp_path / "logs").glob("*-0/*")) if path.suffix in DUMPED]
    plain = dump(version, paths, "--deep-iteration")
    checked = dump(version, paths, "--index-sanity-check")
    assert checked.complaints == ""
    assert serious(plain.complaints) == []
    for partition, wanted in batches.items():
        found = [
            batch
            for path, file in sorted(plain.files.items())
            if path.parent.name == str(partition)
            for batch in file.batches
        ]
        assert all(batch.is_valid for batch in found)
        assert [(batch.base_offset, batch.last_offset, batch.count) for batch in found] == [
            (batch.base_offset, batch.last_offset, batch.record_count) for batch in wanted
        ]
    indexes = [path for path in paths if path.suffix in (".index", ".timeindex") and path.stat().st_size]
    assert indexes
    for path in indexes:
        assert checked.files[path].passed_sanity_check, path


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_serves_what_was_written_here(version: str, tmp_path: Path) -> None:
    judges.require(f"kafka-{version}")
    directories = write_directory(tmp_path / "logs")
    wanted = {
        str(partition): {level: consumer_view(log, level) for level in ISOLATION_LEVELS}
        for partition, log in directories.logs.items()
    }
    assert directories.close() == []
    reads = kafka_reads_all(version, tmp_path / "logs", tmp_path / "kafka")
    assert {name: read.records for name, read in reads.items()} == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_recovers_a_directory_crashed_here_to_the_same_ends(version: str, tmp_path: Path) -> None:
    judges.require(f"kafka-{version}")
    directories = write_directory(tmp_path / "logs")
    for log in directories.logs.values():
        if log.log.active.size_bytes:
            with open(log.log.active.path(".log"), "ab") as file:  # a batch torn by the crash
                file.write(log.log.active.file.pread(40, 0))
    abandon(directories)
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    (tmp_path / "copy" / ".lock").unlink()
    start = kafka_recovers(version, tmp_path / "copy", tmp_path / "kafka")
    assert not start.was_clean
    recovered = open_directories(tmp_path / "logs", CONFIGS)
    ours = {str(partition): log.end_offset for partition, log in recovered.logs.items()}
    assert {name: log.end_offset for name, log in start.logs.items()} == ours
    assert recovered.close() == []


def test_what_recovery_cut_is_kept_and_named(tmp_path: Path) -> None:
    directories = write_directory(tmp_path / "logs")
    log = next(log for partition, log in directories.logs.items() if partition.topic == "codec-none")
    end_offset, active = log.end_offset, log.log.active
    with open(active.path(".log"), "ab") as file:
        file.write(b"torn")
    abandon(directories)
    again = open_directories(tmp_path / "logs", CONFIGS)
    assert again.logs[log.partition].end_offset == end_offset
    cuts = list((tmp_path / "logs" / "codec-none-0").glob("*.cut"))
    assert [cut.read_bytes() for cut in cuts] == [b"torn"]
    assert again.close() == []
