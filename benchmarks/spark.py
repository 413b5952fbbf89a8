"""The format `penstock` beside Spark's own Kafka connector, on one Penstock and in one session (local[2]): ratios to the connector.

    make bench-spark                        everything, about fifteen minutes
    make bench-spark ARGS="scan slice"      some of it
    make bench-spark ARGS=--small           with a tenth of the records, to try it out: its ratios mean little
    make bench-spark ARGS=--write           everything, and the table into docs/benchmarks.md

Queries take turns, each is warm before it is measured, and the median of the rounds counts. Every query's count of rows is checked.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.pipelines.topics import is_decided, new_topic
from tests.support.kafka_reads import client_config
from tests.support.processes import free_port, wait_until
from tools.fetch_judges import spark_connector_jars
from tools.java import ensure_java_home

from benchmarks.peers import Penstock, bootstrap, cpu, requests_of
from benchmarks.spark_latency import Latency
from benchmarks.table import Figure, chosen, header, table, write_section
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.config import client_config as penstock_config
from penstock.client.offsets import LATEST, list_offsets
from pyspark_penstock.batch import BatchReader
from pyspark_penstock.clusters import close_clusters
from pyspark_penstock.options import read_batch_options
from pyspark_penstock.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    MakeFrame = Callable[[], DataFrame]

RECORDS, SMALL_RECORDS = 10_000_000, 1_000_000
PARTITIONS = 4
RECORD_BYTES = 100
ROUNDS = 3
WARM_SECONDS = 20.0
"""A stream whose code is cold falls behind, and has to catch up before it is measured."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SPAN = timedelta(seconds=10_000)
"""The records' own times lie this far apart, from the first to the last, whatever their number."""
DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
OFFICIAL, OURS = "kafka", "penstock"
PLANNING = {"ApiVersions", "Metadata", "ListOffsets", "DescribeLogDirs", "DescribeCluster"}


class Bench:
    """One broker with one large topic, one session, and what was found."""

    def __init__(self, spark: SparkSession, broker: Penstock, folder: Path, *, metrics_port: int, records: int) -> None:
        self.spark = spark
        self.broker = broker
        self.server = bootstrap(broker)
        self.folder = folder
        self.metrics_port = metrics_port
        self.records = records
        self.is_small = records < RECORDS
        self.topic = new_topic(self.server, PARTITIONS)
        self.figures: list[Figure] = []
        fill(self.server, self.topic, records)

    def frame(self, source: str, **options: str | int) -> DataFrame:
        reader = self.spark.read.format(source).option("kafka.bootstrap.servers", self.server)
        return reader.option("subscribe", self.topic).options(**options).load()

    def add(self, work: str, ours: str, theirs: str, ratio: float, wanted: str) -> None:
        self.figures.append(Figure(work, ours, theirs, ratio, wanted))
        print(f"    {work}: {ours}; {theirs}: {ratio:.2f}", file=sys.stderr, flush=True)

    def add_rates(self, work: str, seconds: float, official_seconds: float, wanted: str) -> None:
        ours, theirs = (f"{self.records / each / 1e6:.2f} M rows/s" for each in (seconds, official_seconds))
        self.add(work, ours, theirs, official_seconds / seconds, wanted)

    def add_times(self, work: str, seconds: float, official_seconds: float, wanted: str) -> None:
        ours, theirs = (f"{each:.2f} s" for each in (seconds, official_seconds))
        self.add(work, ours, theirs, official_seconds / seconds, wanted)


def fill(server: str, topic: str, records: int) -> None:
    """Spread evenly over the partitions, in the order of their times."""
    print(f"... filling a topic with {records:,} records", file=sys.stderr, flush=True)
    producer = Producer(
        {
            **client_config(server),
            "linger.ms": 20,
            "batch.size": 16_384,  # the Java client's
            "queue.buffering.max.messages": 500_000,
            "acks": "1",
        }
    )
    noise = os.urandom(RECORD_BYTES + 4096)
    begin_ms, span_ms = int(BEGIN.timestamp() * 1000), int(SPAN / timedelta(milliseconds=1))
    for number in range(records):
        at = number % 4096
        while True:
            try:
                producer.produce(
                    topic,
                    noise[at : at + RECORD_BYTES],
                    partition=number % PARTITIONS,
                    timestamp=begin_ms + number * span_ms // records,
                )
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    assert held(server, topic) == records


def held(server: str, topic: str) -> int:
    """Offsets in use: records, and the markers of transactions."""
    with Cluster(penstock_config({"bootstrap.servers": server})) as cluster:
        wanted = {TopicPartition(topic, number): LATEST for number in range(PARTITIONS)}
        return sum(found.offset for found in list_offsets(cluster, wanted).values())


def run(make: MakeFrame) -> None:
    """Makes every column of every row, and keeps none. A frame that ran before would keep its plan, where the source is in Python."""
    make().write.format("noop").mode("overwrite").save()


def in_turns(
    works: Mapping[str, Callable[[], None]], *, afterwards: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Seconds of each: the median of its rounds, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(1 + ROUNDS):
        for name, work in works.items():
            begun = perf_counter()
            work()
            if turn > 0:
                seconds[name].append(perf_counter() - begun)
            afterwards()
    return {name: statistics.median(found) for name, found in seconds.items()}


def scan(bench: Bench) -> None:
    frames: dict[str, MakeFrame] = {
        "official": partial(bench.frame, OFFICIAL),
        "wire": partial(bench.frame, OURS, mode="wire"),
        "segments": partial(bench.frame, OURS, mode="segments"),
    }
    check_counts(frames, bench.records)
    seconds = in_turns({name: partial(run, make) for name, make in frames.items()})
    bench.add_rates("full scan, wire", seconds["wire"], seconds["official"], ">= 1.2 x")
    bench.add_rates("full scan, segments", seconds["segments"], seconds["official"], ">= 2 x")


def check_counts(frames: Mapping[str, MakeFrame], wanted: int) -> None:
    for name, make in frames.items():
        found = make().count()
        if found != wanted:
            raise RuntimeError(f"{name} gives {found:,} rows where there are {wanted:,}")


def time_slice(bench: Bench) -> None:
    """A hundredth of the records, from the middle."""
    from pyspark.sql import functions as F

    begin, end = BEGIN + SPAN * 0.5, BEGIN + SPAN * 0.51
    condition = (F.col("timestamp") >= F.lit(begin)) & (F.col("timestamp") < F.lit(end))
    times = {
        "startingTimestamp": int(begin.timestamp() * 1000),
        "endingTimestamp": int(end.timestamp() * 1000),
    }
    frames: dict[str, MakeFrame] = {
        "official": lambda: bench.frame(OFFICIAL).where(condition),
        "wire": lambda: bench.frame(OURS, mode="wire", pushDown="true").where(condition),
        "segments": lambda: bench.frame(OURS, mode="segments", pushDown="true").where(condition),
        "official, options": partial(bench.frame, OFFICIAL, **times),
        "wire, options": partial(bench.frame, OURS, mode="wire", **times),
        "segments, options": partial(bench.frame, OURS, mode="segments", **times),
    }
    check_counts(frames, bench.records // 100)
    seconds = in_turns({name: partial(run, make) for name, make in frames.items()})
    for mode, wanted in (("segments", ">= 20 x"), ("wire", ">= 10 x")):
        bench.add_times(f"a 1 % time slice by `where`, {mode}", seconds[mode], seconds["official"], wanted)
    for mode in ("segments", "wire"):
        bench.add_times(
            f"the same slice, both by their options, {mode}",
            seconds[f"{mode}, options"],
            seconds["official, options"],
            ">= 0.8 x",
        )


def decode(bench: Bench) -> None:
    """A task's whole way from files to Spark's columns, in this process: one thread, no Spark."""
    options = {"kafka.bootstrap.servers": bench.server, "subscribe": bench.topic, "mode": "segments"}
    reader = BatchReader(read_batch_options(options))

    def work() -> None:
        found = sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one))
        assert found == bench.records

    seconds = in_turns({"decode": work})["decode"]
    close_clusters()
    rate = bench.records / seconds / 1e6
    bench.add("decode to Arrow without Spark, one core", f"{rate:.2f} M rows/s", "-", rate, ">= 5 M")


def sink(bench: Bench) -> None:
    spark, rows = bench.spark, bench.records
    value = "CAST(lpad(CAST(id AS STRING), 100, 'x') AS BINARY) AS value"
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS key", value)

    topics: list[str] = []
    admin = AdminClient(client_config(bench.server))

    def write(form: str, **options: str) -> Callable[[], None]:
        def work() -> None:
            topics.append(topic := new_topic(bench.server, PARTITIONS))
            writer = frame.write.format(form).mode("append").options(**options)
            writer.option("kafka.bootstrap.servers", bench.server).option("topic", topic).save()
            if held(bench.server, topic) < rows:
                raise RuntimeError(f"{form} wrote fewer than {rows:,} records")
            wait_until(lambda: is_decided(bench.server, topic), seconds=60, what="the transactions' markers")

        return work

    def delete() -> None:
        """Twelve topics of a gigabyte each would make the disk what is measured."""
        for future in admin.delete_topics([topics.pop()]).values():
            future.result(60)

    works = {"official": write(OFFICIAL), "once": write(OURS), "exactly": write(OURS, delivery="exactly_once")}
    seconds = in_turns(works, afterwards=delete)
    bench.add_rates("sink, at least once", seconds["once"], seconds["official"], ">= 1.0 x")
    bench.add_rates("sink, exactly once", seconds["exactly"], seconds["official"], ">= 0.7 x")


def stream(bench: Bench) -> None:
    """Topic to topic, both by the same format. Tuned: async progress, a plain checkpoint file, one partition."""
    measure_seconds = 6.0 if bench.is_small else 20.0
    found = {}
    for form in (OFFICIAL, OURS):
        with closing(Latency(bench.spark, bench.server, bench.folder / f"checkpoint-{form}", form)) as latency:
            found[form] = latency.measure(warm_seconds=WARM_SECONDS, seconds=measure_seconds)
    ours, theirs = (f"{found[form].p50_ms:.0f} ms (p99 {found[form].p99_ms:.0f})" for form in (OURS, OFFICIAL))
    bench.add("stream end to end p50 at 10 k records/s, tuned", ours, theirs, found[OURS].p50_ms, "<= 250 ms")


def planning(bench: Bench) -> None:
    """What the broker does for a scan: requests that are no planning, and CPU beside."""
    told = {}
    frames = {"official": partial(bench.frame, OFFICIAL), "ours": partial(bench.frame, OURS, mode="segments")}
    for name, make in frames.items():
        run(make)
        cpu_before, before = cpu(bench.broker), requests_of(bench.metrics_port)
        run(make)
        cpu_ms = cpu(bench.broker).since(cpu_before) * 1000
        made = requests_of(bench.metrics_port) - before
        others = {api: count for api, count in made.items() if api not in PLANNING}
        if sum(made.values()) == 0:
            raise RuntimeError(f"{name} asked the broker nothing: that was no scan")
        told[name] = (sum(others.values()), f"{sum(others.values())} ({made.total()} in all, {cpu_ms:.0f} ms of CPU)")
    work = "requests that are no planning, and broker CPU, of a segments scan"
    bench.add(work, told["ours"][1], told["official"][1], told["ours"][0], "<= 0 requests")


BENCHES: dict[str, Callable[[Bench], None]] = {
    "scan": scan,
    "slice": time_slice,
    "decode": decode,
    "planning": planning,
    "stream": stream,  # before gigabytes are written that the disk then works on
    "sink": sink,
}


def run_all(names: Sequence[str], folder: Path, jars: Iterable[Path], records: int) -> list[Figure]:
    metrics_port = free_port()
    os.environ["JAVA_HOME"] = str(ensure_java_home())
    settings = {
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    listener = f"127.0.0.1:{metrics_port}"
    with Penstock(folder / "penstock", metrics_listener=listener, log_segment_delete_delay_ms=1000) as broker:
        spark = make_session("bench-spark", settings=settings, jvm_output=folder / "jvm.log")
        try:
            bench = Bench(spark, broker, folder, metrics_port=metrics_port, records=records)
            for name in names:
                print(f"... {name}", file=sys.stderr, flush=True)
                BENCHES[name](bench)
            return bench.figures
        finally:
            spark.stop()


def main(arguments: list[str]) -> int:
    small, write = "--small" in arguments, "--write" in arguments
    named = [name for name in arguments if name not in ("--small", "--write")]
    if write and (small or named):
        print("--write is for everything: leave --small and the names of benches out", file=sys.stderr)
        return 2
    names = chosen(BENCHES, named)
    jars = spark_connector_jars()
    if not jars:
        print("Spark's own connector is missing: `make judges` fetches it", file=sys.stderr)
        return 1
    records = SMALL_RECORDS if small else RECORDS
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        figures = run_all(names, Path(folder), jars, records)
    shown = table(figures, "Spark's connector")
    print(f"# {header()}, {records:,} records of {RECORD_BYTES} B\n\n{shown}")
    if write:
        run_with = f"pyspark {version('pyspark')} (local[2]), {records:,} records of {RECORD_BYTES} B in {PARTITIONS} partitions"
        write_section(DOCUMENT, "Topics in Spark", f"`make bench-spark`, {header()}, {run_with}.\n\n{shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
