"""What `penstock pipeline` does. The only room that knows pyspark_penstock, and only while a command runs."""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError
from penstock.cli.output import JsonOutput, Output, TextOutput
from penstock.cli.text import duration_text, time_text

if TYPE_CHECKING:
    from rich.live import Live

    from pyspark_penstock.pipelines.flows import FlowStatus
    from pyspark_penstock.pipelines.storage import RunStatus

OK, FAILED = 0, 1
LINE_SECONDS = 5.0
"""Where nobody watches, a flow gets a line this often, and whenever its state changes."""


def need_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "yaml") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"pipelines need PySpark ({missing[0]} is missing): pip install 'penstock[spark]'")


def run_init(file: Path) -> int:
    from pyspark_penstock.pipelines.templates import write_template

    write_template(file)
    print(f"wrote {file}; next: penstock pipeline check {file}", file=sys.stderr)
    return OK


def run_check(file: Path, master: str, *, is_noisy: bool) -> int:
    need_spark()
    from pyspark_penstock.pipelines.check import check
    from pyspark_penstock.pipelines.parse import read_file
    from pyspark_penstock.pipelines.run import session_for

    spec = read_file(file)
    with _scratch_output(is_noisy) as output, session_for(spec, master, output=output, is_kept=False) as spark:
        _, mistakes = check(spark, spec)
    for mistake in mistakes:
        print(mistake)
    if not mistakes:
        views = len(spec.sources) + len(spec.transforms)
        print(f"{spec.name}: {views} views and {len(spec.sinks)} flows are in order")
    return FAILED if mistakes else OK


@contextmanager
def _scratch_output(is_noisy: bool) -> Iterator[Path | None]:
    """A check leaves nothing behind, not even Spark's noise."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="penstock-check-") as folder:
        yield None if is_noisy else Path(folder, "spark.log")


def run_run(file: Path, master: str, *, is_noisy: bool, as_json: bool) -> int:
    need_spark()
    from pyspark_penstock.pipelines.parse import read_file
    from pyspark_penstock.pipelines.run import MistakesError, is_failure, run

    def begun(ui: str) -> None:
        stopping.arm()
        display.begun(ui)

    spec = read_file(file)
    display = JsonDisplay() if as_json else TextDisplay()
    with StopSignals() as stopping, display:
        stopping.interrupt()
        try:
            statuses = run(
                spec,
                master,
                begun=begun,
                watch=display.watch,
                show=display.show,
                should_stop=stopping,
                is_noisy=is_noisy,
            )
        except MistakesError as error:
            for mistake in error.mistakes:
                print(f"penstock: {mistake}", file=sys.stderr)
            return FAILED
    display.summary(statuses)
    return FAILED if is_failure(statuses) else OK


def run_status(file: Path, output: Output) -> int:
    need_spark()
    from pyspark_penstock.pipelines.parse import read_file
    from pyspark_penstock.pipelines.storage import holder_of, read_status

    spec = read_file(file)
    status = read_status(spec.storage)
    if status is None:
        holder = holder_of(spec.storage)
        output.say(f"{spec.name} {'has not run yet' if holder is None else f'starts as process {holder}'}")
        return OK
    output.say(f"{spec.name} {_run_text(status)}; as of {time_text(status.updated_ms)}")
    output.table("", status.flows)
    for flow in status.flows:
        if flow.error:
            output.say(f"{flow.flow}: {flow.error}")
    return OK


def _run_text(status: RunStatus) -> str:
    if status.is_running:
        return f"runs as process {status.process_id}, {status.spark_ui}"
    now = "does not run" if status.next_process_id is None else f"starts as process {status.next_process_id}"
    return f"{now}, and its last run (process {status.process_id}) was killed" if status.was_killed else now


class StopSignals:
    """Whether somebody asked for an end by SIGINT or SIGTERM: call it. Spark takes SIGINT for itself when it starts: `arm` again then."""

    def __init__(self) -> None:
        self._asked = False
        self._kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def __call__(self) -> bool:
        return self._asked

    def interrupt(self) -> None:
        """Until `arm` they interrupt: nothing runs yet that has to end in order, and Spark's master may be waited for in vain."""
        for number in self._kept:
            signal.signal(number, _interrupt)

    def arm(self) -> None:
        for number in self._kept:
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: Any) -> None:
        self._asked = True

    def __enter__(self) -> StopSignals:
        self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._kept.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


# ---- what a run shows


class JsonDisplay:
    """Every change of a flow as an object on a line of stdout."""

    def __init__(self) -> None:
        self._output = JsonOutput()
        self._last: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> JsonDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begun(self, ui: str) -> None:
        pass

    def watch(self, statuses: Sequence[FlowStatus]) -> None:
        for row in statuses:
            if self._last.get(row.flow) != (row.state, row.batch):
                self._last[row.flow] = row.state, row.batch
                self._output.emit(row)
        sys.stdout.flush()

    def show(self, flow: str, batch: int, rows: Any) -> None:
        for row in rows.toJSON().collect():
            print(row)

    def summary(self, statuses: Sequence[FlowStatus]) -> None:
        pass


class TextDisplay:
    """Lines for people on stderr, the console sink's rows on stdout; where somebody watches, one live line a flow."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._is_live = sys.stderr.isatty()
        self._said: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> TextDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begun(self, ui: str) -> None:
        print(f"Spark's UI: {ui}" if ui else "Spark runs without a UI", file=sys.stderr)

    def watch(self, statuses: Sequence[FlowStatus]) -> None:
        if self._is_live:
            self._draw(statuses)
            return
        now = time.monotonic()
        for status in statuses:
            state, at = self._said.get(status.flow, ("", 0.0))
            if state != status.state or now - at >= LINE_SECONDS:
                self._said[status.flow] = status.state, now
                print(line_of(status), file=sys.stderr, flush=True)

    def _draw(self, statuses: Sequence[FlowStatus]) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(Text("\n".join(map(line_of, statuses))))

    def show(self, flow: str, batch: int, rows: Any) -> None:
        from pyspark_penstock.pipelines.sinks import CONSOLE_ROWS

        table = rows.limit(CONSOLE_ROWS + 1).toArrow()
        print(f"{flow}, batch {batch}")
        for row in table.slice(0, CONSOLE_ROWS).to_pylist():
            print("  " + ", ".join(f"{name}={value!r}" for name, value in row.items()))
        if table.num_rows > CONSOLE_ROWS:
            print(f"  and more; {CONSOLE_ROWS} are shown")
        sys.stdout.flush()

    def summary(self, statuses: Sequence[FlowStatus]) -> None:
        TextOutput(sys.stderr).table("", statuses)
        for status in statuses:
            for name, count in status.unmet.items():
                if count:
                    print(f"{status.flow}: {count:,} rows did not meet {name}", file=sys.stderr)
            if status.error:
                print(f"{status.flow}: {status.error}", file=sys.stderr)


def line_of(status: FlowStatus) -> str:
    """One flow on one line."""
    parts = [f"{status.flow}: {status.state}", f"batch {status.batch}" if status.batch >= 0 else "no batch yet"]
    parts += [f"{status.rows:,} rows", f"{status.rows_per_second:,.0f} rows/s"]
    parts.append(f"lag {status.lag_records:,} records, {duration_text(status.lag_seconds)}")
    if status.batch_ms:
        parts.append(f"last batch {status.batch_ms} ms ({status.longest_part})")
    if status.restarts:
        parts.append(f"{status.restarts} restarts: {status.error}")
    elif status.error:
        parts.append(status.error)
    return ", ".join(parts)
