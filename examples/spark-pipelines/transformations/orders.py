"""A topic as a streaming table, and a topic as a sink."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SERVERS = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    parsed = F.from_json(F.col("value").cast("string"), "id BIGINT, country STRING, amount DOUBLE")
    return records.select(parsed.alias("parsed")).select("parsed.*")


dp.create_sink(
    "large_orders",
    "penstock",
    {"kafka.bootstrap.servers": SERVERS, "topic": "large-orders", "delivery": "exactly_once"},
)


@dp.append_flow(target="large_orders")
def write_large_orders() -> DataFrame:
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.select(F.col("country").alias("key"), F.to_json(F.struct("id", "country", "amount")).alias("value"))
