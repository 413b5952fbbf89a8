"""The log on disk, measured: each figure beside its yardstick in the same run, as a ratio.

    make bench-storage                      everything, about three minutes
    make bench-storage ARGS="append scan"   some of it

Apache Kafka 4.3 runs on a copy of the same directory with its stock JVM flags. Figures go to stdout as a table.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.table import Figure, chosen, header, run_each, table
from penstock.base.clock import SystemClock
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.records.batch import scan
from penstock.records.build import build_batch
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.upkeep import apply_compaction, compaction_job, compaction_range

FILES, CLOCK = SystemFiles(), SystemClock()
BATCH_BYTES = 16 * 1024


def main(arguments: list[str]) -> int:
    names = chosen(BENCHES, arguments)
    start_mb = peak_mb()
    figures = run_each(BENCHES, names)
    over_mb = peak_mb() - start_mb
    figures.append(Figure("resident memory over the start", f"{over_mb:.0f} MB", "-", over_mb, "<= 150 MB"))
    print(f"# {header()}\n\n{table(figures, 'yardstick')}")
    return 0


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def best(work: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest run."""
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return min(seconds)


def batch_of(value_bytes: int, *, first_key: int = 0, producer_id: int = -1, sequence: int = -1) -> bytes:
    """About 16 KB of records with incompressible values."""
    count = BATCH_BYTES // (value_bytes + 20)
    stamp = CLOCK.wall_ms()
    blob = os.urandom(value_bytes)
    return build_batch(
        [(stamp, b"%012d" % (first_key + slot), blob, ()) for slot in range(count)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def open_log(folder: Path, config: dict[str, str]) -> tuple[LogDirectories, PartitionLog]:
    folder.mkdir(exist_ok=True)
    settings = log_config(config)
    directories = LogDirectories([str(folder)], FILES, CLOCK, config_for=lambda _partition: settings)
    directories.open()
    partition = TopicPartition("bench", 0)
    return directories, directories.get(partition) or directories.create(partition, settings)


def abandon(directories: LogDirectories) -> None:
    for log in directories.logs.values():
        log.abandon()
    for state in directories.directories:
        state.lock.release()


def bench_append(folder: Path) -> list[Figure]:
    """1 MB of 16 KB batches a call, validated; against `cp` of the file that comes out."""
    directories, log = open_log(folder / "append", {})
    megabyte = memoryview(bytearray(batch_of(1000)) * 64)  # as a request's bytes: offsets are set in place
    calls = 128

    def work() -> None:
        for _ in range(calls):
            log.append_as_leader(megabyte, leader_epoch=0, origin=Origin.COORDINATOR)

    work()
    ours = calls * len(megabyte) / best(work)
    source = log.log.segments[0].path(".log")
    size = os.path.getsize(source)

    def copy() -> None:
        subprocess.run(["cp", source, str(folder / "copy")], check=True)
        os.unlink(folder / "copy")

    theirs = size / best(copy)
    abandon(directories)
    return [_rate("append, 1 MB a call, validated", ours, "cp", theirs, 0.6)]


def _rate(work: str, ours: float, name: str, theirs: float, wanted: float) -> Figure:
    ratio = ours / theirs
    return Figure(work, f"{ours / 1e6:.0f} MB/s", f"{name}: {theirs / 1e6:.0f} MB/s", ratio, f">= {wanted} x")


def bench_scan(folder: Path) -> list[Figure]:
    """100-byte records to Arrow columns on one core; against `cp` of the same bytes."""
    from penstock.records.arrow import to_arrow

    directories, log = open_log(folder / "scan", {})
    batch = batch_of(100)
    while log.log.active.size_bytes < 200_000_000:
        log.append_as_leader(bytearray(batch), leader_epoch=0)
    size, source = log.log.active.size_bytes, log.log.active.path(".log")
    rows = log.end_offset

    def work() -> None:
        found = 0
        for position in range(0, size, 64 * len(batch)):
            data = log.log.active.file.pread(64 * len(batch), position)
            for columns in to_arrow(data, scan(data).batches):
                found += columns.num_rows
        assert found == rows

    seconds = best(work)

    def copy() -> None:
        subprocess.run(["cp", source, str(folder / "copy")], check=True)
        os.unlink(folder / "copy")

    theirs = size / best(copy)
    abandon(directories)
    per_second = rows / seconds
    return [
        _rate("scan to Arrow, 100-byte records", size / seconds, "cp", theirs, 0.5),
        Figure("the same, records", f"{per_second / 1e6:.1f} M/s", "-", per_second / 1e6, ">= 10 M/s"),
    ]


def bench_lookup(folder: Path) -> list[Figure]:
    """An offset in the index of a segment of 50 MB (about 3,000 entries), open handle; against a dict of the same entries."""
    directories, log = open_log(folder / "lookup", {"index.interval.bytes": "1024"})
    batch = batch_of(100)
    while log.log.active.size_bytes < 50_000_000:
        log.append_as_leader(bytearray(batch), leader_epoch=0)
    index = log.log.active.offset_index
    entries = [index.entry(slot) for slot in range(index.entries)]
    known = {entry.offset: entry for entry in entries}
    offsets = [entry.offset for entry in entries[:: max(1, len(entries) // 1000)]]

    def ours() -> None:
        look_up = index.look_up
        for offset in offsets:
            look_up(offset)

    def theirs() -> None:
        look_up = known.get
        for offset in offsets:
            look_up(offset)

    here, there = best(ours, 20) / len(offsets), best(theirs, 20) / len(offsets)
    abandon(directories)
    ratio = here / there
    return [Figure("index look-up", f"{here * 1e9:.0f} ns", f"dict: {there * 1e9:.0f} ns", ratio, "<= 30 x")]


def bench_recovery(folder: Path) -> list[Figure]:
    """CRCs, indexes and producers of 2 GB in 4 partitions after an unclean stop; against Kafka 4.3 on a copy. Best of three."""
    from tests.support.kafka_jvm import STOCK_JVM
    from tests.support.kafka_recovery import kafka_recovers

    logs = folder / "logs"
    logs.mkdir()
    settings = log_config({"segment.bytes": str(256 * 1024 * 1024)})
    directories = LogDirectories([str(logs)], FILES, CLOCK, config_for=lambda _partition: settings)
    directories.open()
    for number in range(4):
        log = directories.create(TopicPartition("bench", number), settings)
        sequence = 0
        while log.end_offset < 480_000:
            batch = batch_of(1000, producer_id=7, sequence=sequence)
            log.append_as_leader(bytearray(batch), leader_epoch=0)
            sequence = log.end_offset
    size = sum(log.log.size_bytes for log in directories.logs.values())
    ends = {str(partition): log.end_offset for partition, log in directories.logs.items()}
    abandon(directories)
    (logs / ".lock").unlink()

    def recover() -> None:
        again = LogDirectories([str(logs)], FILES, CLOCK, config_for=lambda _partition: settings, jobs=ThreadJobs(2))
        again.open()
        assert {str(partition): log.end_offset for partition, log in again.logs.items()} == ends
        abandon(again)

    ours, theirs = [], []
    for _ in range(3):  # in turns: what else the machine does meets both
        start = kafka_recovers(
            "4.3", logs, folder / "kafka", jvm_flags=STOCK_JVM, heap_mb=1024, num_recovery_threads_per_data_dir=2
        )
        shutil.rmtree(folder / "kafka")
        assert {name: found.end_offset for name, found in start.logs.items()} == ends
        theirs.append(start.loading_ms / 1000)
        ours.append(best(recover, 1))
        (logs / ".lock").unlink()
    return [_rate("recovery after an unclean stop", size / min(ours), "Kafka 4.3", size / min(theirs), 2.0)]


def bench_compaction(folder: Path) -> list[Figure]:
    """1 KB records, half the keys dead; against Kafka 4.3's cleaner on the same records."""
    from tests.support.kafka_jvm import STOCK_JVM
    from tests.support.kafka_recovery import adopt
    from tests.support.processes import wait_until

    config = {"cleanup.policy": "compact", "segment.bytes": str(64 * 1024 * 1024)}
    directories, log = open_log(folder / "logs", config)
    keys = 250_000
    for first_key in range(0, 2 * keys, 16):
        log.append_as_leader(bytearray(batch_of(1000, first_key=first_key % keys)), leader_epoch=0)
    log.set_high_watermark(log.end_offset)
    log.roll()
    log.append_as_leader(bytearray(batch_of(1000, first_key=0)), leader_epoch=0)
    log.set_high_watermark(log.end_offset)
    log.flush()
    directories.close()
    (folder / "logs" / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    broker = adopt(
        "4.3", folder / "logs", folder / "kafka", jvm_flags=STOCK_JVM, heap_mb=1024, log_cleanup_policy="compact",
        log_cleaner_min_cleanable_ratio=0.01, log_cleaner_backoff_ms=100, log_segment_bytes=64 * 1024 * 1024,
    )  # fmt: skip
    with broker:
        wait_until(lambda: any(c.read_mb > 100 for c in broker.cleanings()), seconds=120, what="the cleaner has run")
        cleaning = max(broker.cleanings(), key=lambda found: found.read_mb)
    theirs = cleaning.read_mb * 1e6 / cleaning.seconds
    directories, log = open_log(folder / "logs", config)
    wanted = compaction_range(log, CLOCK, None)
    assert wanted is not None
    began = perf_counter()
    result = compaction_job(log, FILES, CLOCK, wanted, map_bytes=64 * 1024 * 1024, seed=os.urandom(16)).run()
    assert apply_compaction(log, FILES, result)
    seconds = perf_counter() - began
    abandon(directories)
    return [_rate("compaction, half the keys dead", result.bytes_read / seconds, "Kafka 4.3", theirs, 1.0)]


def bench_open(folder: Path) -> list[Figure]:
    """A clean start on 1,000 partitions with 10 segments each; against Kafka 4.3 on the same directory."""
    from tests.support.kafka_jvm import STOCK_JVM
    from tests.support.kafka_recovery import kafka_recovers

    logs = folder / "logs"
    logs.mkdir()
    settings = log_config({"segment.bytes": "2000", "segment.index.bytes": "1000"})
    directories = LogDirectories([str(logs)], FILES, CLOCK, config_for=lambda _partition: settings)
    directories.open()
    batch = build_batch([(CLOCK.wall_ms(), b"k", b"v" * 1500, ())])
    for number in range(1000):
        log = directories.create(TopicPartition("bench", number), settings)
        for _ in range(10):
            log.append_as_leader(bytearray(batch), leader_epoch=0)
        log.set_high_watermark(log.end_offset)
    directories.close()
    start = kafka_recovers("4.3", logs, folder / "kafka", jvm_flags=STOCK_JVM, heap_mb=1024)
    began = perf_counter()
    again = LogDirectories([str(logs)], FILES, CLOCK, config_for=lambda _partition: settings, jobs=ThreadJobs(2))
    again.open()
    seconds = perf_counter() - began
    again.close()
    ratio = seconds / (start.loading_ms / 1000)
    return [
        Figure(
            "clean open, 1,000 x 10 segments", f"{seconds:.2f} s", f"Kafka 4.3: {start.loading_ms / 1000:.2f} s", ratio,
            "<= 0.5 x",
        )
    ]  # fmt: skip


BENCHES: dict[str, Callable[[Path], list[Figure]]] = {
    "append": bench_append,
    "scan": bench_scan,
    "lookup": bench_lookup,
    "recovery": bench_recovery,
    "compaction": bench_compaction,
    "open": bench_open,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
