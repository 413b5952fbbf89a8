"""Flows while they run: each a streaming query, started again when it fails, told of in one line.

If the process of a source dies, its query fails with an empty cause and stays so: starting again is for whoever runs it. A
flow that fails several times without finishing a batch in between is given up, and one whose error would only come again
at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.clock import Clock
from pyspark_penstock.pipelines.sentences import is_lasting, sentence

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STARTING, RUNNING, RESTARTING, DONE, FAILED, STOPPED = "starting", "running", "restarting", "done", "failed", "stopped"
OVER = frozenset({DONE, FAILED, STOPPED})
KILLED = "killed"
"""Never a flow's own word: its run ended without one."""
BACKOFF_MS, BACKOFF_MS_MAX = 500, 30_000
REPORTS_MS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """What there is to say of a flow, all its restarts in this run together; a result of the command line as it is."""

    kind: ClassVar[str] = "flow"
    flow: str
    state: str
    batch: int
    """The last one that is finished, -1 for none."""
    rows: int
    """Read from its sources."""
    lag_records: int
    lag_seconds: float
    """How long ago the oldest record that is not read yet was first seen waiting."""
    rows_per_second: float
    """Of the last batch that read any: one that only closes windows says nothing of the speed."""
    batch_ms: int
    longest_part: str
    """What took most of the last batch."""
    restarts: int
    error: str
    unmet: dict[str, int] = field(default_factory=dict)
    """Rows that did not meet an expectation, by view and expectation."""


class Progress:
    """Adds up what the batches of one flow report."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._seen: deque[tuple[int, int]] = deque(maxlen=1000)
        self.batch, self.rows, self.batch_ms, self.rows_per_second = -1, 0, 0, 0.0
        self.lag_records, self.longest_part = 0, ""
        self._end = 0
        self.unmet: dict[str, int] = {}

    def take(self, report: Mapping[str, Any]) -> None:
        """One report, as Spark's JSON has it; also from the thread that Spark calls back on."""
        with self._guard:
            self._take(report)

    def _take(self, report: Mapping[str, Any]) -> None:
        latest = sum(_total(source.get("latestOffset")) for source in report["sources"])
        self._end = sum(_total(source.get("endOffset")) for source in report["sources"])
        self.lag_records = max(0, latest - self._end)
        if not self._seen or self._seen[-1][1] < latest:
            self._seen.append((self._clock.monotonic_ms(), latest))
        durations = dict(report.get("durationMs", {}))
        if "addBatch" not in durations:
            return  # nothing was there to do
        self.batch = int(report["batchId"])
        if rows := int(report["numInputRows"]):
            self.rows += rows
            self.rows_per_second = float(report.get("processedRowsPerSecond") or 0.0)
        self.batch_ms = int(durations.pop("triggerExecution", 0))
        self.longest_part = max(durations, key=lambda name: durations[name], default="")
        for view, counts in report.get("observedMetrics", {}).items():
            for name, count in counts.items():
                self.unmet[f"{view}.{name}"] = self.unmet.get(f"{view}.{name}", 0) + int(count)

    def lag_seconds(self) -> float:
        with self._guard:
            while len(self._seen) > 1 and self._seen[0][1] <= self._end:
                self._seen.popleft()
            if self.lag_records == 0 or not self._seen:
                return 0.0
            return (self._clock.monotonic_ms() - self._seen[0][0]) / 1000


def _total(position: Any) -> int:
    """The sum of a position's offsets; positions of other formats than ours count nothing."""
    import json

    if isinstance(position, str):
        try:
            position = json.loads(position)
        except ValueError:
            return 0
    if not isinstance(position, dict):
        return 0
    return sum(
        offset
        for topic, by_partition in position.items()
        if isinstance(by_partition, dict) and not topic.startswith("@")
        for offset in by_partition.values()
        if isinstance(offset, int)
    )


class Flow:
    """One flow's query, looked after by `tend`; nothing here waits."""

    def __init__(self, name: str, start: Callable[[], StreamingQuery], restarts_max: int, clock: Clock) -> None:
        self.name = name
        self.progress = Progress(clock)
        self.state = STARTING
        self._start = start
        self._restarts_max = restarts_max
        self._clock = clock
        self._query: StreamingQuery | None = None
        self._due_ms = 0
        self._restarts = 0
        self._in_a_row = 0
        self._batch_at_start = -1
        self._error = ""
        self._ended_ms: int | None = None
        self.ended_runs: set[str] = set()
        """Runs of the query of which Spark has said that it will say no more."""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    def status(self) -> FlowStatus:
        progress = self.progress
        return FlowStatus(
            flow=self.name,
            state=self.state,
            batch=progress.batch,
            rows=progress.rows,
            lag_records=progress.lag_records,
            lag_seconds=progress.lag_seconds(),
            rows_per_second=progress.rows_per_second,
            batch_ms=progress.batch_ms,
            longest_part=progress.longest_part,
            restarts=self._restarts,
            error=self._error,
            unmet=dict(progress.unmet),
        )

    def tend(self) -> None:
        """Starts what is due, and notices what has ended."""
        if self.is_over:
            return
        if self._query is None:
            if self._clock.monotonic_ms() >= self._due_ms:
                self._begin()
            return
        if self._query.isActive:
            if self.progress.batch > self._batch_at_start:
                self._in_a_row = 0
            return
        if not self._is_told():
            return
        error = self._query.exception()
        self._query = None
        if error is None:
            self.state = DONE
        else:
            self._failed(error)

    def _is_told(self) -> bool:
        """Whether the last report of the query that has ended has come; it is not waited for for ever."""
        assert self._query is not None
        now_ms = self._clock.monotonic_ms()
        if self._ended_ms is None:
            self._ended_ms = now_ms
        is_told = str(self._query.runId) in self.ended_runs or now_ms - self._ended_ms >= REPORTS_MS_MAX
        if is_told:
            self._ended_ms = None
        return is_told

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None
        if not self.is_over:
            self.state = STOPPED

    def _begin(self) -> None:
        self._batch_at_start = self.progress.batch
        try:
            self._query = self._start()
            self.state = RUNNING
        except Exception as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._error = sentence(error)
        self._in_a_row = self._in_a_row + 1 if self.progress.batch == self._batch_at_start else 1
        if is_lasting(error) or self._in_a_row > self._restarts_max:
            self.state = FAILED
            return
        self.state = RESTARTING
        self._restarts += 1
        self._due_ms = self._clock.monotonic_ms() + min(BACKOFF_MS_MAX, BACKOFF_MS << (self._in_a_row - 1))
