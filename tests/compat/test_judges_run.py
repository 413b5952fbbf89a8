"""The judges themselves: a verdict is worth something only if the judge was there, awake and understood."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support import dump_log, judges, kafka_log, kafka_reads
from tests.support.kafka_directories import CODECS, KafkaDirectory
from tests.support.kafka_jvm import VERSIONS, KafkaBroker
from tests.support.kafka_reads import client_config
from tests.support.kafka_recovery import kafka_reads_all, kafka_recovers, kafka_recovers_its_own
from tests.support.processes import wait_until

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"


def tear_last_batch(version: str, partition: Path) -> None:
    """Cuts into the last batch that is whole: a broker that was killed may have left a part of one after it."""
    dumped = dump_log.dump_directory(version, partition).files
    file, batches = max((path, file.batches) for path, file in dumped.items() if path.suffix == ".log" and file.batches)
    os.truncate(file, batches[-1].position + batches[-1].size_bytes - 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_takes_records_is_killed_and_gives_them_back(version: str, tmp_path: Path) -> None:
    judges.require(f"kafka-{version}", "kcat")
    with KafkaBroker(version, tmp_path / "a directory") as broker:
        broker.tool(TOPIC_COMMAND, "--create", "--topic", "t", "--partitions", "1")
        producer = Producer(client_config(broker.bootstrap_servers))
        for number in range(100):
            producer.produce("t", b"value %d" % number, b"key")
        assert producer.flush(30) == 0
        broker.kill9()
        broker.start()
        read = kafka_reads.read_all(broker.bootstrap_servers)["t-0"]
        kcat = ["kcat", "-C", "-b", broker.bootstrap_servers, "-t", "t", "-e", "-q", "-f", "%o %s\n"]
        heard = subprocess.run(kcat, capture_output=True, text=True, check=True, timeout=60).stdout
        first, second = broker.starts()
    assert [record.value for record in read.records["read_committed"]] == [b"value %d" % n for n in range(100)]
    assert heard.splitlines() == [f"{number} value {number}" for number in range(100)]
    assert first.was_clean
    assert not second.was_clean
    assert second.logs["t-0"].end_offset == 100
    assert second.loading_ms < second.total_ms
    dumped = dump_log.dump_directory(version, broker.log_dir / "t-0", "--deep-iteration")
    assert dumped.complaints == ""
    assert sum(len(file.records) for file in dumped.files.values()) == 100


def test_a_kafka_directory_holds_every_kind_of_log(kafka_directory: KafkaDirectory) -> None:
    def dumped(partition: str) -> list[dump_log.DumpedFile]:
        found = dump_log.dump_directory(kafka_directory.version, kafka_directory.log_dir / partition)
        assert found.complaints == ""
        return list(found.files.values())

    for codec in CODECS:
        batches = [batch for file in dumped(f"codec-{codec}-0") for batch in file.batches]
        assert {batch.codec for batch in batches} == {codec}
        assert all(batch.is_valid for batch in batches)
    for codec in CODECS[1:]:
        assert {batch.codec for file in dumped(f"recoded-{codec}-0") for batch in file.batches} == {codec}
    records = kafka_directory.reads["codec-none-0"].records["read_committed"]
    assert {None, b""} <= {record.key for record in records}
    assert {None, b""} <= {record.value for record in records}
    assert any(value is None for record in records for _, value in record.headers)
    assert {record.timestamp_type for record in kafka_directory.reads["append-time-0"].records["read_committed"]} == {2}
    assert kafka_directory.reads["trimmed-0"].start_offset == 33
    assert len(list((kafka_directory.log_dir / "small-segments-0").glob("*.log"))) == 40


def test_a_kafka_directory_holds_transactions_that_ended_and_one_that_did_not(kafka_directory: KafkaDirectory) -> None:
    read = kafka_directory.reads["transactions-0"]
    assert read.position["read_committed"] < read.position["read_uncommitted"] == read.end_offset
    committed = {record.offset for record in read.records["read_committed"]}
    below = {r.offset for r in read.records["read_uncommitted"] if r.offset < read.position["read_committed"]}
    assert committed < below
    dumped = dump_log.dump_directory(
        kafka_directory.version, kafka_directory.log_dir / "transactions-0", "--deep-iteration"
    )
    assert sum(len(file.aborts) for file in dumped.files.values()) == 7
    assert any(
        producer.current_txn_base_offset == read.position["read_committed"]
        for file in dumped.files.values()
        for producer in file.producers
    )


def test_kafkas_cleaner_has_been_through_the_compacted_topics(kafka_directory: KafkaDirectory) -> None:
    for topic in ("compacted", "compacted-transactions"):
        read = kafka_directory.reads[f"{topic}-0"]
        assert len(read.records["read_uncommitted"]) < read.end_offset // 2
    cleanings = kafka_log.cleanings(kafka_directory.data_dir / "kafka.log")
    assert sum(each.partition == "compacted-0" for each in cleanings) >= 2


def test_a_killed_broker_keeps_what_it_acknowledged(killed_kafka_directory: KafkaDirectory) -> None:
    assert len(killed_kafka_directory.acknowledged) == 5
    for name, acknowledged in killed_kafka_directory.acknowledged.items():
        assert killed_kafka_directory.reads[name].end_offset >= acknowledged
    assert not (killed_kafka_directory.log_dir / ".kafka_cleanshutdown").exists()


def test_either_kafka_recovers_a_crashed_directory_to_the_same_offsets(
    killed_kafka_directory: KafkaDirectory, tmp_path: Path
) -> None:
    version = killed_kafka_directory.version
    logs = killed_kafka_directory.copy_logs(tmp_path / "logs")
    tear_last_batch(version, logs / "load-0")
    ends = {
        judge: {name: log.end_offset for name, log in kafka_recovers(judge, logs, tmp_path / judge).logs.items()}
        for judge in VERSIONS
    }
    whole = kafka_recovers_its_own(version, killed_kafka_directory.data_dir, tmp_path / "own").logs
    assert ends["3.9"] == ends["4.3"]
    assert ends[version]["load-0"] < whole["load-0"].end_offset
    assert ends[version]["load-1"] == whole["load-1"].end_offset


def test_kafka_serves_a_directory_that_another_version_wrote(kafka_directory: KafkaDirectory, tmp_path: Path) -> None:
    other = next(version for version in VERSIONS if version != kafka_directory.version)
    judges.require(f"kafka-{other}")
    logs = tmp_path / "logs"
    logs.mkdir()
    wanted = ("codec-zstd-0", "codec-zstd-1", "compacted-transactions-0", "transactions-0", "trimmed-0")
    for name in wanted:
        shutil.copytree(kafka_directory.log_dir / name, logs / name)
    for checkpoint in kafka_directory.log_dir.glob("*-checkpoint"):
        shutil.copyfile(checkpoint, logs / checkpoint.name)
    reads = kafka_reads_all(other, logs, tmp_path / "reader")
    assert reads == {name: kafka_directory.reads[name] for name in wanted}


def test_a_dump_tells_of_an_index_that_does_not_match(kafka_directory: KafkaDirectory, tmp_path: Path) -> None:
    source = kafka_directory.log_dir / "codec-none-0"
    partition = tmp_path / "codec-none-0"
    shutil.copytree(source, partition)
    index = next(partition.glob("*.index"))
    entries = index.read_bytes()
    assert entries, "the topic must be large enough for an index entry"
    index.write_bytes(bytes([entries[0], entries[1], entries[2], entries[3] ^ 1]) + entries[4:])
    assert "Mismatches" in dump_log.dump(kafka_directory.version, [index]).complaints
    index.write_bytes(entries + b"\0" * 3)
    assert dump_log.dump(kafka_directory.version, [index], "--index-sanity-check").complaints


def test_children_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import pathlib, os, signal\n"
        "from tests.support.processes import Child\n"
        f"child = Child(['sleep', '600'], output=pathlib.Path({str(tmp_path / 'out')!r}))\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == -signal.SIGKILL
    wait_until(lambda: not _is_running(int(ran.stdout)), seconds=20, what="the reaper has killed the child")


def _is_running(pid: int) -> bool:
    """Nobody waits for an orphan in a container without an init, so a zombie counts as ended."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() not in ("", "Z", "Zs")
