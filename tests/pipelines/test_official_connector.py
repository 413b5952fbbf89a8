"""Spark's own Kafka connector beside ours: the same queries give the same rows, on Apache Kafka and on Penstock.

Its source, stream and sink also meet Penstock as a broker here, and its checkpoints are continued by ours.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.test_batch import numbered_topic
from tests.pipelines.test_sink import SCHEMA, write
from tests.pipelines.test_streams import Stream, numbers, texts
from tests.pipelines.topics import Row, committed, load, new_topic, rows, send
from tests.support import judges
from tests.support.kafka_reads import ISOLATION_LEVELS

OFFICIAL = "kafka"
WAYS = ("wire", "segments")
BOTH = [pytest.param("kafka", marks=pytest.mark.long), "penstock"]
"""Servers. Apache Kafka comes with the long tests where every kind of topic has been read from it already."""


@pytest.fixture(autouse=True)
def connector() -> None:
    judges.require("spark-connector")


def assert_all_ways_agree(spark: SparkSession, server: str, **options: str) -> list[Row]:
    """Gives the rows, which are the official connector's."""
    theirs = rows(load(spark, server, OFFICIAL, **options))
    for mode in WAYS:
        assert rows(load(spark, server, mode=mode, **options)) == theirs, mode
    return theirs


@pytest.mark.parametrize("kafka_directory", ["4.3", pytest.param("3.9", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize(
    ("who", "isolation_level"),
    [
        pytest.param(who, level, marks=pytest.mark.long if (who, level) == ("kafka", "read_uncommitted") else ())
        for who in ("kafka", "penstock")
        for level in ISOLATION_LEVELS
    ],
)
def test_every_kind_of_topic_gives_the_same_rows(
    spark: SparkSession, served_directory: dict[str, str], who: str, isolation_level: str
) -> None:
    """Every codec, transactions (aborted, and one left open), compacted topics, headers and both kinds of time."""
    found = assert_all_ways_agree(
        spark,
        served_directory[who],
        subscribePattern=".*",
        includeHeaders="true",
        kafka__isolation__level=isolation_level,
    )
    values = {row.value for row in found if row.topic == "transactions"}
    assert (b"after the open one 0" in values) == (isolation_level == "read_uncommitted")
    assert {row.timestamp_type for row in found} == {0, 1}
    assert any(row.headers for row in found)
    assert len({row.topic for row in found}) == 15


QUERIES: dict[str, dict[str, str]] = {
    "everything": {"subscribe": "T"},
    "several topics": {"subscribe": "T,OTHER", "includeHeaders": "true"},
    "a pattern": {"subscribePattern": "T|no-such-topic"},
    "one partition": {"assign": '{"T":[1]}'},
    "offsets": {
        "subscribe": "T",
        "startingOffsets": '{"T":{"0":10,"1":-2}}',
        "endingOffsets": '{"T":{"0":20,"1":-1}}',
    },
    "times": {"subscribe": "T", "startingTimestamp": "1500", "endingTimestamp": "1600"},
    "times between records, and an offset that loses against them": {
        "subscribe": "T",
        "startingTimestamp": "1501",
        "startingOffsets": '{"T":{"0":0,"1":0}}',
    },
    "times by partition": {
        "subscribe": "T",
        "startingOffsetsByTimestamp": '{"T":{"0":1100,"1":1900}}',
        "endingOffsetsByTimestamp": '{"T":{"0":1205,"1":99999}}',
    },
    "a time after the end": {
        "subscribe": "T",
        "startingTimestamp": "99999",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "more tasks than partitions": {"subscribe": "T", "minPartitions": "5"},
    "small tasks": {"subscribe": "T", "maxRecordsPerPartition": "30"},
}
LESS_TELLING = {"everything", "several topics", "one partition", "a time after the end", "more tasks than partitions"}


@pytest.fixture(scope="module")
def queried(server: str) -> tuple[str, str, str]:
    """A server and two of its topics."""
    other = new_topic(server)
    send(server, other, [b"a", b"b"])
    return server, numbered_topic(server), other


@pytest.mark.parametrize("server", BOTH, indirect=True)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LESS_TELLING else ()) for name in QUERIES],
)
def test_the_same_options_give_the_same_rows(spark: SparkSession, queried: tuple[str, str, str], name: str) -> None:
    server, topic, other = queried
    options = {key: re.sub(r"\bT\b", topic, re.sub(r"\bOTHER\b", other, value)) for key, value in QUERIES[name].items()}
    found = assert_all_ways_agree(spark, server, **options)
    assert bool(found) == (name != "a time after the end")


@pytest.mark.parametrize("server", BOTH, indirect=True)
@pytest.mark.parametrize(
    "condition", ["partition = 1 and offset between 7 and 9", "timestamp < timestamp_millis(1300)"]
)
def test_the_same_conditions_give_the_same_rows(
    spark: SparkSession, queried: tuple[str, str, str], condition: str
) -> None:
    server, topic, _other = queried
    theirs = rows(load(spark, server, OFFICIAL, subscribe=topic).where(condition))
    assert theirs
    for mode in WAYS:
        ours = load(spark, server, subscribe=topic, mode=mode, pushDown="true").where(condition)
        assert rows(ours) == theirs


def test_a_checkpoint_made_by_the_official_connector_is_continued_by_ours(
    spark: SparkSession, server: str, tmp_path: Path
) -> None:
    """Its stream reads a Penstock in limited batches on the way."""
    topic = new_topic(server, partitions=2)
    for partition in range(2):
        send(server, topic, texts(partition * 100, partition * 100 + 30), partition=partition)
    reading = Stream(
        spark, server, topic, tmp_path / "checkpoint", startingOffsets="earliest", maxOffsetsPerTrigger="40"
    )
    reading.source = OFFICIAL
    reading.run()
    assert [len(batch) for batch in reading.batches] == [40, 20]
    assert sorted(reading.values) == sorted(numbers(0, 30) + numbers(100, 130))
    send(server, topic, texts(30, 35))
    reading.source = "penstock"
    reading.run()
    assert reading.batches[2:] == [numbers(30, 35)]
    send(server, topic, texts(130, 133), partition=1)
    reading.run()
    assert reading.batches[3:] == [numbers(130, 133)]


def test_a_checkpoint_of_ours_is_continued_by_the_official_connector(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    topic = new_topic(penstock_server)
    send(penstock_server, topic, texts(0, 10))
    reading = Stream(spark, penstock_server, topic, tmp_path / "checkpoint", startingOffsets="earliest")
    reading.run()
    send(penstock_server, topic, texts(10, 20))
    reading.run()
    send(penstock_server, topic, texts(20, 30))
    reading.source = OFFICIAL
    reading.run()
    assert reading.batches == [numbers(0, 10), numbers(10, 20), numbers(20, 30)]


def contents(server: str, topic: str) -> list[tuple[Any, ...]]:
    """What two sinks must have in common: the order within a partition is that of the tasks."""
    return sorted((row.partition, row.key or b"", row.value or b"", row.headers) for row in committed(server, topic))


def test_both_sinks_write_the_same_records(spark: SparkSession, server: str) -> None:
    """Keys choose the same partitions; a partition, headers and nulls arrive as they are."""
    theirs, ours = new_topic(server, partitions=3), new_topic(server, partitions=3)
    sent: list[tuple[Any, ...]] = [
        (
            b"k%d" % n,
            b"v%d" % n,
            None,
            n % 3 if n % 5 == 0 else None,
            [("h", b"%d" % n), ("n", None)] if n % 2 else None,
        )
        for n in range(40)
    ]
    sent.append((b"gone", None, None, 2, None))
    frame = spark.createDataFrame(sent, SCHEMA).coalesce(2)
    write(frame, server, OFFICIAL, topic=theirs)
    write(frame, server, topic=ours)
    assert len(contents(server, theirs)) == len(sent)
    assert contents(server, ours) == contents(server, theirs)
    # A topic is copied as it was loaded: the source's own columns are passed over.
    their_copy, our_copy = new_topic(server, partitions=3), new_topic(server, partitions=3)
    loaded = load(spark, server, subscribe=ours, includeHeaders="true")
    write(loaded, server, OFFICIAL, topic=their_copy)
    write(loaded, server, topic=our_copy)
    assert contents(server, our_copy) == contents(server, their_copy) == contents(server, ours)


def test_the_official_stream_writes_to_penstock(spark: SparkSession, penstock_server: str, tmp_path: Path) -> None:
    """From a topic to a topic, by its source and its sink, over a restart."""
    source, target = new_topic(penstock_server), new_topic(penstock_server)
    for first, end in ((0, 50), (50, 60)):
        send(penstock_server, source, texts(first, end))
        reader = spark.readStream.format(OFFICIAL).option("kafka.bootstrap.servers", penstock_server)
        frame = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
        writer = frame.select("value").writeStream.format(OFFICIAL).option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", penstock_server)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert [row.value for row in committed(penstock_server, target)] == texts(0, end)
