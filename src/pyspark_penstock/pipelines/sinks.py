"""Where a flow's rows go: a view made ready for its sink, and the streaming query that writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_penstock.pipelines.model import PipelineError, PipelineSpec, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CONSOLE_ROWS = 20

Show = Callable[[str, int, "DataFrame"], None]
"""`(flow, batch, its rows)`: how the console is written to."""

_CLASSES = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "Delta Lake"),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "Iceberg"),
}


def require_format(spark: SparkSession, sink: Sink) -> None:
    """Delta's and Iceberg's classes come in jars of their own, which must fit the Spark that runs here."""
    if sink.kind not in _CLASSES:
        return
    name, product = _CLASSES[sink.kind]
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm = spark._jvm
    assert jvm is not None, "a session of our own has a JVM"
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JJavaError:
        raise PipelineError(
            f"{product} is not on Spark's class path: bring its jar for Spark {spark.version} by spark.jars or "
            "spark.jars.packages under `spark:` in the pipeline's file"
        ) from None


def ready(frame: DataFrame, sink: Sink) -> DataFrame:
    """As the sink takes it. A topic's rows without a column `value` become JSON."""
    from pyspark.sql import functions as F

    from pyspark_penstock.payloads import BAD_COLUMNS, dead_letters

    if sink.kind != "topic":
        return frame
    if tuple(frame.columns) == BAD_COLUMNS:
        return dead_letters(frame)
    columns = [] if "value" in frame.columns else [F.to_json(F.struct(*frame.columns)).alias("value")]
    if columns and not sink.key:
        return frame.select(*columns)
    if sink.key:
        key = F.expr(sink.key)
        kind = frame.select(key).schema[0].dataType.simpleString()
        columns.append((key if kind in ("string", "binary") else key.cast("string")).alias("key"))
    if "value" not in frame.columns:
        return frame.select(*columns)
    return frame.select(*[name for name in frame.columns if name != "key" or not sink.key], *columns)


def start(frame: DataFrame, sink: Sink, spec: PipelineSpec, show: Show) -> StreamingQuery:
    writer = ready(frame, sink).writeStream.queryName(sink.name).outputMode(sink.output_mode)
    writer = writer.option("checkpointLocation", f"{spec.checkpoints}/{sink.name}").options(**sink.options)
    writer = writer.trigger(availableNow=True) if spec.is_available_now else writer.trigger(processingTime=spec.trigger)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.kind == "console":
        return writer.foreachBatch(lambda rows, batch: show(sink.name, batch, rows)).start()
    return _to(writer, sink)


def _to(writer: DataStreamWriter, sink: Sink) -> StreamingQuery:
    if sink.kind == "topic":
        return writer.format("penstock").start()
    if sink.kind == "iceberg" and "/" not in sink.target:
        return writer.format("iceberg").toTable(sink.target)
    return writer.format(sink.kind).start(sink.target)
