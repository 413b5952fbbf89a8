"""A pipeline's file says what it means, or what is wrong with it and where; a storage is one run's at a time."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.main import main
from pyspark_penstock.pipelines.flows import DONE, FAILED, KILLED, RESTARTING, RUNNING, STARTING, STOPPED, FlowStatus
from pyspark_penstock.pipelines.model import Expectation, Payload, PipelineError, Watermark
from pyspark_penstock.pipelines.parse import read_content, read_file
from pyspark_penstock.pipelines.storage import holding, read_status, write_progress
from pyspark_penstock.pipelines.templates import write_template

SOURCE = {"topic": "t", "servers": "b:1", "schema": "id STRING"}
SINK = {"from": "orders", "console": True}
PYTHON = "from pyspark_penstock.pipelines import Pipeline\npipeline = Pipeline('p')\n"


@pytest.mark.parametrize("name", ["orders.yaml", "orders.py"])
def test_what_init_writes_is_a_whole_pipeline_and_the_same_in_both_languages(tmp_path: Path, name: str) -> None:
    write_template(tmp_path / name)
    spec = read_file(tmp_path / name)
    assert (spec.name, spec.storage, spec.is_available_now) == ("orders", tmp_path / "orders.storage", True)
    (orders,) = spec.sources
    assert orders.payload == Payload(format="json", schema="id STRING, country STRING, amount DOUBLE, at TIMESTAMP")
    assert orders.options["kafka.isolation.level"] == "read_committed"
    assert orders.watermark == Watermark(column="at", delay="10 minutes")
    assert orders.expectations == (
        Expectation(name="has_a_country", condition="country IS NOT NULL"),
        Expectation(name="positive", condition="amount > 0", action="drop"),
    )
    assert [(sink.name, sink.view, sink.kind) for sink in spec.sinks] == [
        ("orders_bad", "orders_bad", "topic"),
        ("totals_topic", "totals", "topic"),
        ("orders_table", "orders", "parquet"),
    ]
    assert spec.sinks[1].options["delivery"] == "exactly_once"
    with pytest.raises(PipelineError, match="is there already; it is left as it is"):
        write_template(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sorces": {}}, "p.yaml: there is no sorces: is sources meant?"),
        ({"sinks": {}}, "there are no sinks"),
        ({"sources": {}}, "there are no sources"),
        ({"sources": {"orders": {**SOURCE, "servers": ""}}}, "sources, orders: servers is missing"),
        ({"sources": {"orders": {"servers": "b:1"}}}, "sources, orders: one of topic, pattern and files says what is read"),
        ({"sources": {"orders": {**SOURCE, "watermark": {"column": "at"}}}}, "sources, orders, watermark: delay is missing"),
        ({"sources": {"orders": {**SOURCE, "expect": {"a": {"that": "b", "else": "ignore"}}}}}, "expect, a: else is 'ignore'; it must be one of warn, drop, fail"),
        ({"sources": {"or-ders": SOURCE}}, "'or-ders' is no name for a view"),
        ({"sources": {"orders": {"topic": "t", "servers": "b:1", "payload": "avro"}}}, "avro needs schema, a file, or registry"),
        ({"sources": {"orders": {"topic": "t", "servers": "b:1", "dead_letters": {"topic": "d"}}}}, "dead_letters are for records that are decoded"),
        ({"transforms": {"x": {"sql": "SELECT 1", "python": "a.py:b"}}}, "transforms, x: one of sql and python"),
        ({"transforms": {"x": {"python": "nothing.py:b"}}}, "nothing.py: No such file"),
        ({"transforms": {"x": {"python": "nothing"}}}, "it must be like transforms.py:function"),
        ({"transforms": {"orders": {"sql": "SELECT 1"}}}, "two views are called orders"),
        ({"transforms": {"Orders": {"sql": "SELECT 1"}}}, "two views are called Orders"),
        ({"sinks": {"a": {"from": "orders", "parquet": "t"}, "b": {"from": "orders", "parquet": "./t/"}}}, "sinks, b: a writes to .*/t too, and"),
        ({"sinks": {"s": {"from": "oders", "console": True}}}, r"sinks, s: there is no view oders \(there are .*orders"),
        ({"sinks": {"s": {"from": "orders"}}}, "sinks, s: one of topic, parquet, delta, iceberg, console says where"),
        ({"sinks": {"s": {"from": "orders", "topic": "t", "servers": "b:1", "mode": "update"}}}, "sinks, s: mode is 'update'; it must be one of append, complete"),
        ({"sinks": {"s": {"from": "orders", "parquet": "p", "mode": "complete"}}}, "sinks, s: mode is 'complete'; it must be one of append$"),
        ({"sinks": {"a b": SINK}}, "a sink's name 'a b' must be made of letters"),
        ({"trigger": ["x"]}, "trigger must be a text, not a list"),
        ({"sources": {"orders_bad": SOURCE, "orders": SOURCE}}, "two views are called orders_bad: orders brings one of its own"),
        ({"restarts": "many"}, "restarts must be a whole number"),
        ({"sinks": []}, None),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_sentence_with_its_place(
    tmp_path: Path, change: dict[str, Any], sentence: str | None
) -> None:
    content = {"sources": {"orders": SOURCE}, "sinks": {"s": SINK}, **change}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(PipelineError, match=sentence or "there are no sinks") as caught:
        read_file(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("p.yaml", "a: [", "p.yaml, line 1: no YAML: "),
        ("p.yaml", "sinks: {a: {}}\nsources:\n  a: {}\n  b: [c: {}]\n  a: {}", "p.yaml, line 5: a is there twice"),
        ("p.yaml", "- a", "p.yaml must be a mapping of names to values, not a list"),
        ("p.py", "x = 1\ny = z", "p.py, line 2: NameError: name 'z' is not defined"),
        ("p.py", "x = (", "p.py, line 1: SyntaxError: "),
        ("p.yaml", "sinks:\n  a: 2026-02-30", "p.yaml, line 2: no YAML: no value can be made of what is there: day "),
        (
            "p.yaml",
            f"restarts: {'9' * 5000}",
            "p.yaml, line 1: no YAML: no value can be made of what is there: Exceeds ",
        ),
        ("p.yaml", "a: !!timestamp soon", "p.yaml, line 1: no YAML: no value can be made of what is there: "),
        ("p.yaml", "[" * 5000, "p.yaml: no YAML: too deep"),
        ("p.py", "import sys\nsys.exit()", "p.py, line 2: SystemExit: "),
        ("p.py", 'x = "\0"', "p.py: SyntaxError: source code string cannot contain null bytes"),
        (
            "p.py",
            f"{PYTHON}pipeline.transform()(dict)",
            "transforms, dict: <class 'dict'> does not say what its parameters",
        ),
        ("p.py", f"{PYTHON}other = Pipeline('other')", "p.py: makes 2 pipelines at its top level"),
        ("p.py", f"{PYTHON}same = pipeline", "p.py: there are no sources"),
        ("p.py", "x = 1", "p.py: makes 0 pipelines at its top level"),
        ("p.toml", "", "a pipeline's file ends in .yaml, .yml or .py"),
        ("", "", "there is no such file"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    tmp_path: Path, name: str, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / (name or "missing.yaml")
    if name:
        path.write_text(text)
    for command in ("check", "run", "status"):
        assert main(["pipeline", command, str(path)]) == 1
        assert sentence in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ([name] if name else [])


def test_what_init_writes_is_in_order_whatever_the_file_is_called(tmp_path: Path) -> None:
    for name, called in (("my orders (2).yaml", "my-orders-2-"), ("my.orders.py", "my-orders")):
        write_template(tmp_path / name)
        spec = read_file(tmp_path / name)
        assert (spec.name, spec.storage) == (called, tmp_path / f"{called}.storage")


def test_paths_are_relative_to_the_file_and_addresses_are_not(tmp_path: Path) -> None:
    """Checkpoints too: a run that is started from elsewhere goes on with the same ones."""
    content = {"sources": {"orders": SOURCE}, "sinks": {"s": {"from": "orders", "parquet": "table"}}}
    spec = read_content({**content, "storage": "kept", "checkpoints": "positions"}, tmp_path / "p.yaml")
    assert spec.checkpoints == f"{tmp_path}/positions"
    assert (spec.storage, spec.sinks[0].target) == (tmp_path / "kept", f"{tmp_path}/table")
    content["sinks"]["s"]["parquet"] = "s3a://lake/table"
    spec = read_content({**content, "checkpoints": "dbfs:/positions"}, tmp_path / "p.yaml")
    assert (spec.checkpoints, spec.sinks[0].target) == ("dbfs:/positions", "s3a://lake/table")


def test_a_transform_takes_the_views_above_it_by_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def score(orders, clicks): ...\n")
    transforms = {"scored": {"python": "f.py:score"}}
    sources = {"orders": SOURCE, "clicks": SOURCE}
    content = {"sources": sources, "transforms": transforms, "sinks": {"s": {**SINK, "from": "scored"}}}
    spec = read_content(content, tmp_path / "p.yaml")
    assert spec.transforms[0].inputs == ("orders", "clicks")
    del sources["clicks"]
    with pytest.raises(PipelineError, match="transforms, scored: there is no view clicks above it"):
        read_content(content, tmp_path / "p.yaml")


def status(flow: str, state: str = DONE) -> FlowStatus:
    return FlowStatus(
        flow=flow, state=state, batch=3, rows=7, lag_records=0, lag_seconds=0.0, rows_per_second=1.5, batch_ms=20,
        longest_part="addBatch", restarts=1, error="", unmet={"orders.positive": 2},
    )  # fmt: skip


@contextmanager
def other_run(storage: Path, *states: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the storage, and has written a flow in each of these states; it is killed at the end."""
    flows = [dataclasses.asdict(status(f"f{number}", state)) for number, state in enumerate(states)]
    script = f"""
import sys
from pathlib import Path
from pyspark_penstock.pipelines.flows import FlowStatus
from pyspark_penstock.pipelines.storage import holding, write_progress
with holding(Path({str(storage)!r})):
    if flows := {flows!r}:
        write_progress(Path({str(storage)!r}), "p", "http://ui", 1_700_000_000_000, [FlowStatus(**flow) for flow in flows])
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        try:
            yield other
        finally:
            other.kill()
            other.wait()


def test_a_storage_is_held_by_one_process_and_read_by_all(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    assert read_status(storage) is None
    with other_run(storage, RUNNING) as other:
        found = read_status(storage)
        assert found is not None
        assert (found.is_running, found.process_id, found.flows) == (True, other.pid, (status("f0", RUNNING),))
        with pytest.raises(PipelineError, match=rf"is in use by another run of this pipeline \(process {other.pid}\)"), holding(storage):  # fmt: skip
            pass
    with holding(storage):
        pass
    found = read_status(storage)
    assert found is not None
    assert not found.is_running
    with (
        other_run(storage) as starting,  # what stands there tells of the one before it
        pytest.raises(PipelineError, match=rf"another run of this pipeline \(process {starting.pid}\)"),
        holding(storage),
    ):
        pass


def test_status_tells_of_the_last_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    write_template(path)
    assert main(["pipeline", "status", str(path)]) == 0
    assert capsys.readouterr().out == "p has not run yet\n"
    with holding(tmp_path / "p.storage"):
        write_progress(tmp_path / "p.storage", "p", "", 1_700_000_000_000, [status("a")])
    assert main(["pipeline", "status", str(path)]) == 0
    out = capsys.readouterr().out
    assert "p does not run; as of 2023-11-14T22:13:20.000Z" in out
    assert "addBatch" in out
    assert main(["pipeline", "status", str(path), "--json"]) == 0
    assert '"unmet": {"orders.positive": 2}' in capsys.readouterr().out
    (tmp_path / "p.storage" / "progress.json").write_text('{"process_id": 1}')
    assert main(["pipeline", "status", str(path)]) == 1
    assert "progress.json is not what a run writes" in capsys.readouterr().err


def test_status_does_not_take_the_word_of_a_run_that_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*options: str) -> str:
        assert main(["pipeline", "status", str(path), *options]) == 0
        return capsys.readouterr().out

    path, storage = tmp_path / "p.yaml", tmp_path / "p.storage"
    write_template(path)
    with other_run(storage) as first:
        assert told() == f"p starts as process {first.pid}\n"
    states = [STARTING, RUNNING, RESTARTING, DONE, FAILED, STOPPED]
    with other_run(storage, *states) as running:
        assert f"p runs as process {running.pid}, http://ui; as of" in told()
        assert [json.loads(line)["state"] for line in told("--json").splitlines()] == states
    after = [KILLED, KILLED, KILLED, DONE, FAILED, STOPPED]
    assert f"p does not run, and its last run (process {running.pid}) was killed; as of" in told()
    assert [json.loads(line)["state"] for line in told("--json").splitlines()] == after
    with other_run(storage) as again:  # it has not written anything yet
        assert f"p starts as process {again.pid}, and its last run (process {running.pid}) was killed; as of" in told()
        assert [json.loads(line)["state"] for line in told("--json").splitlines()] == after
