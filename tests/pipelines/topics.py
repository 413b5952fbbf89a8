"""Topics for the tests: made, filled by librdkafka, read back by Spark as plain values."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.config import client_config as penstock_config
from penstock.client.offsets import LATEST, list_offsets
from pyspark_penstock.batch import BatchReader
from pyspark_penstock.options import read_batch_options
from tests.support.kafka_reads import client_config
from tests.support.processes import wait_until

SECONDS = 60


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def new_topic(server: str, partitions: int = 1, *, prefix: str = "t") -> str:
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(client_config(server))
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(SECONDS)
    return name


def add_partitions(server: str, topic: str, count: int) -> None:
    admin = AdminClient(client_config(server))
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result(SECONDS)


def send(
    server: str, topic: str, values: Iterable[bytes], *, partition: int = 0, timestamps: Sequence[int] = ()
) -> None:
    """Sends the values in order and returns when they are acknowledged."""
    producer = Producer({**client_config(server), "linger.ms": 5, "acks": "all"})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=partition, timestamp=timestamps[number] if timestamps else 0)
    assert producer.flush(SECONDS) == 0


def load(spark: SparkSession, server: str, source: str = "penstock", **options: str | int) -> DataFrame:
    """Options by their names; those of Kafka's with `__` for `.`."""
    reader = spark.read.format(source).option("kafka.bootstrap.servers", server)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def rows(frame: DataFrame) -> list[Row]:
    """Sorted by topic, partition and offset."""
    return table_rows(frame.toArrow())


def table_rows(arrow: pa.Table) -> list[Row]:
    times = arrow.column("timestamp").cast("int64").to_pylist()
    table = arrow.to_pydict()
    found = []
    for number in range(arrow.num_rows):
        headers: Any = table["headers"][number] if "headers" in table else None
        found.append(
            Row(
                table["topic"][number],
                table["partition"][number],
                table["offset"][number],
                times[number] // 1000,
                table["timestampType"][number],
                table["key"][number],
                table["value"][number],
                tuple((header["key"], header["value"]) for header in headers or ()),
            )
        )
    return sorted(found, key=lambda row: row[:3])


def values(frame: DataFrame) -> list[bytes]:
    return [row.value or b"" for row in rows(frame)]


def committed(server: str, topic: str, *, is_open: bool = False) -> list[Row]:
    """What a reader of committed rows sees. EndTxn is answered before its markers are written: they are waited for, unless `is_open`."""
    options = {"kafka.bootstrap.servers": server, "subscribe": topic, "includeHeaders": "true"}
    reader = BatchReader(read_batch_options({**options, "kafka.isolation.level": "read_committed"}))
    if not is_open:
        wait_until(lambda: is_decided(server, topic), seconds=60, what="the transactions' markers")
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    return table_rows(pa.Table.from_batches(batches)) if batches else []


def is_decided(server: str, topic: str) -> bool:
    with Cluster(penstock_config({"bootstrap.servers": server})) as cluster:
        wanted = {TopicPartition(topic, one): LATEST for one in cluster.topics([topic])[topic].partitions}
        return list_offsets(cluster, wanted) == list_offsets(cluster, wanted, read_committed=True)
