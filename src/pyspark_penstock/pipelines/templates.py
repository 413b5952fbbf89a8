"""The files that `penstock pipeline init` writes: small, whole, and with every part in them."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark_penstock.pipelines.model import PipelineError

YAML = """\
# penstock pipeline check {file}     finds mistakes without running
# penstock pipeline run {file}       runs it; again later, it goes on where it stopped
# penstock pipeline status {file}    what it does, or did
name: {name}
servers: 127.0.0.1:9092
storage: {name}.storage            # checkpoints, progress and the lock, beside this file
trigger: available_now             # what is there, then stop; or an interval such as 10 seconds

sources:                           # each is a view
  orders:
    topic: orders
    schema: id STRING, country STRING, amount DOUBLE, at TIMESTAMP      # of the JSON in each value
    watermark: {{column: at, delay: 10 minutes}}
    dead_letters: {{topic: orders-bad}}                                   # what is no such JSON
    expect:
      has_a_country: country IS NOT NULL                                # counted
      positive: {{that: amount > 0, else: drop}}                          # warn, drop or fail

transforms:                        # each is a view; it may use those above it
  totals:
    sql: |
      SELECT window.start AS start, country, count(*) AS orders, sum(amount) AS amount
      FROM orders GROUP BY window(at, '1 hour'), country
  # scored: {{python: transforms.py:score}}   a function whose parameters are named for views

sinks:                             # each is a flow with a checkpoint of its own
  totals_topic: {{from: totals, topic: totals, key: country}}             # exactly once, as JSON
  orders_table: {{from: orders, parquet: {name}.orders, partition_by: [country]}}
"""

PYTHON = '''\
"""penstock pipeline check | run | status {file}"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_penstock.pipelines import Pipeline

pipeline = Pipeline("{name}", servers="127.0.0.1:9092", storage="{name}.storage", trigger="available_now")

pipeline.source(
    "orders",
    topic="orders",
    schema="id STRING, country STRING, amount DOUBLE, at TIMESTAMP",
    watermark={{"column": "at", "delay": "10 minutes"}},
    dead_letters={{"topic": "orders-bad"}},
    expect={{"has_a_country": "country IS NOT NULL", "positive": {{"that": "amount > 0", "else": "drop"}}}},
)


@pipeline.transform()
def totals(orders: DataFrame) -> DataFrame:
    grouped = orders.groupBy(F.window("at", "1 hour"), "country")
    counted = grouped.agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    return counted.select(F.col("window.start").alias("start"), "country", "orders", "amount")


pipeline.sink("totals_topic", view="totals", topic="totals", key="country")
pipeline.sink("orders_table", view="orders", parquet="{name}.orders", partition_by=["country"])
'''


def write_template(path: Path) -> None:
    """Never over a file that is there."""
    if path.suffix not in (".yaml", ".yml", ".py"):
        raise PipelineError(f"{path}: a pipeline's file ends in .yaml, .yml or .py")
    template = PYTHON if path.suffix == ".py" else YAML
    name = re.sub(r"[^\w-]+", "-", path.stem)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template.format(file=path.name, name=name))
    except FileExistsError:
        raise PipelineError(f"{path} is there already; it is left as it is") from None
