"""A client of Spark Connect, in a process of its own: counts a topic, then copies it exactly once.

    python connect_driver.py SERVERS TOPIC COPY CHECKPOINT

Prints what it found, as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(servers: str, topic: str, copy: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    frame = spark.read.format("penstock").options(**options).load()
    found = {"client": type(spark).__module__, "rows": frame.count(), "of one": frame.where("partition = 1").count()}
    stream = spark.readStream.format("penstock").options(**options).option("startingOffsets", "earliest").load()
    writer = stream.select("value").writeStream.format("penstock").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", copy).option("delivery", "exactly_once").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
