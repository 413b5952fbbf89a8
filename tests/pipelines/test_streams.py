"""Streams read every record once: over restarts, crashes in the first batch, limits, and topics and partitions that come later."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.pipelines.topics import add_partitions, new_topic, send
from tests.support.processes import wait_until

Batches = list[list[str]]


class Stream:
    """A stream into a list of batches, which may be told to fail, and started again on its checkpoint."""

    def __init__(
        self, spark: SparkSession, server: str, topic: str, checkpoint: Path, *, by: str = "subscribe", **options: str
    ) -> None:
        self.checkpoint = checkpoint
        self.batches: Batches = []
        self.fails = False
        self.meanwhile: list[Callable[[], None]] = []
        """Done within the next batches that have rows, one in each: the stream looks at nothing before that is over."""
        self.source = "penstock"
        self._spark, self._server, self._options = spark, server, {by: topic, **options}

    @property
    def values(self) -> list[str]:
        return [value for batch in self.batches for value in batch]

    @property
    def committed(self) -> int:
        """Batches that no start gives again."""
        return sum(path.name.isdigit() for path in (self.checkpoint / "commits").glob("*"))

    def start(self, **trigger: str | bool) -> StreamingQuery:
        reader = self._spark.readStream.format(self.source).option("kafka.bootstrap.servers", self._server)
        frame = reader.options(**self._options).load()
        writer = frame.selectExpr("CAST(value AS STRING) AS value", "partition", "offset").writeStream
        writer = writer.foreachBatch(self._keep).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger).start()  # type: ignore[arg-type]

    def run(self) -> None:
        """Reads what is there now, and ends."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)

    def _keep(self, frame: DataFrame, _batch_id: int) -> None:
        found = [row.value for row in frame.orderBy("partition", "offset").collect()]
        if self.fails:
            raise RuntimeError("this batch was told to fail")
        if found and self.meanwhile:
            self.meanwhile.pop(0)()
        self.batches.append(found)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[..., Stream]:
    def make(server: str, topic: str, **options: str) -> Stream:
        return Stream(spark, server, topic, tmp_path / "checkpoint", **options)

    return make


def texts(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_available_now_reads_what_is_there_in_limited_batches_and_goes_on_after_a_restart(
    penstock_server: str, stream: Callable[..., Stream]
) -> None:
    server = penstock_server
    topic = new_topic(server)
    send(server, topic, texts(0, 100))
    reading = stream(server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    reading.run()
    assert reading.values == numbers(0, 100)
    assert [len(batch) for batch in reading.batches] == [40, 40, 20]
    send(server, topic, texts(100, 110))
    reading.run()
    assert reading.values == numbers(0, 110)
    reading.run()
    assert len(reading.batches) == 4


def test_a_crash_in_the_first_batch_of_a_stream_from_latest_loses_nothing(
    penstock_server: str, stream: Callable[..., Stream]
) -> None:
    server = penstock_server
    topic = new_topic(server)
    send(server, topic, [b"before the stream"])
    reading = stream(server, topic)
    reading.fails = True
    with pytest.raises(StreamingQueryException, match="told to fail"):
        reading.run()
    send(server, topic, texts(0, 10))
    reading.fails = False
    reading.run()
    assert reading.values == numbers(0, 10)


def test_an_empty_first_batch_fixes_where_the_stream_began(penstock_server: str, stream: Callable[..., Stream]) -> None:
    server = penstock_server
    topic = new_topic(server)
    send(server, topic, [b"before the stream"])
    reading = stream(server, topic)
    reading.run()
    send(server, topic, texts(0, 5))
    reading.run()
    assert reading.values == numbers(0, 5)


def test_a_checkpoint_of_sparks_own_connector_goes_on(penstock_server: str, stream: Callable[..., Stream]) -> None:
    server = penstock_server
    topic = new_topic(server)
    send(server, topic, texts(0, 20))
    reading = stream(server, topic, startingOffsets="earliest")
    reading.run()
    (position,) = [path for path in (reading.checkpoint / "offsets").iterdir() if path.name == "0"]
    version, metadata, _ours = position.read_text().splitlines()
    theirs = json.dumps({topic: {"0": 15}}, separators=(",", ":"))
    position.write_text("\n".join((version, metadata, theirs)))
    for checksum in (reading.checkpoint / "offsets").glob(".0.crc"):
        checksum.unlink()
    reading.run()
    assert reading.values == numbers(0, 20) + numbers(15, 20)


def test_a_running_stream_reads_what_arrives_and_reports_its_lag(
    penstock_server: str, stream: Callable[..., Stream]
) -> None:
    server = penstock_server
    topic = new_topic(server)
    reading = stream(server, topic, startingOffsets="earliest")
    query = reading.start(processingTime="0 seconds")
    try:
        for first in range(0, 30, 10):
            send(server, topic, texts(first, first + 10))
            wait_until(
                lambda end=first + 10: len(reading.values) == end,  # type: ignore[misc]
                seconds=60,
                what="the records have been read",
            )
        assert reading.values == numbers(0, 30)
        sources = wait_until(
            lambda: (
                [
                    source
                    for one in query.recentProgress
                    for source in one.sources
                    if json.loads(source.endOffset) == {topic: {"0": 30}}
                ]
                or None
            ),
            seconds=60,
            what="progress is reported",
        )
        assert json.loads(sources[0].latestOffset) == {topic: {"0": 30}}
    finally:
        query.stop()


def test_a_partition_that_comes_later_is_read_from_its_beginning(
    kafka_server: str, stream: Callable[..., Stream]
) -> None:
    server = kafka_server
    topic = new_topic(server)
    send(server, topic, texts(0, 5))
    reading = stream(server, topic)
    reading.run()
    add_partitions(server, topic, 2)
    send(server, topic, texts(5, 10), partition=1)
    reading.run()
    assert reading.values == numbers(5, 10)


def read_while_it_grows(reading: Stream, server: str, topic: str, grow: Callable[[], None], total: int) -> None:
    """Five records into the topic of a stream that runs already; within their batch more comes, until there are so many in all."""
    reading.meanwhile.append(grow)
    query = reading.start(processingTime="0 seconds")
    try:
        wait_until(lambda: bool(reading.batches), seconds=60, what="the stream has begun")
        send(server, topic, texts(0, 5))
        wait_until(lambda: len(reading.values) >= total or not query.isActive, seconds=60, what="all have been read")
        wait_until(  # or the last of them is given once more
            lambda: reading.committed >= len(reading.batches) or not query.isActive,
            seconds=60,
            what="they are committed",
        )
        assert query.exception() is None
    finally:
        query.stop()
    reading.run()  # from the checkpoint: what was read does not come again
    assert sorted(reading.values, key=int) == numbers(0, total)


def test_a_topic_made_while_a_stream_by_pattern_lives_is_read_from_its_first_record(
    server: str, stream: Callable[..., Stream]
) -> None:
    prefix = f"p-{uuid.uuid4().hex[:8]}"
    topic = new_topic(server, prefix=prefix)
    send(server, topic, [b"before the stream"])

    def grow() -> None:
        later, elsewhere = new_topic(server, partitions=2, prefix=prefix), new_topic(server, prefix=f"not-{prefix}")
        send(server, later, texts(5, 10))
        send(server, later, texts(10, 15), partition=1)
        send(server, elsewhere, [b"of no matching topic"])

    read_while_it_grows(stream(server, f"{prefix}-.*", by="subscribePattern"), server, topic, grow, total=15)


def test_a_partition_added_while_a_stream_lives_is_read_from_its_first_record(
    server: str, stream: Callable[..., Stream]
) -> None:
    topic = new_topic(server)
    send(server, topic, [b"before the stream"])

    def grow() -> None:
        add_partitions(server, topic, 3)
        send(server, topic, texts(5, 10), partition=1)
        send(server, topic, texts(10, 15), partition=2)

    read_while_it_grows(stream(server, topic), server, topic, grow, total=15)


def test_a_wrong_option_is_said_and_nothing_else(stream: Callable[..., Stream], penstock_server: str) -> None:
    """Spark's runner stumbles over an error that is raised while a reader is made, and tells of its own."""
    reading = stream(penstock_server, new_topic(penstock_server), maxTriggerDelay="soon")
    with pytest.raises(StreamingQueryException, match="maxTriggerDelay='soon'") as refusal:
        reading.run()
    assert "UnboundLocalError" not in str(refusal.value)
