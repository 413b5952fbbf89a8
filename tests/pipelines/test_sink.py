"""Rows into topics: every column arrives, keys choose partitions as the Java client does, bad rows name their place."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from penstock.base.errors import ConfigError
from penstock.base.ids import TopicPartition
from penstock.client import producer as transactions
from penstock.client.admin import ResourceKind, alter_configs
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.errors import AnswerError
from penstock.client.offsets import LATEST, list_offsets
from penstock.client.partitioner import partition_of
from penstock.records.batch import scan
from penstock.testing import Broker
from pyspark_penstock.sink import BatchWriter, RolledBackError, Written
from pyspark_penstock.sink_columns import BadRowError
from pyspark_penstock.sink_options import read_sink_options
from tests.pipelines.topics import committed, is_decided, load, new_topic, send, values
from tests.support.served_broker import ServedBroker

SCHEMA = "key binary, value binary, topic string, partition int, headers array<struct<key:string,value:binary>>"


def write(frame: DataFrame, server: str, sink: str = "penstock", **options: str) -> None:
    writer = frame.write.format(sink).mode("append").option("kafka.bootstrap.servers", server)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def schema_of(text: str) -> StructType:
    """By hand: Spark reads DDL in its JVM."""
    types = {"binary": BinaryType(), "string": StringType(), "int": IntegerType()}
    pairs = [column.split() for column in text.split(",")]
    return StructType([StructField(name, types[kind]) for name, kind in pairs])


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_every_column_arrives(spark: SparkSession, server: str, delivery: str) -> None:
    topic, other = new_topic(server, partitions=3), new_topic(server)
    sent: list[tuple[Any, ...]] = [
        (b"k%d" % n, b"v%d" % n, topic, None, [("h", b"%d" % n), ("n", None)] if n % 2 else None) for n in range(40)
    ]
    sent += [(None, None, topic, 2, []), (b"", b"", other, None, None)]
    write(spark.createDataFrame(sent, SCHEMA).coalesce(2), server, delivery=delivery, kafka__compression__type="zstd")
    found = committed(server, topic)
    assert sorted((row.key or b"", row.value, row.partition, row.headers) for row in found) == sorted(
        (key or b"", value, 2 if key is None else partition_of(key, 3), tuple(headers or ()))
        for key, value, _, _, headers in sent[:-1]
    )
    assert [(row.key, row.value) for row in committed(server, other)] == [(b"", b"")]


def test_text_is_written_as_it_is_and_the_option_topic_wins(spark: SparkSession, penstock_server: str) -> None:
    topic = new_topic(penstock_server)
    write(spark.createDataFrame([("ä", "elsewhere")], "value string, topic string"), penstock_server, topic=topic)
    assert values(load(spark, penstock_server, subscribe=topic)) == ["ä".encode()]


# ---- without Spark: a task is a function of its rows


def batch(**columns: Any) -> pa.RecordBatch:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32()}
    types["headers"] = pa.list_(header)
    return pa.RecordBatch.from_pydict(columns, pa.schema([(name, types[name]) for name in columns]))


def writer(server: str, schema: str = "value binary", **options: str) -> BatchWriter:
    given = {"kafka.bootstrap.servers": server, **{name.replace("__", "."): value for name, value in options.items()}}
    return BatchWriter(read_sink_options(given, schema_of(schema)), overwrite=False)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ({"value": [b"a"] * 3 + [b"x" * 5000]}, {"kafka__max__request__size": "2000"},
         r"task 0: row 13 takes 50\d\d bytes, more than kafka.max.request.size=2000"),
        ({"value": [b"a"] * 4, "partition": [0, None, 1, 0]}, {}, r"task 0: row 12 names partition 1 of topic .*, which has 1"),
        ({"value": [b"a"] * 3 + [b"x" * 1_200_000]}, {"kafka__max__request__size": "9000000"},
         r"task 0: the broker refuses row 13, of 12\d\d\d\d\d bytes: .*MESSAGE_TOO_LARGE"),
    ],
)  # fmt: skip
def test_a_bad_row_fails_the_task_with_its_place_and_writes_nothing_under_exactly_once(
    penstock_server: str, columns: dict[str, Any], options: dict[str, str], sentence: str
) -> None:
    topic = new_topic(penstock_server)
    schema = ", ".join(f"{name} {'int' if name == 'partition' else 'binary'}" for name in columns)
    good = {name: [None if name == "partition" else b"good"] * 10 for name in columns}
    task = writer(penstock_server, schema, topic=topic, delivery="exactly_once", **options)
    with pytest.raises(BadRowError, match=sentence):
        task.write(iter([batch(**good), batch(**columns)]))
    assert committed(penstock_server, topic) == []


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (None, "task 0: row 3 names no topic"),
        ("nowhere", "task 0: row 3 names the topic 'nowhere': the cluster at .* has no topic nowhere"),
        ("no topic's name", "task 0: row 3 names the topic .*: INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_row_whose_topic_cannot_be_written_has_its_place(
    penstock_server: str, named: str | None, sentence: str, delivery: str
) -> None:
    topic = new_topic(penstock_server)
    task = writer(penstock_server, "value binary, topic string", delivery=delivery)
    rows = [batch(value=[b"a"] * 2, topic=[topic] * 2), batch(value=[b"b"] * 2, topic=[topic, named])]
    with pytest.raises(BadRowError, match=sentence):
        task.write(iter(rows))
    if delivery == "exactly_once":
        assert committed(penstock_server, topic) == []


def test_a_row_whose_header_has_no_name_has_its_place(penstock_server: str) -> None:
    topic = new_topic(penstock_server, partitions=2)
    task = writer(penstock_server, "key binary, value binary", topic=topic)
    named, nameless = [("h", b"1"), ("i", None)], [("h", b"1"), (None, b"2")]
    rows = batch(key=[b"a", b"b", b"c", b"d"], value=[b"1"] * 4, headers=[named, None, nameless, []])
    with pytest.raises(BadRowError, match="task 0: row 6 has a header without a name"):
        task.write(iter([batch(key=[b"a"] * 4, value=[b"1"] * 4), rows]))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_row_without_a_key_that_a_compacted_topic_refuses_has_its_place(server: str, delivery: str) -> None:
    topic = new_topic(server)
    with Cluster(client_config({"bootstrap.servers": server})) as cluster:
        alter_configs(cluster, ResourceKind.TOPIC, topic, {"cleanup.policy": "compact"})
    task = writer(server, "key binary, value binary", topic=topic, delivery=delivery)
    with pytest.raises(BadRowError, match=r"task 0: the broker refuses row 2, of .* INVALID_RECORD"):
        task.write(iter([batch(key=[b"a", b"b", None, b"d"], value=[b"1"] * 4)]))
    if delivery == "exactly_once":
        assert committed(server, topic) == []


def test_large_columns_become_batches_that_a_broker_takes(penstock_server: str) -> None:
    topic = new_topic(penstock_server)
    sizes = [10, 30_000, 5, 0, 60_000, 59_000, 1, 61_000] * 20
    task = writer(penstock_server, topic=topic, kafka__max__request__size="65536")
    assert task.write(iter([batch(value=[b"x" * size for size in sizes])])) == Written(len(sizes))
    assert [len(row.value or b"") for row in committed(penstock_server, topic)] == sizes


def test_batches_that_are_too_large_for_the_topic_are_halved_until_they_fit(server: str) -> None:
    topic = new_topic(server)
    with Cluster(client_config({"bootstrap.servers": server})) as cluster:
        alter_configs(cluster, ResourceKind.TOPIC, topic, {"max.message.bytes": "2000"})
    values = [b"%05d" % number + b"x" * 100 for number in range(300)]
    for delivery in ("at_least_once", "exactly_once"):
        task = writer(server, topic=topic, delivery=delivery)
        task.commit([task.write(iter([batch(value=values[:150]), batch(value=values[150:])]))])
    assert [row.value for row in committed(server, topic)] == values * 2


@pytest.mark.parametrize("options", [{"kafka__acks": "1"}, {"kafka__enable__idempotence": "false"}, {}])
def test_batches_carry_a_producer_unless_that_is_switched_off(options: dict[str, str]) -> None:
    with Broker() as broker:
        topic = new_topic(broker.bootstrap_servers)
        writer(broker.bootstrap_servers, topic=topic, **options).write(iter([batch(value=[b"1"])]))
        (segment,) = (broker.data / f"{topic}-0").glob("*.log")
        (found,) = scan(segment.read_bytes()).batches
    assert (found.producer_id >= 0) == (not options)


def test_an_answer_that_is_lost_makes_no_row_twice_and_none_change_places() -> None:
    with Broker() as broker:
        topic = new_topic(broker.bootstrap_servers)
        task = writer(broker.bootstrap_servers, topic=topic, kafka__max__request__size="1000")
        values = [b"%05d" % number for number in range(5_000)]
        broker.faults.lose_answer("Produce", times=3)
        broker.faults.lose_request("Produce")
        assert task.write(iter([batch(value=values)])) == Written(len(values))
        assert [row.value for row in committed(broker.bootstrap_servers, topic)] == values


def test_nothing_is_seen_before_the_driver_commits_and_nothing_after_it_aborts(server: str) -> None:
    topic = new_topic(server)
    task = writer(server, topic=topic, delivery="exactly_once")
    message = task.write(iter([batch(value=[b"1", b"2"])]))
    assert message.rows == 2
    assert committed(server, topic, is_open=True) == []
    task.abort([message, None])
    again = task.write(iter([batch(value=[b"3"])]))
    task.commit([again])
    assert is_decided(server, topic), "whoever reads now sees what was written"
    assert [row.value for row in committed(server, topic)] == [b"3"]


def test_whoever_reads_after_a_commit_has_its_rows(kafka_server: str) -> None:
    """Kafka answers EndTxn before the markers stand in the logs. Many partitions and turns: without the waiting, one is caught."""
    partitions = 100
    topic = new_topic(kafka_server, partitions)
    with Cluster(client_config({"bootstrap.servers": kafka_server})) as cluster:
        ends = {TopicPartition(topic, number): LATEST for number in range(partitions)}
        for _turn in range(5):
            task = writer(kafka_server, "value binary, partition int", topic=topic, delivery="exactly_once")
            rows = batch(value=[b"row"] * partitions, partition=list(range(partitions)))
            task.commit([task.write(iter([rows]))])
            stable = list_offsets(cluster, ends, read_committed=True)
            assert stable == list_offsets(cluster, ends)


def test_a_second_attempt_shuts_the_first_one_out(server: str) -> None:
    topic = new_topic(server)
    task = writer(server, topic=topic, delivery="exactly_once")
    zombie = task.write(iter([batch(value=[b"zombie"])]))
    message = task.write(iter([batch(value=[b"row"])]))
    with pytest.raises(AnswerError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        task.commit([zombie])
    task.commit([message])
    assert [row.value for row in committed(server, topic)] == [b"row"]


def test_a_write_with_a_name_is_done_once(server: str) -> None:
    topic, name = new_topic(server), uuid.uuid4().hex

    def run(version: int, value: bytes) -> Written:
        task = writer(server, topic=topic, delivery="exactly_once", txnAppId=name, txnVersion=str(version))
        message = task.write(iter([batch(value=[value])]))
        task.commit([message])
        return message

    assert run(3, b"first").rows == 1
    assert run(3, b"again") == Written(0)
    assert run(4, b"next").rows == 1
    with pytest.raises(RolledBackError, match="has written number 4 already and is asked for number 3"):
        run(3, b"late")
    assert [row.value for row in committed(server, topic)] == [b"first", b"next"]


@pytest.mark.parametrize("server", [pytest.param("kafka", marks=pytest.mark.long), "penstock"], indirect=True)
def test_a_write_with_a_name_is_done_once_however_its_rows_are_divided(spark: SparkSession, server: str) -> None:
    topic, name = new_topic(server), uuid.uuid4().hex
    frame = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    for tasks in (2, 5, 1):
        write(frame.repartition(tasks), server, topic=topic, delivery="exactly_once", txnAppId=name, txnVersion="1")
    assert sorted(int(row.value or b"") for row in committed(server, topic)) == list(range(20))


def test_a_broker_that_is_killed_at_any_point_leaves_every_row_once(tmp_path: Path) -> None:
    with ServedBroker(tmp_path) as broker:
        broker.port = int(broker.bootstrap_servers.rpartition(":")[2])
        topic = new_topic(broker.bootstrap_servers)

        def dies() -> None:
            broker.kill9()
            broker.start()

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(4):
                yield batch(value=[b"%d" % number] * 3)
                dies()

        task = writer(broker.bootstrap_servers, topic=topic, delivery="exactly_once", txnAppId="a", txnVersion="7")
        message = task.write(batches())
        dies()
        task.commit([message])
        dies()
        assert task.write(batches()) == Written(0), "it is known to be done"
        found = [row.value for row in committed(broker.bootstrap_servers, topic)]
        assert found == [b"%d" % number for number in range(4) for _ in range(3)]


def test_an_abort_after_a_failed_commit_leaves_alone_what_was_sent(
    penstock_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(penstock_server)
    task = writer(penstock_server, topic=topic, delivery="exactly_once")
    first = task.write(iter([batch(value=[b"first"])]))
    task.commit([first])
    with monkeypatch.context() as patch:
        aborted: list[Any] = []
        patch.setattr(transactions, "abort", lambda _cluster, producer: aborted.append(producer))
        task.abort([first])
        assert aborted == []
    assert [row.value for row in committed(penstock_server, topic)] == [b"first"]


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ("key binary", {}, "the column value is missing"),
        ("value binary", {}, "neither the option topic nor a column topic"),
        ("value int", {"topic": "t"}, "the column value is int; it must be string or binary"),
        ("value binary, other int", {"topic": "t"}, "there is no place for a column other"),
        ("value binary", {"topic": "t", "delivery": "twice"}, "delivery='twice' must be one of"),
        ("value binary", {"topic": "t", "txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ("value binary", {"topic": "t", "txnAppId": "a", "txnVersion": "1"}, "are for delivery=exactly_once"),
        ("value binary", {"topic": "t", "kafka.transactional.id": "a"}, "names its transactions itself"),
        ("value binary", {"topic": "t", "deliver": "x"}, "is delivery meant"),
        (
            "value binary",
            {"topic": "t", "delivery": "exactly_once", "asyncProgressTrackingEnabled": "true"},
            "asyncProgressTrackingEnabled does not go with",
        ),
    ],
)
def test_what_does_not_fit_is_refused(schema: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_sink_options({"kafka.bootstrap.servers": "h:1", **options}, schema_of(schema))


def test_the_sources_own_columns_are_passed_over() -> None:
    schema = "value binary, offset int, timestamp int, timestampType int, partition int"
    read_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}, schema_of(schema))


def test_overwriting_is_refused(spark: SparkSession, penstock_server: str) -> None:
    frame = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        frame.write.format("penstock").mode("overwrite").option("topic", "t").option(
            "kafka.bootstrap.servers", penstock_server
        ).save()


# ---- streams


def test_a_whole_result_is_written_where_the_output_mode_is_complete(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    source, target = new_topic(penstock_server), new_topic(penstock_server)
    send(penstock_server, source, [b"a", b"b", b"a"])
    servers = {"kafka.bootstrap.servers": penstock_server}
    reader = spark.readStream.format("penstock").options(**servers)
    read = reader.options(subscribe=source, startingOffsets="earliest").load()
    counts = read.groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    writer = counts.writeStream.format("penstock").outputMode("complete").options(**servers)
    writer = writer.options(topic=target, delivery="exactly_once", checkpointLocation=str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    found = [(row.key, row.value) for row in committed(penstock_server, target)]
    assert sorted(found) == [(b"a", b"2"), (b"b", b"1")]


@pytest.mark.parametrize("dies", ["task", "driver"])
def test_a_stream_writes_every_row_once_over_failures(
    spark: SparkSession, server: str, tmp_path: Path, dies: str
) -> None:
    """A task that fails in its second half; then a driver that dies after its first commit of two."""
    source, target = new_topic(server, partitions=2), new_topic(server)
    for partition in range(2):
        send(server, source, [b"%d/%d" % (partition, n) for n in range(50)], partition=partition)
    trouble = tmp_path / "trouble"
    trouble.touch()

    def run(fails: bool) -> None:
        frame = spark.readStream.format("penstock").option("kafka.bootstrap.servers", server)
        frame = frame.option("subscribe", source).option("startingOffsets", "earliest")
        read = frame.option("maxOffsetsPerTrigger", "40").load()
        if dies == "task" and fails:
            read = read.where("assert_true(partition = 0 OR offset < 30, 'told to fail') IS NULL")
        query = (
            read.select("value")
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", server)
            .option("topic", target)
            .option("delivery", "exactly_once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    if dies == "task":
        with pytest.raises(StreamingQueryException, match="told to fail"):
            run(fails=True)
    else:
        run(fails=False)
        # The last batch was committed, but the checkpoint does not know: it is done again.
        for kind in ("", "."):
            for path in (tmp_path / "checkpoint" / "commits").glob(f"{kind}2*"):
                path.unlink()
    run(fails=False)
    found = [row.value for row in committed(server, target)]
    assert sorted(value or b"" for value in found) == sorted(b"%d/%d" % (p, n) for p in range(2) for n in range(50))
