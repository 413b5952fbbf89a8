"""The time that records take through a stream of Spark's, from a topic to a topic, under a steady load."""

from __future__ import annotations

import statistics
import struct
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.pipelines.topics import new_topic
from tests.support.kafka_reads import client_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_PER_SECOND = 10_000
PADDING = b"x" * 92
TICK_SECONDS = 0.01

_TUNED = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "1000",
    # Spark lets only its own sinks have that; a sink at least once may have it too.
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


class Percentiles(NamedTuple):
    p50_ms: float
    p99_ms: float


class Latency:
    """A stream by one format that runs until `close`, a producer before it and a consumer behind it."""

    def __init__(self, spark: SparkSession, server: str, checkpoint: Path, form: str) -> None:
        self._server = server
        self._source, self._target = new_topic(server), new_topic(server)
        reader = spark.readStream.format(form).option("kafka.bootstrap.servers", server)
        frame = reader.option("subscribe", self._source).option("startingOffsets", "earliest").load().select("value")
        writer = frame.writeStream.format(form).option("kafka.bootstrap.servers", server).options(**_TUNED)
        writer = writer.option("topic", self._target).option("checkpointLocation", str(checkpoint))
        self._query = writer.trigger(processingTime="0 seconds").start()
        self._stopping = threading.Event()
        self._producing = threading.Thread(target=self._produce)

    def close(self) -> None:
        self._stopping.set()
        if self._producing.ident is not None:
            self._producing.join()
        self._query.stop()

    def measure(self, *, warm_seconds: float, seconds: float) -> Percentiles:
        """Of the records that were sent in `seconds` after the warm ones."""
        self._producing.start()
        begin = time.time() + warm_seconds
        taken = self._consume(begin, begin + seconds)
        cuts = statistics.quantiles(taken, n=100)
        return Percentiles(cuts[49] * 1000, cuts[98] * 1000)

    def _produce(self) -> None:
        """A hundredth of a second's records at a time; what was late is made up for."""
        producer = Producer({**client_config(self._server), "linger.ms": 0, "acks": "1"})
        begun, sent = time.monotonic(), 0
        while not self._stopping.wait(TICK_SECONDS):
            due = int((time.monotonic() - begun) * RECORDS_PER_SECOND)
            for _ in range(due - sent):
                producer.produce(self._source, struct.pack(">d", time.time()) + PADDING, partition=0)
            sent = due
            producer.poll(0)
        producer.flush(30)

    def _consume(self, first: float, last: float) -> list[float]:
        """The seconds that each record took which was sent between two times."""
        consumer = Consumer({**client_config(self._server), "group.id": uuid.uuid4().hex, "fetch.wait.max.ms": 10})
        consumer.assign([TopicPartition(self._target, 0, 0)])
        taken: list[float] = []
        deadline = last + 120
        try:
            while time.time() < deadline:
                messages = consumer.consume(1000, 0.005)
                now = time.time()
                for message in messages:
                    (sent,) = struct.unpack_from(">d", message.value() or b"")
                    if sent >= last:
                        return taken
                    if sent >= first:
                        taken.append(now - sent)
                if error := self._query.exception():
                    raise error
            raise RuntimeError("the stream did not keep up")
        finally:
            consumer.close()
