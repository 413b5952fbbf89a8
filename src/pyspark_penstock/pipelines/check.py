"""Finding mistakes without running: every name resolved, every topic asked for, every sink's columns looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.errors import PenstockError
from penstock.client.cluster import Cluster
from penstock.client.config import Address, ClientConfig
from penstock.client.errors import UnreachableError
from pyspark_penstock.clusters import cluster_of
from pyspark_penstock.pipelines.frames import Mistake, Views, build_views
from pyspark_penstock.pipelines.model import PipelineSpec, Sink
from pyspark_penstock.pipelines.sentences import sentence, without_walls
from pyspark_penstock.pipelines.sinks import ready, require_format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REACHED_MS_MAX = 15_000
"""Nobody waits longer to hear that a server's name is wrong."""


def check(spark: SparkSession, spec: PipelineSpec) -> tuple[Views, list[Mistake]]:
    """The views, and every mistake that was found in them, in the topics and in the sinks."""
    with without_walls():
        views = build_views(spark, spec)
        mistakes = [*_trigger(spark, spec), *views.mistakes]
        mistakes += (mistake for mistake in _topics(spec) if mistake not in mistakes)
        for sink in spec.sinks:
            if sink.view in views.frames:
                mistakes += _sink(spark, spec, sink, views.frames[sink.view])
    return views, mistakes


def _trigger(spark: SparkSession, spec: PipelineSpec) -> Iterator[Mistake]:
    jvm = spark._jvm
    assert jvm is not None, "a session of our own has a JVM"
    if spec.is_available_now:
        return
    try:
        jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(spec.trigger)
    except Exception as error:
        reason = f"{spec.trigger!r} is neither available_now nor an interval such as 10 seconds: {sentence(error)}"
        yield Mistake(place="trigger", reason=reason)


def _topics(spec: PipelineSpec) -> Iterator[Mistake]:
    """What is to be read and written must be there: topics are not made in passing."""
    from pyspark_penstock.options import read_batch_options, read_stream_options
    from pyspark_penstock.planning import find_partitions
    from pyspark_penstock.sink_options import client_of

    clusters = _Clusters()
    for source in spec.sources:
        if source.is_topic:
            try:
                read = read_stream_options if source.is_stream else read_batch_options
                common = read(source.options).common
                if common.client is None:
                    continue  # files alone
                with clusters.asked(common.client) as cluster:
                    if not find_partitions(cluster, common.subscription):
                        yield Mistake(place=f"sources, {source.name}", reason="no topic matches the pattern")
            except PenstockError as error:
                yield Mistake(place=f"sources, {source.name}", reason=str(error))
    for sink in spec.sinks:
        if sink.kind == "topic":
            try:
                with clusters.asked(client_of(sink.options)) as cluster:
                    cluster.topics([sink.target])
            except PenstockError as error:
                yield Mistake(place=f"sinks, {sink.name}", reason=str(error))


class _Clusters:
    """Each is waited for once: what cannot be reached for one topic cannot be for the next."""

    def __init__(self) -> None:
        self._unreachable: dict[tuple[Address, ...], UnreachableError] = {}

    @contextmanager
    def asked(self, config: ClientConfig) -> Iterator[Cluster]:
        known = self._unreachable.get(config.bootstrap_servers)
        if known is not None:
            raise known
        patience_ms = min(config.api_timeout_ms, REACHED_MS_MAX)
        try:
            yield cluster_of(replace(config, api_timeout_ms=patience_ms))
        except UnreachableError as error:
            self._unreachable[config.bootstrap_servers] = error
            raise


def _sink(spark: SparkSession, spec: PipelineSpec, sink: Sink, frame: DataFrame) -> Iterator[Mistake]:
    from pyspark_penstock.sink_options import read_sink_options

    try:
        if not frame.isStreaming:
            raise PenstockError(
                f"{sink.view} is no stream: nothing in it comes from a topic or from files with stream: true"
            )
        require_format(spark, sink)
        made = ready(frame, sink)
        missing = [name for name in sink.partition_by if name not in made.columns]
        if missing:
            raise PenstockError(f"partition_by: there is no column {missing[0]} in {sink.view}")
        if sink.kind == "topic":
            read_sink_options(sink.options, made.schema)
        if sink.kind == "parquet":
            _check_table(spark, sink.target, f"{spec.checkpoints}/{sink.name}")
        _check_streaming(spark, made, sink.output_mode)
    except Exception as error:
        yield Mistake(place=f"sinks, {sink.name}", reason=sentence(error))


def _check_streaming(spark: SparkSession, frame: DataFrame, mode: str) -> None:
    """What Spark itself asks when a query starts: whether the plan can run as a stream in this mode."""
    jvm = spark._jvm
    assert jvm is not None, "a session of our own has a JVM"
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output_mode)


def _check_table(spark: SparkSession, table: str, checkpoint: str) -> None:
    """Spark leaves out, without a word, a batch whose number the table has already: so it knows those it wrote before a crash.
    Where the checkpoints are gone and the table is not, numbers begin again, and new batches would be taken for old ones."""
    written, begun = _last_batch(spark, f"{table}/_spark_metadata"), _last_batch(spark, f"{checkpoint}/offsets")
    if written > begun:
        raise PenstockError(
            f"{table} holds the batches up to {written} of other checkpoints than {checkpoint}, and Spark would take new ones for "
            "those and leave them out: bring the checkpoints back, remove the table, or write elsewhere"
        )


def _last_batch(spark: SparkSession, folder: str) -> int:
    """Of one of Spark's logs, whose files are called for batches; -1 where it is not there or empty."""
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None, "a session of our own has a JVM"
    path = jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(context.hadoopConfiguration())
    if not files.exists(path):
        return -1
    numbers = (status.getPath().getName().removesuffix(".compact") for status in files.listStatus(path))
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)
