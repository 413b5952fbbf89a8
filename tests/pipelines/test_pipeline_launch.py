"""The commands of pipelines and the JVM that they launch: one that does not start, that is broken off, that ends in the middle."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from penstock.cli.main import main
from pyspark_penstock.pipelines.storage import read_status
from tests.pipelines.test_pipelines import COMMAND, SECONDS, order, pipeline
from tests.pipelines.topics import new_topic, send
from tests.support.processes import Child, free_port, wait_until


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_spark_is_ended_by_somebody_says_so(
    penstock_server: str, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM goes to the whole group where `timeout` or a service manager sends it, SIGKILL to the JVM where memory is short."""
    topic, storage = new_topic(penstock_server), tmp_path / "p.storage"
    sinks = {"table": {"from": "orders", "parquet": "table"}}
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(pipeline(penstock_server, topic, trigger="200 milliseconds", sinks=sinks)))
    send(penstock_server, topic, [order(7)])
    with Child([*COMMAND, "run", str(file), "--master", "local[1]"], output=tmp_path / "run.log") as running:

        def is_through() -> bool:
            running.check_alive()
            told = read_status(storage)
            return told is not None and any(flow.rows == 1 for flow in told.flows)

        wait_until(is_through, seconds=SECONDS, what="the row is through")
        (java,) = children(running.pid)
        os.kill(java, number)
        wait_until(lambda: not running.is_alive(), seconds=60, what="the end")
        assert running.stop() == 1
    said = running.output.read_text()
    assert "Traceback" not in said
    assert (
        "penstock: Spark ended in the middle of the run; the next goes on from the checkpoints (its output is" in said
    )


def test_a_run_that_is_interrupted_while_its_jvm_is_launched_leaves_none(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(pipeline("h:1", "t", sinks={"shown": {"from": "orders", "console": True}})))
    with Child([*COMMAND, "run", str(file)], output=tmp_path / "run.log") as launching:
        (java,) = wait_until(lambda: children(launching.pid) or None, seconds=SECONDS, what="a JVM is launched")
        os.kill(launching.pid, signal.SIGINT)
        wait_until(lambda: not launching.is_alive(), seconds=SECONDS, what="the end")
        assert not Path(f"/proc/{java}").exists()
        assert launching.stop() == 1
    assert launching.output.read_text() == "penstock: interrupted\n"


@pytest.mark.parametrize(
    ("launcher", "signals"), [("exec sleep 1000", [signal.SIGTERM]), ("exit 0", [signal.SIGTERM, signal.SIGINT])]
)
def test_a_launch_that_does_not_come_to_an_end_can_be_interrupted(
    tmp_path: Path, launcher: str, signals: list[signal.Signals]
) -> None:
    """Packages may be fetched from a mirror that does not answer; PySpark waits for ever for one that ended and told no port."""
    home, file = tmp_path / "spark", tmp_path / "p.yaml"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "spark-submit").write_text(f"#!/bin/sh\ntouch {tmp_path}/launched\n{launcher}\n")
    (home / "bin" / "spark-submit").chmod(0o755)
    file.write_text(json.dumps(pipeline("h:1", "t", sinks={"shown": {"from": "orders", "console": True}})))
    environment = {**os.environ, "SPARK_HOME": str(home)}
    with Child([*COMMAND, "run", str(file)], output=tmp_path / "run.log", env=environment) as launching:
        wait_until((tmp_path / "launched").exists, seconds=SECONDS, what="the launch")
        launched = children(launching.pid)
        for number in signals:
            os.kill(launching.pid, number)
        wait_until(lambda: not launching.is_alive(), seconds=SECONDS, what="the end")
        assert not any(Path(f"/proc/{child}").exists() for child in launched)
        assert launching.stop() == 1
    assert launching.output.read_text() == "penstock: interrupted\n"


def test_a_missing_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(pipeline("h:1", "t", sinks={"shown": {"from": "orders", "console": True}})))
    monkeypatch.setattr("pyspark_penstock.pipelines.run.end_java", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    for command in ("check", "run"):
        assert main(["pipeline", command, str(file)]) == 1
        said = capsys.readouterr().err
        assert said.startswith("penstock: Spark does not start: Spark needs Java 17 or later, and there is none")
        assert "spark.log" not in said


def test_a_master_that_gives_no_answer_is_not_waited_for_once_somebody_asks_for_an_end(tmp_path: Path) -> None:
    """Spark would try for a minute."""
    file, printed = tmp_path / "p.yaml", tmp_path / "p.storage" / "spark.log"
    file.write_text(json.dumps(pipeline("h:1", "t", sinks={"shown": {"from": "orders", "console": True}})))
    for number in (signal.SIGINT, signal.SIGTERM):
        command = [*COMMAND, "run", str(file), "--master", f"spark://127.0.0.1:{free_port()}"]
        with Child(command, output=tmp_path / "run.log") as waiting:

            def waits(waiting: Child = waiting) -> bool:
                waiting.check_alive()
                return printed.exists() and "Setting Spark log level" in printed.read_text()

            wait_until(waits, seconds=SECONDS, what="Spark asks the master")
            assert waiting.stop(number) == 1
        assert waiting.output.read_text() == "penstock: interrupted\n"
        waiting.output.unlink()
        printed.unlink()


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("26/01/01 ERROR B: Application has been killed. Reason: All masters are unresponsive! Giving up.\n", "All masters are unresponsive! Giving up"),
        ('Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or so\n\tat x\n', "Master must be yarn or so"),
        ("WARNING: it is cold\n", "the gateway is gone"),
    ],
)  # fmt: skip
def test_a_spark_that_does_not_start_says_why_and_where_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], printed: str, reason: str
) -> None:
    def refuse(*_: object, jvm_output: Path, **__: object) -> None:
        with jvm_output.open("a") as file:
            file.write(printed)
        raise RuntimeError("the gateway is gone")

    monkeypatch.setattr("pyspark_penstock.pipelines.run.make_session", refuse)
    monkeypatch.setattr("pyspark_penstock.pipelines.run.end_java", lambda: None)
    file, kept = tmp_path / "p.yaml", tmp_path / "p.storage" / "spark.log"
    file.write_text(json.dumps(pipeline("h:1", "t", sinks={"shown": {"from": "orders", "console": True}})))
    assert main(["pipeline", "check", str(file)]) == 1
    assert capsys.readouterr().err == f"penstock: Spark does not start: {reason} (--noisy shows its output)\n"
    kept.parent.mkdir()
    kept.write_text('Exception in thread "main" X: of an earlier run\n')
    assert main(["pipeline", "run", str(file)]) == 1
    assert capsys.readouterr().err == f"penstock: Spark does not start: {reason} (its output is in {kept})\n"
