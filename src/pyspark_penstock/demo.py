"""The demo on Spark's side: its pipeline, and the same question put once more to the files of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_penstock.pipelines.flows import FAILED, FlowStatus
from pyspark_penstock.pipelines.model import PipelineError, PipelineSpec
from pyspark_penstock.pipelines.parse import read_content
from pyspark_penstock.pipelines.run import Run, session_for
from pyspark_penstock.pipelines.storage import holding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "id BIGINT, user STRING, at TIMESTAMP, amount INT"
CLICK = "id BIGINT, user STRING, at TIMESTAMP, page STRING"
TOTALS_FLOW, TABLE_FLOW, BAD_FLOW = "totals", "enriched", "bad"

_EVENTS = """
SELECT 'order' AS kind, id, user, at, amount FROM orders UNION ALL SELECT 'click', id, user, at, 0 FROM clicks
"""
_ENRICHED = "SELECT kind, id, users.country, at, amount FROM events JOIN users ON events.user = users.user"
_TOTALS = """
SELECT window.start AS start, country, count(*) AS events, count_if(kind = 'order') AS orders, sum(amount) AS amount
FROM enriched GROUP BY window(at, '1 minute'), country
"""


def pipeline_content(servers: str, storage: str) -> dict[str, Any]:
    """What a YAML file would say."""
    return {
        "name": "demo",
        "servers": servers,
        "storage": storage,
        "trigger": "200 milliseconds",
        "spark": {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "1g"},
        "sources": {
            "orders": {"topic": "orders", "schema": ORDER},
            "clicks": {"topic": "clicks", "schema": CLICK},
            "users": {
                "topic": "users",
                "schema": "user STRING, country STRING",
                "stream": False,
                "options": {"view": "latest"},
            },
        },
        "transforms": {
            "events": {
                "sql": _EVENTS,
                "watermark": {"column": "at", "delay": "1 minute"},
                "expect": {"has_a_user": {"that": "user IS NOT NULL", "else": "fail"}},
            },
            "enriched": {"sql": _ENRICHED},
            "totals": {"sql": _TOTALS},
            "bad": {"sql": "SELECT * FROM orders_bad UNION ALL SELECT * FROM clicks_bad"},
        },
        "sinks": {
            TOTALS_FLOW: {"from": "totals", "topic": "totals", "key": "country"},
            TABLE_FLOW: {"from": "enriched", "parquet": f"{storage}/enriched"},
            BAD_FLOW: {"from": "bad", "topic": "bad-events"},
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Counted by batch queries over the files of the log, when everything was through."""

    events: int
    """Committed ones, in both topics."""
    aborted: int
    counted: int
    """In the windows that the pipeline wrote."""
    windows: int
    late: int
    """Whose windows were over before the first event that was not late."""
    open: int
    """In windows that are not over yet."""
    bad: int
    table_rows: int
    table_ids: int
    same_answer: bool
    """Whether the pipeline's totals are those of the files, row for row, and none is there twice."""


class Demo:
    """The pipeline's run and the questions after it, in one session."""

    def __init__(self, servers: str, storage: Path) -> None:
        self.spec: PipelineSpec = read_content(pipeline_content(servers, str(storage)), storage / "demo.yaml")
        self._servers = servers

    def run(
        self,
        *,
        begun: Callable[[str], None],
        watch: Callable[[Sequence[FlowStatus]], None],
        should_stop: Callable[[], bool],
        ask: Callable[[Callable[[str, str], Findings]], None],
    ) -> None:
        """Runs until `should_stop`; then `ask` gets a function that answers for a start and an end of event time."""
        spec = self.spec
        with holding(spec.storage), session_for(spec, "local[2]", output=spec.spark_output) as spark:
            run = Run(spark, spec, lambda *_: None)
            run.prepare()
            begun(run.ui)
            for status in run.go(watch, should_stop):
                if status.state == FAILED:
                    raise PipelineError(f"the flow {status.flow} failed: {status.error}")
            ask(lambda start, end: self._find(spark, start, end))

    def _find(self, spark: SparkSession, start: str, end: str) -> Findings:
        from pyspark.sql import functions as F

        for name, schema in (("orders", ORDER), ("clicks", CLICK)):
            parsed = F.from_json(F.col("value").cast("string"), schema, {"mode": "PERMISSIVE"})
            rows = self._read(spark, name).select(parsed.alias("parsed")).select("parsed.*")
            rows.where("user IS NOT NULL AND at IS NOT NULL").createOrReplaceTempView(name)
        spark.sql(_EVENTS).createOrReplaceTempView("events")
        spark.sql(_ENRICHED).createOrReplaceTempView("enriched")
        asked = {_key(row.asDict()): row["events"] for row in spark.sql(_TOTALS).collect()}
        late = sum(events for (began, *_), events in asked.items() if began < start)
        still_open = sum(events for (began, *_), events in asked.items() if began >= end)
        closed = sorted(one for one in asked if start <= one[0] < end)
        written = [json.loads(row["value"]) for row in self._read(spark, "totals").select("value").collect()]
        table = spark.read.parquet(f"{self.spec.storage}/enriched")
        events = self._read(spark, "orders,clicks").count()
        return Findings(
            events=events,
            aborted=self._read(spark, "orders,clicks", "read_uncommitted").count() - events,
            counted=sum(row["events"] for row in written),
            windows=len(written),
            late=late,
            open=still_open,
            bad=self._read(spark, "bad-events").count(),
            table_rows=table.count(),
            table_ids=table.select("id").distinct().count(),
            same_answer=sorted(map(_key, written)) == closed,
        )

    def _read(self, spark: SparkSession, topics: str, isolation: str = "read_committed") -> DataFrame:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", self._servers)
        return reader.options(**{"subscribe": topics, "mode": "segments", "kafka.isolation.level": isolation}).load()


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """A window's total, comparable: JSON has times as text."""
    start = row["start"] if isinstance(row["start"], str) else f"{row['start']:%Y-%m-%dT%H:%M:%S}.000Z"
    return start, row["country"], row["events"], row["orders"], row["amount"]
