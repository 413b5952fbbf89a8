"""A pipeline's views as DataFrames. Building them makes Spark resolve every name and read no record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_penstock.pipelines.model import BAD, Expectation, PipelineError, PipelineSpec, Source, Transform, Watermark
from pyspark_penstock.pipelines.sentences import sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(slots=True)
class Views:
    """What could be built, and why the rest could not."""

    frames: dict[str, DataFrame] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)


def build_views(spark: SparkSession, spec: PipelineSpec) -> Views:
    """Every view, registered under its name for the SQL of those below it; mistakes are collected."""
    views = Views()
    for source in spec.sources:
        try:
            good, bad = _read(spark, source)
            _add(views, source.name, _finish(good, source.name, source.watermark, source.expectations))
            if bad is not None:
                _add(views, source.name + BAD, bad)
        except Exception as error:
            _lose(views, f"sources, {source.name}", [source.name, source.name + BAD], error)
    for transform in spec.transforms:
        try:
            frame = _apply(spark, transform, views.frames)
            _add(views, transform.name, _finish(frame, transform.name, transform.watermark, transform.expectations))
        except Exception as error:
            _lose(views, f"transforms, {transform.name}", [transform.name], error)
    return views


def _add(views: Views, name: str, frame: DataFrame) -> None:
    frame.createOrReplaceTempView(name)
    views.frames[name] = frame


def _lose(views: Views, place: str, names: Sequence[str], error: Exception) -> None:
    """A view that only lacks one lost above it is not a mistake of its own."""
    reason = sentence(error)
    if not any(f"`{lost}`" in reason or reason == f"needs {lost}" for lost in views.lost):
        views.mistakes.append(Mistake(place=place, reason=reason))
    views.lost.update(names)


def _read(spark: SparkSession, source: Source) -> tuple[DataFrame, DataFrame | None]:
    reader = spark.readStream if source.is_stream else spark.read
    reader = reader.format(source.format).options(**source.options)
    if source.schema:
        reader = reader.schema(source.schema)
    frame = reader.load()
    if not source.is_topic:
        return frame, None
    from pyspark_penstock.payloads import decoded

    return decoded(frame, source.payload, source.options.get("subscribe", ""))


def _apply(spark: SparkSession, transform: Transform, frames: Mapping[str, DataFrame]) -> DataFrame:
    if transform.function is None:
        return spark.sql(transform.sql)
    missing = [name for name in transform.inputs if name not in frames]
    if missing:
        raise PipelineError(f"needs {missing[0]}")
    from pyspark.sql import DataFrame

    try:
        made = transform.function(*(frames[name] for name in transform.inputs))
    except SystemExit as error:
        raise PipelineError(f"the function ended by SystemExit: {error}") from None
    if not isinstance(made, DataFrame):
        raise PipelineError(f"the function returned {type(made).__name__}, not a DataFrame")
    return made


def _finish(frame: DataFrame, name: str, watermark: Watermark | None, expectations: Sequence[Expectation]) -> DataFrame:
    from pyspark.sql import functions as F

    if expectations:
        met = {one.name: F.coalesce(F.expr(one.condition), F.lit(False)) for one in expectations}
        counts = [F.count(F.when(~holds, True)).alias(expectation) for expectation, holds in met.items()]
        frame = frame.observe(name, *counts)
        for one in expectations:
            if one.action == "drop":
                frame = frame.where(met[one.name])
            elif one.action == "fail":
                complaint = F.lit(f"a row of {name} does not meet {one.name}: {one.condition}")
                frame = frame.where(
                    F.when(met[one.name], F.lit(True)).otherwise(F.raise_error(complaint).cast("boolean"))
                )
    if watermark is not None:
        frame = frame.withWatermark(watermark.column, watermark.delay)
    return frame
