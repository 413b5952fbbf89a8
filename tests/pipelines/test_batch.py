"""Batch queries give the rows that librdkafka's consumer reads, from Apache Kafka and from Penstock."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tests.pipelines.topics import Row, load, new_topic, rows, send, values
from tests.support.kafka_directories import KafkaDirectory
from tests.support.kafka_reads import ISOLATION_LEVELS


def expected_rows(directory: KafkaDirectory, isolation_level: str) -> list[Row]:
    found = [
        Row(
            name.rpartition("-")[0],
            int(name.rpartition("-")[2]),
            record.offset,
            record.timestamp,
            record.timestamp_type - 1,
            record.key,
            record.value,
            record.headers,
        )
        for name, read in directory.reads.items()
        for record in read.records[isolation_level]
    ]
    return sorted(found, key=lambda row: row[:3])


@pytest.mark.parametrize("mode", ["wire", "segments"])
@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize("who", ["kafka", "penstock"])
def test_every_kind_of_topic_is_read_as_librdkafka_reads_it(
    spark: SparkSession,
    kafka_directory: KafkaDirectory,
    served_directory: dict[str, str],
    who: str,
    isolation_level: str,
    mode: str,
) -> None:
    frame = load(
        spark,
        served_directory[who],
        subscribePattern=".*",
        includeHeaders="true",
        kafka__isolation__level=isolation_level,
        mode=mode,
    )
    expected = expected_rows(kafka_directory, isolation_level)
    assert len({row.topic for row in expected}) == 15
    assert rows(frame) == expected


@pytest.mark.parametrize("who", ["kafka", "penstock"])
def test_offsets_that_are_gone_are_an_error_or_passed_over(
    spark: SparkSession, kafka_directory: KafkaDirectory, served_directory: dict[str, str], who: str
) -> None:
    options = {"subscribe": "trimmed", "startingOffsets": '{"trimmed":{"0":5}}'}
    with pytest.raises(PySparkException, match=r"startingOffsets has 5 for trimmed-0, whose log holds \[33, 80\)"):
        load(spark, served_directory[who], **options).collect()
    frame = load(spark, served_directory[who], failOnDataLoss="false", **options)
    assert [row.offset for row in rows(frame)] == list(range(33, 80))


@pytest.fixture(scope="module")
def numbered(server: str) -> str:
    return numbered_topic(server)


@pytest.fixture(scope="module")
def numbered_here(penstock_server: str) -> str:
    return numbered_topic(penstock_server)


def numbered_topic(server: str) -> str:
    """Two partitions with 100 records each; record n has the time 1,000 + 10 n."""
    topic = new_topic(server, partitions=2)
    for partition in range(2):
        numbers = range(100)
        texts = [b"%d/%d" % (partition, n) for n in numbers]
        send(server, topic, texts, partition=partition, timestamps=[1000 + 10 * n for n in numbers])
    return topic


def ranges(found: list[Row]) -> dict[int, tuple[int, int]]:
    """The first and the last offset of each partition; nothing may be missing or twice in between."""
    spans = {}
    for partition in sorted({row.partition for row in found}):
        offsets = [row.offset for row in found if row.partition == partition]
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        spans[partition] = (offsets[0], offsets[-1])
    return spans


@pytest.mark.parametrize(
    ("options", "spans"),
    [
        ({}, {0: (0, 99), 1: (0, 99)}),
        (
            {"startingOffsets": '{"T":{"0":10,"1":-2}}', "endingOffsets": '{"T":{"0":20,"1":-1}}'},
            {0: (10, 19), 1: (0, 99)},
        ),
        ({"startingOffsets": '{"T":{"0":100,"1":98}}'}, {1: (98, 99)}),
        ({"startingTimestamp": "1500", "endingTimestamp": "1600"}, {0: (50, 59), 1: (50, 59)}),
        ({"startingTimestamp": "1501", "startingOffsets": '{"T":{"0":0,"1":0}}'}, {0: (51, 99), 1: (51, 99)}),
        (
            {
                "startingOffsetsByTimestamp": '{"T":{"0":1100,"1":1900}}',
                "endingOffsetsByTimestamp": '{"T":{"0":1205,"1":99999}}',
            },
            {0: (10, 20), 1: (90, 99)},
        ),
        ({"startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "latest"}, {}),
        ({"startingTimestamp": "1800", "endingTimestamp": "1700"}, {}),
    ],
)
def test_a_range_is_read_by_offsets_and_by_times(
    spark: SparkSession, server: str, numbered: str, options: dict[str, str], spans: dict[int, tuple[int, int]]
) -> None:
    named = {name: value.replace("T", numbered, 1) for name, value in options.items()}
    if "startingOffsetsByTimestampStrategy" in options:
        named["startingOffsetsByTimestampStrategy"] = "latest"
    assert ranges(rows(load(spark, server, subscribe=numbered, **named))) == spans


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": "5"}, 6),
        ({"maxRecordsPerPartition": "30"}, 8),
        ({"minPartitions": "1"}, 2),
    ],
)
def test_several_tasks_share_a_partition_without_gap_or_overlap(
    spark: SparkSession, penstock_server: str, numbered_here: str, options: dict[str, str], tasks: int
) -> None:
    frame = load(spark, penstock_server, subscribe=numbered_here, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert ranges(rows(frame)) == {0: (0, 99), 1: (0, 99)}


def test_one_partition_can_be_assigned(spark: SparkSession, penstock_server: str, numbered_here: str) -> None:
    frame = load(spark, penstock_server, assign=json.dumps({numbered_here: [1]}))
    assert ranges(rows(frame)) == {1: (0, 99)}


def test_several_topics_can_be_subscribed_to(spark: SparkSession, penstock_server: str) -> None:
    first, second = new_topic(penstock_server), new_topic(penstock_server)
    send(penstock_server, first, [b"a"])
    send(penstock_server, second, [b"b", b"c"])
    assert sorted(values(load(spark, penstock_server, subscribe=f"{first}, {second}"))) == [b"a", b"b", b"c"]
    assert values(load(spark, penstock_server, subscribePattern=f"{first}|no-such-topic")) == [b"a"]


def test_an_empty_topic_has_no_rows(spark: SparkSession, penstock_server: str) -> None:
    frame = load(spark, penstock_server, subscribe=new_topic(penstock_server, partitions=3))
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert rows(frame) == []


def test_columns_can_be_left_out(spark: SparkSession, penstock_server: str, numbered_here: str) -> None:
    frame = load(spark, penstock_server, subscribe=numbered_here, columns="offset, value")
    assert frame.columns == ["offset", "value"]
    assert frame.count() == 200


def test_a_frame_stays_what_it_was_at_its_first_use(spark: SparkSession, penstock_server: str) -> None:
    """Spark plans each `load()` of a source in Python once; who wants what came since loads again."""
    topic = new_topic(penstock_server)
    send(penstock_server, topic, [b"a", b"b"])
    frame = load(spark, penstock_server, subscribe=topic)
    assert frame.count() == 2
    send(penstock_server, topic, [b"c"])
    assert values(frame) == [b"a", b"b"]
    assert values(load(spark, penstock_server, subscribe=topic)) == [b"a", b"b", b"c"]


def test_a_topic_is_a_table_in_sql(spark: SparkSession, penstock_server: str, numbered_here: str) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW numbered USING penstock "
        f"OPTIONS (`kafka.bootstrap.servers` '{penstock_server}', subscribe '{numbered_here}')"
    )
    found = spark.sql("SELECT partition, count(*), max(offset) FROM numbered GROUP BY partition ORDER BY partition")
    assert [tuple(row) for row in found.collect()] == [(0, 100, 99), (1, 100, 99)]


def test_sql_writes_to_a_topic_through_a_view(spark: SparkSession, penstock_server: str) -> None:
    topic = new_topic(penstock_server)
    options = f"OPTIONS (`kafka.bootstrap.servers` '{penstock_server}', topic '{topic}', delivery 'exactly_once')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sent (key STRING, value STRING) USING penstock {options}")
    spark.sql("INSERT INTO sent VALUES ('k', 'a'), (NULL, 'b')")
    assert sorted(values(load(spark, penstock_server, subscribe=topic))) == [b"a", b"b"]


def test_a_table_in_the_catalog_is_refused_when_it_is_made(spark: SparkSession, penstock_server: str) -> None:
    """Spark would make it and then read it without its options."""
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW … USING penstock"):
        spark.sql(
            f"CREATE TABLE t USING penstock OPTIONS (`kafka.bootstrap.servers` '{penstock_server}', subscribe 't')"
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, r"the cluster at .* has no topic no-such-topic"),
        ({"subscribe": "T", "startingTimestamp": "99999"}, r"T-0 has no record of the time 99999 ms or later"),
        ({"subscribe": "T", "startingOffsets": '{"T":{"0":1}}'}, r"startingOffsets must name every partition .* T-1 is missing"),
        ({"subscribe": "T", "endingOffsets": '{"T":{"0":1,"1":101}}'}, r"endingOffsets has 101 for T-1, whose log holds \[0, 100\)"),
        ({"assign": '{"T":[7]}'}, r"assign names the partition T-7, which topic T does not have"),
    ],
)  # fmt: skip
def test_what_the_cluster_does_not_have_is_said_in_a_sentence(
    spark: SparkSession, penstock_server: str, numbered_here: str, options: dict[str, str], sentence: str
) -> None:
    named = {name: re.sub(r"\bT\b", numbered_here, value) for name, value in options.items()}
    with pytest.raises(PySparkException, match=re.sub(r"\bT\b", numbered_here, sentence)):
        load(spark, penstock_server, **named).collect()


def test_a_bad_option_is_said_when_the_frame_is_made(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="there is no option startingoffset: is startingOffsets meant"):
        load(spark, "127.0.0.1:1", subscribe="t", startingOffset="earliest")


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, penstock_server: str, numbered_here: str) -> None:
    reader = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", penstock_server)
        .option("subscribe", numbered_here)
    )
    with pytest.raises(PySparkException, match="has a schema of its own"):
        reader.schema("value STRING").load().collect()
