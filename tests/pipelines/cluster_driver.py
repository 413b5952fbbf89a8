"""A driver for a Spark cluster, in a process of its own: counts a topic, then copies it exactly once in small batches.

    python cluster_driver.py MASTER SERVERS TOPIC COPY CHECKPOINT

Prints `count N` when the batch query is done, `batch N` after each batch of the stream, and `done` at the end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark_penstock.session import make_session

BATCH_RECORDS = 500


def main(master: str, servers: str, topic: str, copy: str, checkpoint: str) -> None:
    session = make_session(
        "cluster-test",
        master=master,
        settings={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",
            "spark.executor.cores": "1",
            "spark.network.timeout": "60s",
        },
        jvm_output=Path(checkpoint).with_name("driver-jvm.log"),
    )
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    print("count", session.read.format("penstock").options(**options).load().count(), flush=True)
    rows = session.readStream.format("penstock").options(**options)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH_RECORDS))
    writer = rows.load().select("value").writeStream.format("penstock").options(**options)
    writer = writer.option("topic", copy).option("delivery", "exactly_once").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    seen = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > seen:
            seen = progress["batchId"]
            print("batch", seen, flush=True)
        time.sleep(0.05)
    query.awaitTermination()
    print("done", flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
