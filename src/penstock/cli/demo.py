"""`penstock demo`: the whole at work. A broker, a generator, a pipeline, the same question again, a proof, a picture."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from penstock.base.errors import PenstockError
from penstock.cli import kernels_notice, png
from penstock.cli.children import serve_command
from penstock.cli.cluster import open_cluster
from penstock.cli.demo_generator import BAD, CLICKS, END, ORDERS, START, TOTALS, Generator, make_topics
from penstock.cli.log_demo import demo_directory
from penstock.cli.pipeline_run import StopSignals, line_of, need_spark

if TYPE_CHECKING:
    from pyspark_penstock.demo import Findings
    from pyspark_penstock.pipelines.flows import FlowStatus

STOP_SECONDS = 30
SAMPLE_SECONDS = 0.25
LINE_SECONDS = 3.0
OVER_SECONDS = 300.0
"""Nobody waits longer than this for a demo."""

_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class DemoError(PenstockError):
    """The demo did not go as it should; says what is wrong."""


def run(records: int, data: str | None, picture: str, *, keep: bool) -> int:
    need_spark()
    kernels_notice.give()
    console = Console(highlight=False, soft_wrap=True)
    with (
        StopSignals() as stopping,
        demo_directory(data, keep=keep, console=console) as directory,
        _Broker(Path(directory)) as broker,
    ):
        console.print(f"1. a broker serves at {broker.servers}")
        _Play(broker.servers, Path(directory), records, console, stopping).play(Path(picture))
        if keep and not stopping():
            console.print(_invitation(broker.servers, directory))
            while not stopping():
                broker.check()
                time.sleep(0.1)
        if stopping() and not keep:
            raise KeyboardInterrupt
    return 0


def _invitation(servers: str, directory: str) -> str:
    return (
        f"the broker stays up at {servers} until Ctrl-C:\n"
        f"  penstock consume {TOTALS} --committed -b {servers}\n"
        f"  penstock consume {BAD} --json -b {servers}\n"
        f"  penstock topics describe {ORDERS} -b {servers}\n"
        f"  penstock log dump --live {shlex.quote(f'{directory}/log/{ORDERS}-0')}"
    )


class _Broker:
    """A broker in a process of its own; it is gone afterwards, whatever happens here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> _Broker:
        command = serve_command(str(self._directory / "log"), "127.0.0.1:0", _SETTINGS)
        with (self._directory / "broker.log").open("wb") as output:
            # In a session of its own: an interrupt from the keyboard is for this process, which ends the broker.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, start_new_session=True
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().decode()
        if not ready.startswith("ready "):
            self.__exit__()
            raise DemoError(f"the broker does not start: {self._last_words()}")
        self.servers = ready.strip().rpartition("/")[2]
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """DemoError where somebody else has ended it."""
        if self._process.poll() is not None:
            raise DemoError(f"the broker has ended: {self._last_words()}")

    def _last_words(self) -> str:
        said = (self._directory / "broker.log").read_text(errors="replace").strip().rpartition("\n")[2]
        return said or "it said nothing"

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class _Play:
    """One run of the pipeline beside the generator, and what was measured meanwhile."""

    def __init__(self, servers: str, directory: Path, records: int, console: Console, stopping: StopSignals) -> None:
        self._servers = servers
        self._directory = directory
        self._records = records
        self._console = console
        self._stopping = stopping
        self._statuses: tuple[FlowStatus, ...] = ()
        self._samples: list[tuple[float, int, int]] = []
        """(seconds, events written, events read)"""
        self._began = self._said = self._sampled = 0.0
        self._batch_at_end: int | None = None
        self._failure: BaseException | None = None
        self._is_over = False
        self._generator: Generator | None = None
        self._thread = threading.Thread(target=self._generate, name="generator")

    def play(self, picture: Path) -> None:
        from pyspark_penstock.demo import Demo

        with open_cluster(self._servers) as cluster:
            make_topics(cluster)
        self._console.print(f"2. a generator is to write {self._records:,} {ORDERS} and {CLICKS}; Spark starts")
        demo = Demo(self._servers, self._directory / "pipeline")
        try:
            demo.run(begun=self._begun, watch=self._watch, should_stop=self._should_stop, ask=self._ask)
        finally:
            self._is_over = True
            if self._thread.is_alive():
                self._thread.join()
        if self._failure is not None:
            raise self._failure
        if self._stopping():
            raise KeyboardInterrupt
        self._draw(picture)

    def _generate(self) -> None:
        try:
            with open_cluster(self._servers) as cluster:
                generator = self._generator = Generator(cluster, self._records, self._is_read, lambda: self._is_over)
                generator.run()
        except PenstockError as error:
            self._failure = error

    def _is_read(self, events: int) -> bool:
        return bool(self._statuses) and min(status.rows for status in self._statuses) >= events

    def _begun(self, ui: str) -> None:
        self._stopping.arm()
        self._console.print(f"3. the pipeline runs; Spark's UI: {ui}")
        self._began = time.monotonic()
        self._thread.start()

    def _watch(self, statuses: Sequence[FlowStatus]) -> None:
        self._statuses = tuple(statuses)
        now = time.monotonic()
        read = min(status.rows for status in statuses)
        if now - self._sampled >= SAMPLE_SECONDS:
            self._sampled = now
            self._samples.append((now - self._began, self._written, read))
        if now - self._said >= LINE_SECONDS and read:
            self._said = now
            self._console.print(f"   {line_of(statuses[0])}")

    @property
    def _written(self) -> int:
        return 0 if self._generator is None else self._generator.made.events

    def _should_stop(self) -> bool:
        """When everything is read and one more batch has written the windows that it closed."""
        if self._failure is not None or self._stopping() or any(status.state == "failed" for status in self._statuses):
            return True
        if time.monotonic() - self._began > OVER_SECONDS:
            self._failure = DemoError(f"the pipeline did not get through in {OVER_SECONDS:.0f} s")
            return True
        if self._generator is None or self._thread.is_alive() or not self._is_read(self._written):
            return False
        batch = self._statuses[0].batch
        if self._batch_at_end is None:
            self._batch_at_end = batch
        return batch > self._batch_at_end

    def _ask(self, find: Any) -> None:
        if self._failure is not None or self._stopping():
            return
        assert self._generator is not None
        seconds = time.monotonic() - self._began
        made = self._generator.made
        self._console.print(f"4. {made.events:,} events went through in {seconds:.1f} s")
        found: Findings = find(f"{START:%Y-%m-%dT%H:%M:%S}", f"{END:%Y-%m-%dT%H:%M:%S}")
        self._console.print(
            f"5. the same question to the live segments: {found.windows} totals of windows by country, "
            f"{'the same' if found.same_answer else 'NOT the same'} as the pipeline wrote"
        )
        self._prove(made, found)

    def _prove(self, made: Any, found: Findings) -> None:
        proved = {
            "the totals of the topic are those of the log": found.same_answer,
            "as many events are in the log as were committed": found.events == made.events,
            "aborted ones are there and not read": found.aborted == made.aborted > 0,
            "late ones are those that were made late": found.late == made.late,
            "bad ones are those that were made bad": found.bad == made.bad,
            "what is open are the closing events": found.open == made.closing,
            "in = out + late + bad + closing": found.events == found.counted + found.late + found.bad + found.open,
            "the table has every event": found.table_rows == found.events - found.bad,
            "and none twice": found.table_ids == found.table_rows,
        }
        self._console.print(
            f"6. in {found.events:,} = out {found.counted:,} + late {found.late:,} + bad {found.bad:,} + closing {found.open}; "
            f"none twice; {found.aborted:,} aborted ones were not read"
        )
        wrong = [claim for claim, holds in proved.items() if not holds]
        if wrong:
            raise DemoError(f"the proof fails: it is not so that {'; nor that '.join(wrong)} ({made}, {found})")

    def _draw(self, picture: Path) -> None:
        rates = []
        for (before, _, first), (now, _, last) in zip(self._samples, self._samples[4:], strict=False):
            rates.append((now, (last - first) / (now - before)))
        lags = [(now, float(max(0, written - read))) for now, written, read in self._samples]
        curves = [
            png.Curve(title="events/s read", colour=png.BLUE, points=rates),
            png.Curve(title="lag, events", colour=png.ORANGE, points=lags),
        ]
        png.write_curves(picture, "penstock demo: throughput and lag", curves)
        self._console.print(f"7. the picture is {os.path.abspath(picture)}")
