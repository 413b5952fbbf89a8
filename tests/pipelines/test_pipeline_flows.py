"""A flow that fails is started again, later each time, and given up when that is no use; its numbers add up."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock.base.clock import ManualClock
from pyspark_penstock.pipelines.flows import DONE, FAILED, RESTARTING, RUNNING, STOPPED, Flow, Progress
from pyspark_penstock.pipelines.sentences import is_lasting, sentence


class Query:
    """Ends when it is told to."""

    def __init__(self) -> None:
        self.isActive = True
        self.runId = uuid.uuid4()
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False


class World:
    def __init__(self, restarts_max: int = 3) -> None:
        self.clock = ManualClock()
        self.queries: list[Query] = []
        self.flow = Flow("f", self.start, restarts_max, self.clock)

    def start(self) -> Any:
        self.queries.append(Query())
        return self.queries[-1]

    def end(self, error: Exception | None = None) -> None:
        query = self.queries[-1]
        query.isActive, query.error = False, error
        self.flow.ended_runs.add(str(query.runId))
        self.flow.tend()


def report(batch: int = 0, rows: int = 10, latest: int = 10, end: int = 10, **more: Any) -> dict[str, Any]:
    source = {"latestOffset": {"t": {"0": latest}}, "endOffset": {"t": {"0": end}, "@start": {"t": {"0": 0}}}}
    durations = {"triggerExecution": 50, "addBatch": 40, "walCommit": 5}
    return {"batchId": batch, "numInputRows": rows, "sources": [source], "durationMs": durations, "processedRowsPerSecond": 99.5, **more}  # fmt: skip


def test_a_flow_that_fails_is_started_again_after_pauses_that_grow() -> None:
    world = World(restarts_max=2)
    world.flow.tend()
    assert (world.flow.state, len(world.queries)) == (RUNNING, 1)
    for pause_ms in (500, 1000):
        world.end(RuntimeError("the process of the source died"))
        assert world.flow.state == RESTARTING
        world.clock.advance(pause_ms - 1)
        before = len(world.queries)
        world.flow.tend()
        assert len(world.queries) == before
        world.clock.advance(1)
        world.flow.tend()
        assert (world.flow.state, len(world.queries)) == (RUNNING, before + 1)
    world.end(RuntimeError("again"))
    status = world.flow.status()
    assert (status.state, status.restarts, status.error) == (FAILED, 2, "again")


def test_a_batch_that_succeeds_gives_a_flow_its_restarts_back() -> None:
    world = World(restarts_max=1)
    world.flow.tend()
    for batch in range(5):
        world.flow.progress.take(report(batch))
        world.end(RuntimeError("died"))
        assert world.flow.state == RESTARTING
        world.clock.advance(500)
        world.flow.tend()
    assert world.flow.status().restarts == 5


def test_an_error_that_would_come_again_ends_a_flow_at_once() -> None:
    world = World()
    world.flow.tend()
    world.end(RuntimeError("Traceback\npyspark_penstock.planning.DataLossError: offsets 3 to 5 are gone"))
    assert (world.flow.state, world.flow.status().error) == (FAILED, "offsets 3 to 5 are gone")


def test_a_flow_ends_when_its_query_does_and_its_last_report_has_come() -> None:
    world = World()
    world.flow.tend()
    world.queries[-1].isActive = False
    world.flow.tend()
    assert world.flow.state == RUNNING
    world.clock.advance(5_000)
    world.flow.tend()
    assert world.flow.state == DONE
    stopped = World()
    stopped.flow.tend()
    stopped.flow.stop()
    assert (stopped.flow.state, stopped.queries[0].isActive) == (STOPPED, False)


def test_lag_is_counted_in_records_and_in_the_time_since_they_were_seen_waiting() -> None:
    clock = ManualClock()
    progress = Progress(clock)
    progress.take(report(0, latest=100, end=10))
    clock.advance(3_000)
    progress.take(report(1, latest=250, end=100))
    clock.advance(2_000)
    assert (progress.lag_records, progress.lag_seconds()) == (150, 2.0)
    progress.take(report(2, latest=250, end=250))
    assert (progress.lag_records, progress.lag_seconds()) == (0, 0.0)
    assert (progress.batch, progress.rows, progress.batch_ms, progress.longest_part) == (2, 30, 50, "addBatch")


def test_unmet_expectations_add_up_and_reports_without_a_batch_count_nothing() -> None:
    progress = Progress(ManualClock())
    progress.take(report(0, observedMetrics={"orders": {"positive": 2, "named": 0}}))
    progress.take(report(1, observedMetrics={"orders": {"positive": 3, "named": 1}}))
    progress.take(report(1, durationMs={"latestOffset": 3}))
    assert progress.unmet == {"orders.positive": 5, "orders.named": 1}
    assert progress.rows == 20


def test_the_rate_is_that_of_the_last_batch_that_read_rows() -> None:
    progress = Progress(ManualClock())
    progress.take(report(0, processedRowsPerSecond=400.0))
    progress.take(report(1, numInputRows=0, processedRowsPerSecond=0.0))
    assert (progress.batch, progress.rows, progress.rows_per_second) == (1, 10, 400.0)


@pytest.mark.parametrize(
    ("text", "said", "lasting"),
    [
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean [`y`]. SQLSTATE: 42703; line 1\n'Project",
         "A column with name `x` cannot be resolved. Did you mean [`y`]", False),
        ("Job aborted\nTraceback (most recent call last):\n  File x\npenstock.client.errors.UnreachableError: broker b:1 cannot be reached\n\n\tat org.x",
         "broker b:1 cannot be reached", False),
        ("[STREAM_FAILED] x\n org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] a row of v does not meet e: a > 0 SQLSTATE: P0001",
         "a row of v does not meet e: a > 0", True),
        ("x\npyspark.errors.exceptions.base.PythonException: y\npyspark_penstock.sink_columns.BadRowError: batch 3, task 0: row 1 names no topic",
         "batch 3, task 0: row 1 names no topic", True),
        ("An error occurred while calling o50.toTable.\n: java.lang.IncompatibleClassChangeError: class a.SparkView can not implement b.View\n\tat java.x",
         "java.lang.IncompatibleClassChangeError: class a.SparkView can not implement b.View", True),
    ],
)  # fmt: skip
def test_what_spark_says_becomes_one_sentence(text: str, said: str, lasting: bool) -> None:
    assert (sentence(text), is_lasting(text)) == (said, lasting)
