"""A pipeline in Python: the same content as a YAML file, with functions where that has SQL.

pipeline = Pipeline("orders", servers="127.0.0.1:9092")
pipeline.source("orders", topic="orders", schema="id STRING, amount DOUBLE")

@pipeline.transform(expect={"positive": "amount > 0"})
def large(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 100")

pipeline.sink("large_orders", view="large", topic="large-orders", key="id")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_penstock.pipelines.model import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_penstock.pipelines.flows import FlowStatus

Function = Callable[..., Any]


class Pipeline:
    """Keywords are the keys of a YAML file (`from` is `view` here), checked when the file is read."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.content: dict[str, Any] = {"name": name, **settings, "sources": {}, "transforms": {}, "sinks": {}}

    def source(self, name: str, **fields: Any) -> None:
        self._add("sources", name, fields)

    def sql(self, name: str, text: str, **fields: Any) -> None:
        self._add("transforms", name, {"sql": text, **fields})

    def transform(self, **fields: Any) -> Callable[[Function], Function]:
        """Decorates a function named for the view it makes; its parameters are named for the views it takes."""

        def add(function: Function) -> Function:
            self._add("transforms", function.__name__, {"python": function, **fields})
            return function

        return add

    def sink(self, name: str, *, view: str, **fields: Any) -> None:
        self._add("sinks", name, {"from": view, **fields})

    def run(self, spark: SparkSession, folder: str | Path = ".") -> list[FlowStatus]:
        """Runs it in a session that is there already, to its end; for notebooks. Paths are relative to the folder.

        PipelineError if a flow fails.
        """
        from pyspark_penstock.pipelines.flows import FAILED
        from pyspark_penstock.pipelines.parse import read_content
        from pyspark_penstock.pipelines.run import Run
        from pyspark_penstock.pipelines.storage import holding

        spec = read_content(self.content, Path(folder) / f"{self.content['name']}.py")
        with holding(spec.storage):
            run = Run(spark, spec, lambda _flow, _batch, rows: rows.show(truncate=False))
            run.prepare()
            statuses = run.go(lambda _statuses: None, lambda: False)
        for status in statuses:
            if status.state == FAILED:
                raise PipelineError(f"the flow {status.flow} failed: {status.error}")
        return statuses

    def _add(self, part: str, name: str, fields: Mapping[str, Any]) -> None:
        if name in self.content[part]:
            raise PipelineError(f"{part}: {name} is there twice")
        self.content[part][name] = dict(fields)
