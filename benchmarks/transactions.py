"""Transactions, measured beside Apache Kafka 4.3 in the same run, as ratios.

    make bench-transactions                     everything, about three minutes
    make bench-transactions ARGS="rate ids"     some of it

Both brokers run as they stand (Kafka with its stock JVM flags and a 1 GB heap), one after the other, with the same clients: librdkafka for
transactions, raw requests for many ids, this project's client for reads. Figures go to stdout as a table.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support.kafka_jvm import STOCK_JVM, STOCK_PROPERTIES, KafkaBroker
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import Stamp, TransactionRequests, connection_to

from benchmarks.table import Figure, chosen, header, run_each, table
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.errors import ClientError
from penstock.client.offsets import LATEST, list_offsets
from penstock.client.read import read_range

SECONDS, WARM_SECONDS = 8.0, 3.0
IDS = 10_000
READ_RECORDS, READ_RECORD_BYTES = 200_000, 1_000


class Broker(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def kill9(self) -> None: ...


class Rate(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float


@contextmanager
def brokers(folder: Path) -> Iterator[list[tuple[str, Broker]]]:
    """Neither is started."""
    (folder / "ours").mkdir()
    kafka = KafkaBroker("4.3", folder / "kafka", heap_mb=1024, jvm_flags=STOCK_JVM, **STOCK_PROPERTIES)
    ours = ServedBroker(folder / "ours")
    try:
        yield [("kafka", kafka), ("ours", ours)]
    finally:
        for broker in (kafka, ours):
            broker.kill9()


def create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result(60)


def run_producers(servers: str, count: int, seconds: float) -> Rate:
    """Each producer: begin, ten records, commit, again; the latency is that of the commit call."""
    latencies: list[list[float]] = [[] for _ in range(count)]
    ready = threading.Barrier(count + 1)
    stop = threading.Event()

    def work(number: int) -> None:
        producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"bench-{count}-{number}", "linger.ms": 0}
        )
        producer.init_transactions(60)
        ready.wait()
        while not stop.is_set():
            producer.begin_transaction()
            for _ in range(10):
                producer.produce("bench", b"v" * 100, partition=number % 16)
            began = perf_counter()
            producer.commit_transaction(60)
            latencies[number].append(perf_counter() - began)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took = perf_counter() - began
    every = sorted(one for some in latencies for one in some)
    return Rate(len(every) / took, statistics.median(every) * 1e3, every[int(len(every) * 0.99)] * 1e3)


def bench_rate(folder: Path) -> list[Figure]:
    """Transactions of ten records a second, and how long a commit takes."""
    found: dict[tuple[str, int], Rate] = {}
    with brokers(folder) as both:
        for name, broker in both:
            broker.start()
            create(broker.bootstrap_servers, "bench", 16)
            for count in (1, 16):
                run_producers(broker.bootstrap_servers, count, WARM_SECONDS)
                found[name, count] = run_producers(broker.bootstrap_servers, count, SECONDS)
            broker.kill9()
    figures = []
    for count in (1, 16):
        ours, theirs = found["ours", count], found["kafka", count]
        who = "1 producer" if count == 1 else f"{count} producers"
        figures.append(_more(f"transactions/s, {who}", ours.per_second, theirs.per_second, "/s"))
        figures.append(_less(f"commit p50, {who}", ours.p50_ms, theirs.p50_ms, "ms", 1.0))
        figures.append(_less(f"commit p99, {who}", ours.p99_ms, theirs.p99_ms, "ms", 1.0))
    return figures


def bench_ids(folder: Path) -> list[Figure]:
    """10,000 transactional ids with a transaction open: memory for them, and a start after kill -9 until they are loaded."""
    memory: dict[str, float] = {}
    load: dict[str, float] = {}
    with brokers(folder) as both:
        for name, broker in both:
            broker.start()
            create(broker.bootstrap_servers, "bench", 16)
            connection = connection_to(broker.bootstrap_servers)
            requests = TransactionRequests(connection.call)
            wait_until(lambda r=requests: _is_ready(r), seconds=60, what="the coordinator is there")  # type: ignore[misc]
            for number in range(IDS):
                stamp: Stamp = requests.init(f"id-{number}", 900_000)
                assert stamp.error == "none", stamp
                assert requests.add_partitions(f"id-{number}", stamp, [("bench", number % 16)])
            connection.close()
            memory[name] = _resident_mb(broker.pid)
            broker.kill9()
            began = perf_counter()
            broker.start()
            wait_until(lambda b=broker: _loaded(b.bootstrap_servers), seconds=120, what="all are loaded")  # type: ignore[misc]
            load[name] = perf_counter() - began
            broker.kill9()
    return [
        _less(f"{IDS:,} ids open: resident memory", memory["ours"], memory["kafka"], "MB", 0.5),
        _less(f"{IDS:,} ids open: kill -9 to loaded", load["ours"], load["kafka"], "s", 1.0),
    ]


def _is_ready(requests: TransactionRequests) -> bool:
    return requests.find_coordinator("ready", 1) == "none" and requests.init("ready").error == "none"


def _loaded(servers: str) -> bool:
    try:
        connection = connection_to(servers)
    except ClientError:
        return False
    try:
        return len(TransactionRequests(connection.call).states()) >= IDS
    finally:
        connection.close()


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def bench_read(folder: Path) -> list[Figure]:
    """Reading committed records of a partition of which one transaction in ten was aborted."""
    rates: dict[str, float] = {}
    with brokers(folder) as both:
        for name, broker in both:
            broker.start()
            create(broker.bootstrap_servers, "read", 1)
            _fill(broker.bootstrap_servers)
            _read(broker.bootstrap_servers)
            rates[name] = max(_read(broker.bootstrap_servers) for _ in range(3))
            broker.kill9()
    return [_more("read_committed, 10 % aborted", rates["ours"], rates["kafka"], "MB/s")]


def _fill(servers: str) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": "fill", "linger.ms": 5, "batch.size": 262_144}
    )
    producer.init_transactions(60)
    value = os.urandom(READ_RECORD_BYTES)
    for number in range(READ_RECORDS // 1_000):
        producer.begin_transaction()
        for _ in range(1_000):
            producer.produce("read", value, partition=0)
        assert producer.flush(60) == 0
        if number % 10 == 9:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def _read(servers: str) -> float:
    place = TopicPartition("read", 0)
    with Cluster(client_config({"bootstrap.servers": servers, "isolation.level": "read_committed"})) as cluster:
        end_offset = list_offsets(cluster, {place: LATEST}, read_committed=True)[place].offset
        began = perf_counter()
        records = sum(
            batch.record_count for stretch in read_range(cluster, place, 0, end_offset) for batch in stretch.batches
        )
        took = perf_counter() - began
    assert records == READ_RECORDS * 9 // 10, records
    return records * READ_RECORD_BYTES / took / 1e6


def _more(work: str, ours: float, theirs: float, unit: str) -> Figure:
    return Figure(work, f"{ours:.0f} {unit}", f"{theirs:.0f} {unit}", ours / theirs, ">= 1.0 x")


def _less(work: str, ours: float, theirs: float, unit: str, most: float) -> Figure:
    return Figure(work, f"{ours:.1f} {unit}", f"{theirs:.1f} {unit}", ours / theirs, f"<= {most} x")


BENCHES: dict[str, Callable[[Path], list[Figure]]] = {"rate": bench_rate, "ids": bench_ids, "read": bench_read}


def main(arguments: list[str]) -> int:
    figures = run_each(BENCHES, chosen(BENCHES, arguments))
    print(f"# {header()}\n\n{table(figures, 'Kafka 4.3')}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
