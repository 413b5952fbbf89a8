"""A run of a pipeline, from its lock to its last line."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Clock, SystemClock
from pyspark_penstock.clusters import close_clusters
from pyspark_penstock.pipelines import sinks
from pyspark_penstock.pipelines.check import check
from pyspark_penstock.pipelines.flows import FAILED, Flow, FlowStatus
from pyspark_penstock.pipelines.frames import Mistake
from pyspark_penstock.pipelines.model import PipelineError, PipelineSpec
from pyspark_penstock.pipelines.sentences import last_words, sentence, without_walls
from pyspark_penstock.pipelines.storage import holding, write_progress
from pyspark_penstock.session import end_java, end_session, make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

LOOK_SECONDS = 0.1
WRITE_MS = 500
LAST_REPORTS_SECONDS = 10.0

Watch = Callable[[Sequence[FlowStatus]], None]
"""Called several times a second, and once at the end."""


class MistakesError(PipelineError):
    """The pipeline cannot run as it is written."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


@contextlib.contextmanager
def session_for(
    spec: PipelineSpec, master: str, *, output: Path | None, is_kept: bool = True
) -> Iterator[SparkSession]:
    """A session with the pipeline's settings, ended at the end. `output`: where the JVM prints, None for here."""
    settings = {"spark.ui.enabled": "true", **spec.settings}
    printed_before = output.stat().st_size if output is not None and output.exists() else 0
    try:
        session = make_session(spec.name, master=master, settings=settings, jvm_output=output)
    except BaseException as error:
        end_java()
        if not isinstance(error, Exception):
            raise  # somebody does not want to wait for it
        reason, where = sentence(error), ""
        if output is not None and output.exists():
            reason = last_words(output.read_bytes()[printed_before:]) or reason
            where = f" (its output is in {output})" if is_kept else " (--noisy shows its output)"
        raise PipelineError(f"Spark does not start: {reason}{where}") from error
    with contextlib.nullcontext() if output is None else without_walls():
        try:
            yield session
        finally:
            close_clusters()
            end_session(session)


class Run:
    """Looks after the flows until they are all over, or until `should_stop` says so."""

    def __init__(self, spark: SparkSession, spec: PipelineSpec, show: sinks.Show, clock: Clock | None = None) -> None:
        self._spark = spark
        self._spec = spec
        self._show = show
        self._clock = SystemClock() if clock is None else clock
        self._written_ms = 0
        self.flows: list[Flow] = []

    @property
    def ui(self) -> str:
        return self._spark.sparkContext.uiWebUrl or ""

    def prepare(self) -> None:
        """MistakesError if anything is wrong that can be known before."""
        views, mistakes = check(self._spark, self._spec)
        if mistakes:
            raise MistakesError(mistakes)
        for sink in self._spec.sinks:
            frame = views.frames[sink.view]
            begin = lambda frame=frame, sink=sink: sinks.start(frame, sink, self._spec, self._show)  # noqa: E731
            self.flows.append(Flow(sink.name, begin, self._spec.restarts_max, self._clock))

    def go(self, watch: Watch, should_stop: Callable[[], bool]) -> list[FlowStatus]:
        reports = _Reports(self.flows)
        listener = reports.listener()
        self._spark.streams.addListener(listener)
        try:
            while not all(flow.is_over for flow in self.flows) and not should_stop():
                for flow in self.flows:
                    flow.tend()
                self._tell(watch)
                time.sleep(LOOK_SECONDS)
        finally:
            for flow in self.flows:
                flow.stop()
            reports.wait_for_last()
            self._spark.streams.removeListener(listener)
            self._tell(watch, is_last=True)
        return self._statuses()

    def _statuses(self) -> list[FlowStatus]:
        return [flow.status() for flow in self.flows]

    def _tell(self, watch: Watch, *, is_last: bool = False) -> None:
        statuses = self._statuses()
        watch(statuses)
        now_ms = self._clock.monotonic_ms()
        if is_last or now_ms - self._written_ms >= WRITE_MS:
            self._written_ms = now_ms
            write_progress(self._spec.storage, self._spec.name, self.ui, self._clock.wall_ms(), statuses)


class _Reports:
    """What Spark tells of its queries, on a thread of its own, after the fact: the last report of a query that has ended
    comes a little later than its end."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        self._flows = {flow.name: flow for flow in flows}
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def listener(self) -> StreamingQueryListener:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        reports = self

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None:
                reports._begun.add(str(event.runId))

            def onQueryProgress(self, event: Any) -> None:
                reports.take(json.loads(event.progress.json))

            def onQueryIdle(self, event: Any) -> None:
                pass

            def onQueryTerminated(self, event: Any) -> None:
                reports.end(str(event.runId))

        return Listener()

    def take(self, report: Mapping[str, Any]) -> None:
        flow = self._flows.get(report.get("name") or "")
        if flow is not None:
            flow.progress.take(report)

    def end(self, run_id: str) -> None:
        self._ended.add(run_id)
        for flow in self._flows.values():
            flow.ended_runs.add(run_id)

    def wait_for_last(self) -> None:
        deadline = time.monotonic() + LAST_REPORTS_SECONDS
        while self._begun - self._ended and time.monotonic() < deadline:
            time.sleep(0.01)


def run(
    spec: PipelineSpec,
    master: str,
    *,
    begun: Callable[[str], None],
    watch: Watch,
    show: sinks.Show,
    should_stop: Callable[[], bool],
    is_noisy: bool = False,
) -> list[FlowStatus]:
    """Runs a pipeline to its end. `begun` is told the address of Spark's UI. Statuses with FAILED among them: it failed."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    output = None if is_noisy else spec.spark_output
    try:
        with holding(spec.storage), session_for(spec, master, output=output) as spark:
            one = Run(spark, spec, show)
            one.prepare()
            begun(one.ui)
            return one.go(watch, should_stop)
    except Py4JJavaError as error:
        raise PipelineError(sentence(error)) from error
    except (Py4JError, ConnectionRefusedError, ConnectionResetError):  # its text would be asked of a JVM that is gone
        where = "" if output is None else f" (its output is in {output})"
        raise PipelineError(
            f"Spark ended in the middle of the run; the next goes on from the checkpoints{where}"
        ) from None


def is_failure(statuses: Sequence[FlowStatus]) -> bool:
    return any(status.state == FAILED for status in statuses)
