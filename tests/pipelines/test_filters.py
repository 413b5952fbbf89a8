"""Conditions become offset ranges: less is read, and the rows are those that the conditions leave."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from penstock.base.errors import ConfigError
from penstock.client.admin import ResourceKind, alter_configs
from penstock.client.cluster import Cluster
from penstock.client.config import client_config as penstock_config
from pyspark_penstock.batch import BatchReader
from pyspark_penstock.filters import EVERYTHING, Wanted, wanted_by
from pyspark_penstock.latest import latest_per_key
from pyspark_penstock.options import read_batch_options, read_stream_options
from pyspark_penstock.ranges import TopicRange
from tests.pipelines.topics import load, new_topic, rows, send, table_rows
from tests.support.kafka_directories import KafkaDirectory
from tests.support.kafka_reads import client_config

T0 = datetime(2024, 5, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)
MICRO = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], EVERYTHING),
        ([EqualTo(("partition",), 3)], Wanted(partitions=frozenset({3}))),
        ([In(("partition",), (1, 2, None)), In(("partition",), (2, 3))], Wanted(partitions=frozenset({2}))),
        ([EqualTo(("topic",), "t")], Wanted(topics=frozenset({"t"}))),
        ([GreaterThan(("offset",), 7), LessThan(("offset",), 10)], Wanted(offset_min=8, offset_max=9)),
        ([GreaterThanOrEqual(("Offset",), 7), GreaterThan(("offset",), 3)], Wanted(offset_min=7)),
        ([In(("offset",), (9, 4, 6))], Wanted(offset_min=4, offset_max=9)),
        ([GreaterThanOrEqual(("timestamp",), T0)], Wanted(time_ms_min=T0_MS)),
        ([GreaterThan(("timestamp",), T0)], Wanted(time_ms_min=T0_MS + 1)),
        ([GreaterThan(("timestamp",), T0 - MICRO)], Wanted(time_ms_min=T0_MS)),
        ([LessThan(("timestamp",), T0)], Wanted(time_ms_max=T0_MS - 1)),
        ([LessThan(("timestamp",), T0 + MICRO)], Wanted(time_ms_max=T0_MS)),
        ([LessThanOrEqual(("timestamp",), T0 + MICRO)], Wanted(time_ms_max=T0_MS)),
        ([Not(EqualTo(("offset",), 1)), IsNotNull(("key",)), EqualTo(("key",), b"k"), EqualTo(("a", "b"), 1)], EVERYTHING),
    ],
)  # fmt: skip
def test_conditions_become_limits(filters: Sequence[Filter], wanted: Wanted) -> None:
    assert wanted_by(filters) == wanted


@pytest.fixture(scope="module")
def topic(penstock_server: str) -> str:
    """Record n of 300 has the time n seconds, but each tenth is an hour late."""
    name = new_topic(penstock_server, partitions=2)
    for partition in range(2):
        stamps = [T0_MS + 1000 * n - (3_600_000 if n % 10 == 9 else 0) for n in range(300)]
        send(penstock_server, name, [b"%d" % n for n in range(300)], partition=partition, timestamps=stamps)
    return name


def planned(server: str, topic: str, filters: Sequence[Filter], **options: str) -> tuple[BatchReader, list[TopicRange]]:
    given = {"kafka.bootstrap.servers": server, "subscribe": topic, "pushDown": "true", **options}
    reader = BatchReader(read_batch_options(given))
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates them all again"
    return reader, [one for one in reader.partitions() if isinstance(one, TopicRange) and one.size > 0]


def span(ranges: Sequence[TopicRange]) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start_offset, one.end_offset) for one in ranges]


def test_offsets_and_partitions_that_are_ruled_out_are_not_read(penstock_server: str, topic: str) -> None:
    filters: list[Filter] = [EqualTo(("partition",), 1), GreaterThan(("offset",), 9), LessThanOrEqual(("offset",), 20)]
    assert span(planned(penstock_server, topic, filters)[1]) == [(1, 10, 21)]
    assert span(planned(penstock_server, topic, [EqualTo(("topic",), "another")])[1]) == []
    assert span(planned(penstock_server, topic, [GreaterThan(("offset",), 5000)])[1]) == []


@pytest.mark.parametrize("mode", ["wire", "segments"])
def test_a_lower_time_begins_at_the_first_record_that_is_young_enough(
    penstock_server: str, topic: str, mode: str
) -> None:
    since, until = T0 + timedelta(seconds=100), T0 + timedelta(seconds=110)
    filters: list[Filter] = [GreaterThanOrEqual(("timestamp",), since), LessThan(("timestamp",), until)]
    reader, ranges = planned(penstock_server, topic, filters, mode=mode)
    assert span(ranges) == [(0, 100, 300), (1, 100, 300)], "late records may follow: only the beginning is known"
    found = [offset for one in ranges for batch in reader.read(one) for offset in batch.column("offset").to_pylist()]
    assert found == [100, 101, 102, 103, 104, 105, 106, 107, 108] * 2, "the rest is dropped before Arrow"
    late = [GreaterThanOrEqual(("timestamp",), T0 - timedelta(hours=2)), LessThan(("timestamp",), T0)]
    reader, ranges = planned(penstock_server, topic, late, mode=mode)
    found = [offset for one in ranges for batch in reader.read(one) for offset in batch.column("offset").to_pylist()]
    assert found == list(range(9, 300, 10)) * 2
    assert span(planned(penstock_server, topic, [GreaterThan(("timestamp",), T0 + timedelta(days=1))])[1]) == []


@pytest.mark.parametrize("mode", ["wire", "segments"])
def test_an_upper_time_ends_a_scan_where_the_broker_sets_the_times(
    penstock_server: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"appended-{mode}"
    config = {"message.timestamp.type": "LogAppendTime"}
    admin = AdminClient(client_config(penstock_server))
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(60)
    send(penstock_server, topic, [b"first"])
    (first,) = read(penstock_server, topic, [], mode)
    until = datetime.fromtimestamp(first.timestamp / 1000, UTC)
    while read(penstock_server, topic, [], mode)[-1].timestamp == first.timestamp:
        send(penstock_server, topic, [b"later"])
    for _ in range(5):
        send(penstock_server, topic, [b"later still"])
    asked: list[tuple[Any, ...]] = []
    from pyspark_penstock import ways, wire

    target, name = (wire, "read_range") if mode == "wire" else (ways, "read_batches")
    original = getattr(target, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        for stretch in original(*args, **kwargs):
            asked.append(stretch)
            yield stretch

    monkeypatch.setattr(target, name, counted)
    monkeypatch.setattr("penstock.storage.live.read.READ_BYTES", 1)
    one_batch_at_a_time = {"kafka.max.partition.fetch.bytes": "1"}
    found = read(penstock_server, topic, [LessThanOrEqual(("timestamp",), until)], mode, **one_batch_at_a_time)
    assert {row.timestamp for row in found} == {first.timestamp}
    assert len(asked) == len(found) + 1, "the first batch that is too young ends the scan"
    with Cluster(penstock_config({"bootstrap.servers": penstock_server})) as cluster:
        alter_configs(cluster, ResourceKind.TOPIC, topic, {"message.timestamp.type": "CreateTime"})
    send(penstock_server, topic, [b"late"], timestamps=[first.timestamp - 1])
    again = read(penstock_server, topic, [LessThanOrEqual(("timestamp",), until)], mode, **one_batch_at_a_time)
    assert [row.value for row in again] == [*(row.value for row in found), b"late"], "producers set the times now"


def read(server: str, topic: str, filters: Sequence[Filter], mode: str, **options: str) -> list[Any]:
    reader, ranges = planned(server, topic, filters, mode=mode, **options)
    batches = [batch for one in ranges for batch in reader.read(one)]
    return table_rows(pa.Table.from_batches(batches)) if batches else []


@pytest.fixture(params=["true", "false"])
def setting(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Spark's own push-down, on and off."""
    name, value = "spark.sql.python.filterPushdown.enabled", str(request.param)
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, value)
    yield value
    spark.conf.set(name, before)


def test_spark_gives_the_same_rows_with_push_down_on_and_off(
    spark: SparkSession, penstock_server: str, topic: str, setting: str
) -> None:
    condition = (
        (F.col("timestamp") >= T0 + timedelta(seconds=200)) & (F.col("offset") < 215) & (F.col("partition") == 0)
    )
    tasks = {}
    for push_down in ("true", "false"):
        frame = load(spark, penstock_server, subscribe=topic, pushDown=push_down).where(condition)
        assert [row.offset for row in rows(frame)] == [n for n in range(200, 215) if n % 10 != 9]
        tasks[push_down] = frame.rdd.getNumPartitions()
    assert tasks == {"true": 1 if setting == "true" else 2, "false": 2}


def test_conditions_of_one_use_of_a_frame_take_nothing_from_another(
    spark: SparkSession, penstock_server: str, topic: str, setting: str
) -> None:
    """Spark has one plan for all that is made of a `load()`."""
    frame = load(spark, penstock_server, subscribe=topic)
    first, second = frame.where("partition = 0"), frame.where("partition = 1 and offset < 10")
    assert first.count() == 300
    assert frame.count() == 600
    assert first.union(second).count() == 310
    assert frame.join(second, ["partition", "offset"], "left_anti").count() == 590


# ---- the latest record of each key


def keyed(server: str, topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer({**client_config(server), "linger.ms": 5})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("mode", ["wire", "segments"])
def test_the_view_is_the_latest_record_of_each_key(penstock_server: str, mode: str) -> None:
    topic = new_topic(penstock_server)
    pairs = [
        (b"a", b"1"),
        (b"b", b"2"),
        (None, b"3"),
        (b"a", b"4"),
        (b"c", b"5"),
        (b"b", None),
        (b"d", b"6"),
        (b"d", b"7"),
    ]
    keyed(penstock_server, topic, pairs)
    found = read(penstock_server, topic, [], mode, view="latest", maxRecordsPerPartition="1")
    assert [(row.offset, row.key, row.value) for row in found] == [(3, b"a", b"4"), (4, b"c", b"5"), (7, b"d", b"7")]
    ended = read(penstock_server, topic, [], mode, view="latest", endingOffsets=f'{{"{topic}":{{"0":7}}}}')
    assert [row.offset for row in ended] == [3, 4], "the limit comes after the view: 6 is out of date"
    limited = read(penstock_server, topic, [LessThan(("offset",), 7)], mode, view="latest")
    assert [row.offset for row in limited] == [3, 4, 7], "Spark drops what its condition rules out"


@pytest.mark.parametrize("topic", ["compacted", "compacted-transactions"])
def test_the_view_is_the_same_where_the_cleaner_has_been(kafka_directory: KafkaDirectory, topic: str) -> None:
    newest = {
        (name, record.key): record
        for name, read in kafka_directory.reads.items()
        if name.rpartition("-")[0] == topic
        for record in read.records["read_committed"]
        if record.key is not None
    }
    options = {"path": str(kafka_directory.log_dir), "subscribe": topic, "view": "latest"}
    reader = BatchReader(read_batch_options(options))
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    found = [(row.key, row.offset) for row in table_rows(pa.Table.from_batches(batches))]
    assert sorted(found) == sorted((key, one.offset) for (_, key), one in newest.items() if one.value is not None)


def test_rows_out_of_date_are_dropped_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_penstock.latest.ROWS_BETWEEN", 10)
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])
    offsets = itertools.count()
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "key": [b"%d" % (n % 4) for n in range(7)],
                "value": [b"v"] * 7,
                "offset": [next(offsets) for _ in range(7)],
            },
            schema,
        )
        for _ in range(9)
    ]
    (found,) = latest_per_key(batches, 10**6)
    assert found.column("offset").to_pylist() == [59, 60, 61, 62]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"view": "oldest"}, "view='oldest' must be one of latest"),
        ({"view": "latest", "kafka.isolation.level": "read_uncommitted"}, r"view=latest needs kafka\.isolation\.level"),
    ],
)
def test_views_that_cannot_be_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_batch_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options})


@pytest.mark.parametrize("options", [{"view": "latest"}, {"pushDown": "true"}])
def test_a_stream_has_neither_view_nor_push_down(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"{min(options)} is for batch queries"):
        read_stream_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options})
