"""Pipelines on Spark: checked without running, run to their end, going on where they stopped, looked after when they fail."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.base.ids import TopicPartition
from penstock.cli.main import main
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.errors import UnreachableError
from penstock.client.groups import committed_offsets, set_offsets
from pyspark_penstock.pipelines.check import check
from pyspark_penstock.pipelines.flows import DONE, FAILED, FlowStatus
from pyspark_penstock.pipelines.parse import read_content
from pyspark_penstock.pipelines.run import Run
from pyspark_penstock.pipelines.storage import read_status
from tests.pipelines import test_payloads as payloads
from tests.pipelines.schema_server import SchemaServer, prefixed
from tests.pipelines.topics import committed, load, new_topic, send
from tests.support.processes import wait_until

SCHEMA = "id BIGINT, country STRING, amount DOUBLE, at TIMESTAMP"
SECONDS = 240
COMMAND = [sys.executable, "-m", "penstock.cli", "pipeline"]


def order(number: int, **changed: Any) -> bytes:
    content = {
        "id": number,
        "country": ("se", "pt")[number % 2],
        "amount": 10.0,
        "at": f"2026-01-01T0{number % 8}:00:00Z",
    }
    return json.dumps({**content, **changed}).encode()


def pipeline(server: str, topic: str, **parts: Any) -> dict[str, Any]:
    source = {"topic": topic, "schema": SCHEMA}
    return {"name": "p", "servers": server, "sources": {"orders": source}, **parts}


def run(spark: SparkSession, content: dict[str, Any], folder: Path) -> dict[str, FlowStatus]:
    spec = read_content(content, folder / "p.yaml")
    spec.storage.mkdir(exist_ok=True)
    one = Run(spark, spec, lambda *_: None)
    one.prepare()
    return {status.flow: status for status in one.go(lambda _statuses: None, lambda: False)}


def test_check_finds_every_mistake_and_runs_nothing(
    spark: SparkSession, penstock_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(penstock_server)
    (tmp_path / "f.py").write_text("def wrong(orders):\n    return orders.nothing\ndef ends(orders):\n    exit(0)\n")
    content = pipeline(
        penstock_server,
        topic,
        transforms={
            "unknown_column": {"sql": "SELECT amonut FROM orders"},
            "bad_sql": {"sql": "SELEC 1"},
            "below": {"sql": "SELECT * FROM bad_sql"},
            "python": {"python": "f.py:wrong"},
            "ends": {"python": "f.py:ends"},
            "expected": {"sql": "SELECT id FROM orders", "expect": {"x": "amount > 0"}},
            "counted": {"sql": "SELECT country, count(*) AS n FROM orders GROUP BY country"},
        },
        sinks={
            "no_topic": {"from": "orders", "topic": "nowhere"},
            "no_watermark": {"from": "counted", "parquet": "out"},
            "no_jar": {"from": "orders", "delta": "out"},
            "no_catalog": {"from": "orders", "iceberg": "db.out"},
            "no_column": {"from": "orders", "parquet": "out-2", "partition_by": ["nothing"]},
            "bad_key": {"from": "orders", "topic": topic, "key": "nothing"},
            "good": {"from": "orders", "topic": topic, "key": "id"},
        },
    )
    content["sources"]["missing"] = {"topic": "nowhere-either"}
    content["sources"]["wrong"] = {"topic": topic, "options": {"maxTriggerDelay": "soon"}}
    content["trigger"] = "10 secnds"
    loggers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    for logger in loggers:
        logger.addHandler(caplog.handler)
    _, mistakes = check(spark, read_content(content, tmp_path / "p.yaml"))
    for logger in loggers:
        logger.removeHandler(caplog.handler)
        assert not logger.disabled
    assert caplog.records == [], "sentences only"
    found = {mistake.place: mistake.reason for mistake in mistakes}
    expected = {
        "trigger": "10 secnds",
        "sources, missing": "has no topic nowhere-either",
        "sources, wrong": "maxTriggerDelay='soon'",
        "transforms, unknown_column": r"`amonut` cannot be resolved\. Did you mean .*`amount`",
        "transforms, bad_sql": "Syntax error at or near 'SELEC'",
        "transforms, python": "nothing",
        "transforms, ends": "the function ended by SystemExit: 0",
        "transforms, expected": "`amount` cannot be resolved",
        "sinks, no_topic": "has no topic nowhere",
        "sinks, no_watermark": "watermark",
        "sinks, no_jar": "Delta Lake is not on Spark's class path: bring its jar",
        "sinks, no_catalog": "Iceberg is not on Spark's class path: bring its jar",
        "sinks, no_column": "partition_by: there is no column nothing",
        "sinks, bad_key": "`nothing` cannot be resolved",
    }
    assert found.keys() == expected.keys()
    for place, reason in expected.items():
        assert re.search(reason, found[place]), f"{place}: {found[place]}"
        assert "\n" not in found[place]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.py"]


def test_the_command_says_each_mistake_on_a_line_and_fails(
    spark: SparkSession,
    penstock_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pyspark_penstock.pipelines.run.session_for", lambda *_, **__: nullcontext(spark))
    file = tmp_path / "p.yaml"
    transforms = {"a": {"sql": "SELECT amonut FROM orders"}, "b": {"sql": "SELECT FROM orders WHERE"}}
    sinks = {"s": {"from": "orders", "topic": "nowhere"}}
    file.write_text(json.dumps(pipeline(penstock_server, "not-here", transforms=transforms, sinks=sinks)))
    assert main(["pipeline", "check", str(file)]) == 1
    found = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert found.keys() == {"transforms, a", "transforms, b", "sources, orders", "sinks, s"}
    assert "`amonut` cannot be resolved" in found["transforms, a"]
    assert found["transforms, b"].startswith("Syntax error at or near")
    assert found["sources, orders"].endswith("has no topic not-here")
    assert found["sinks, s"].endswith("has no topic nowhere")


def test_the_check_of_a_good_file_says_so_and_leaves_no_trace(penstock_server: str, tmp_path: Path) -> None:
    topic, out, bad = (new_topic(penstock_server) for _ in range(3))
    send(penstock_server, topic, [order(0), b"oops", order(1)])
    group, position = f"g-{topic}", {TopicPartition(topic, 0): 1}
    content = pipeline(
        penstock_server,
        topic,
        transforms={"large": {"sql": "SELECT id, country, amount FROM orders WHERE amount >= 10"}},
        sinks={
            "to_topic": {"from": "large", "topic": out, "key": "id"},
            "to_table": {"from": "large", "parquet": "table", "partition_by": ["country"]},
            "shown": {"from": "orders", "console": True},
        },
    )
    content["sources"]["orders"] |= {"dead_letters": {"topic": bad}, "options": {"kafka.group.id": group}}
    (tmp_path / "p.yaml").write_text(json.dumps(content))
    with Cluster(client_config({"bootstrap.servers": penstock_server})) as cluster:
        set_offsets(cluster, group, position)
        checked = subprocess.run(
            [*COMMAND, "check", "p.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert committed_offsets(cluster, group) == position
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "p: 2 views and 4 flows are in order\n", "")
    made = {path.name for path in tmp_path.iterdir()} - {".hypothesis"}  # the tests' own, wherever it is installed
    assert made == {"p.yaml"}, "no storage, no checkpoint, no table"
    for written in (out, bad):
        assert committed(penstock_server, written) == []
    assert len(committed(penstock_server, topic)) == 3


def test_a_cluster_that_cannot_be_reached_is_waited_for_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(_cluster: object, names: object = None) -> None:
        asked.append(names)
        raise UnreachableError("broker h:1 cannot be reached")

    monkeypatch.setattr(Cluster, "metadata", refuse)
    sinks = {"a": {"from": "orders", "topic": "a"}, "b": {"from": "orders", "topic": "b"}}
    _, mistakes = check(spark, read_content(pipeline("h:1", "t", sinks=sinks), tmp_path / "p.yaml"))
    places = ["sources, orders", "sinks, a", "sinks, b"]
    assert [str(mistake) for mistake in mistakes] == [f"{place}: broker h:1 cannot be reached" for place in places]
    assert len(asked) == 1


def test_a_run_writes_every_row_once_and_the_next_goes_on_where_it_stopped(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    topic, totals, bad = (new_topic(penstock_server) for _ in range(3))
    content = pipeline(
        penstock_server,
        topic,
        transforms={"large": {"sql": "SELECT id, country, amount FROM orders WHERE amount >= 10"}},
        sinks={
            "to_topic": {"from": "large", "topic": totals, "key": "id"},
            "to_table": {"from": "large", "parquet": "table", "partition_by": ["country"]},
        },
    )
    content["sources"]["orders"] |= {
        "dead_letters": {"topic": bad},
        "expect": {"known": "country = 'se'", "positive": {"that": "amount > 0", "else": "drop"}},
    }
    send(penstock_server, topic, [order(0), order(1), order(2, amount=-1), b"oops", order(3, amount=5)])
    first = run(spark, content, tmp_path)
    assert {flow: status.state for flow, status in first.items()} == dict.fromkeys(first, DONE)
    assert first["to_topic"].rows == 5
    assert first["to_topic"].unmet == {"orders.known": 2, "orders.positive": 1}
    send(penstock_server, topic, [order(4)])
    second = run(spark, content, tmp_path)
    assert (second["to_topic"].rows, second["to_table"].rows) == (1, 1)
    written = [(row.key, json.loads(row.value or b"")) for row in committed(penstock_server, totals)]
    assert written == [
        (b"%d" % number, {"id": number, "country": ("se", "pt")[number % 2], "amount": 10.0}) for number in (0, 1, 4)
    ]
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect()) == [0, 1, 4]
    (letter,) = committed(penstock_server, bad)
    headers = {name: value for name, value in letter.headers if value is not None}
    assert letter.value == b"oops"
    assert (headers["penstock.topic"], headers["penstock.offset"]) == (topic.encode(), b"3")
    assert headers["penstock.reason"].startswith(b"not JSON, or not like id BIGINT")
    spec = read_content(content, tmp_path / "p.yaml")
    assert check(spark, spec)[1] == []
    shutil.rmtree(spec.checkpoints)
    (mistake,) = check(spark, spec)[1]
    assert mistake.place == "sinks, to_table"
    assert (
        f"{tmp_path}/table holds the batches up to 1 of other checkpoints than {spec.checkpoints}/to_table"
        in mistake.reason
    )


def test_an_expectation_that_fails_ends_its_flow_with_its_name(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    topic = new_topic(penstock_server)
    content = pipeline(penstock_server, topic, sinks={"s": {"from": "orders", "parquet": "table"}})
    content["sources"]["orders"]["expect"] = {"positive": {"that": "amount > 0", "else": "fail"}}
    send(penstock_server, topic, [order(0), order(1, amount=0)])
    status = run(spark, content, tmp_path)["s"]
    assert (status.state, status.restarts) == (FAILED, 0)
    assert status.error == "a row of orders does not meet positive: amount > 0"


def test_avro_and_protobuf_plain_or_by_registry_go_through_with_their_bad_records_aside(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    by_url, by_directory, plain, out, bad = (new_topic(penstock_server) for _ in range(5))
    (tmp_path / "order.avsc").write_text(json.dumps(payloads.SECOND))
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "3.desc").write_bytes(payloads.proto_files().SerializeToString())
    first, second = (payloads.avro(schema, {"id": 1, "country": "se"}) for schema in (payloads.FIRST, payloads.SECOND))
    order_2, order_3 = (payloads.order(id=number, note="pt") for number in (2, 3))
    send(penstock_server, by_url, [prefixed(7, first), b"junk", prefixed(8, first), prefixed(8, second)])
    send(
        penstock_server,
        by_directory,
        [prefixed(3, b"\0" + order_2), prefixed(3, b"\2\2"), prefixed(3, b"\0" + order_3)],
    )
    send(penstock_server, plain, [second, second[:1]])
    topics = {"by_url": by_url, "by_directory": by_directory, "plain": plain}
    aside: dict[str, dict[str, str]] = {
        "by_url": {"topic": bad},
        "by_directory": {"topic": bad},
        "plain": {"parquet": "bad"},
    }
    with SchemaServer() as registry:
        registry.add(f"{by_url}-value", 7, json.dumps(payloads.FIRST))
        registry.add(f"{by_url}-value", 9, json.dumps(payloads.SECOND))
        payload: dict[str, dict[str, str]] = {
            "by_url": {"payload": "avro", "registry": registry.url},
            "by_directory": {"payload": "protobuf", "registry": "schemas", "message": "shop.Order"},
            "plain": {"payload": "avro", "schema": "order.avsc"},
        }
        one = "SELECT id, {} AS country, _topic AS topic, _offset AS at FROM {}"
        selected = (one.format("note" if name == "by_directory" else "country", name) for name in topics)
        content = {
            "name": "p",
            "servers": penstock_server,
            "sources": {
                name: {"topic": topic, "dead_letters": aside[name], **payload[name]} for name, topic in topics.items()
            },
            "transforms": {
                "good": {"sql": "SELECT to_json(struct(*)) AS value FROM (" + " UNION ALL ".join(selected) + ")"}
            },
            "sinks": {"good": {"from": "good", "topic": out}},
        }
        found = run(spark, content, tmp_path)
    assert {status.state for status in found.values()} == {DONE}, found
    good = [json.loads(row.value or b"") for row in committed(penstock_server, out)]
    assert sorted((row["topic"], row["at"], row["id"], row["country"]) for row in good) == sorted(
        [(by_url, 0, 1, "se"), (by_directory, 0, 2, "pt"), (by_directory, 2, 3, "pt"), (plain, 0, 1, "se")]
    )
    letters = [(dict(row.headers), row.value) for row in committed(penstock_server, bad)]
    assert sorted((h["penstock.topic"], h["penstock.offset"], value) for h, value in letters) == sorted(
        [
            (by_url.encode(), b"1", b"junk"),
            (by_url.encode(), b"2", prefixed(8, first)),
            (by_url.encode(), b"3", prefixed(8, second)),
            (by_directory.encode(), b"1", prefixed(3, b"\2\2")),
        ]
    )
    assert all(headers["penstock.reason"] for headers, _ in letters)
    (row,) = spark.read.parquet(str(tmp_path / "bad")).collect()
    assert (row["topic"], row["offset"], bytes(row["value"])) == (plain, 1, second[:1])


def source_processes() -> list[int]:
    """The processes in which the Spark of this process runs the sources of its streams."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        process = int(path.parent.name)
        try:
            if b"python_streaming_source_runner" in path.read_bytes() and is_ours(process):
                found.append(process)
        except OSError:
            continue
    return found


def is_ours(process: int) -> bool:
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        if process == os.getpid():
            return True
    return False


def test_a_flow_whose_source_is_killed_is_started_again_and_loses_nothing(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    topic, copy = new_topic(penstock_server), new_topic(penstock_server)
    content = pipeline(
        penstock_server, topic, trigger="100 milliseconds", sinks={"s": {"from": "orders", "topic": copy}}
    )
    spec = read_content(content, tmp_path / "p.yaml")
    spec.storage.mkdir()
    one = Run(spark, spec, lambda *_: None)
    one.prepare()
    send(penstock_server, topic, [order(number) for number in range(5)])
    killed = False

    def watch(statuses: Any) -> None:
        nonlocal killed
        (status,) = statuses
        if not killed and status.rows == 5:
            for process in source_processes():
                os.kill(process, signal.SIGKILL)
            send(penstock_server, topic, [order(number) for number in range(5, 8)])
            killed = True

    (status,) = one.go(watch, lambda: one.flows[0].status().rows >= 8)
    assert killed
    assert (status.rows, status.restarts) == (8, 1)
    assert sorted(json.loads(row.value or b"")["id"] for row in committed(penstock_server, copy)) == list(range(8))


def test_the_command_runs_refuses_a_second_run_and_stops_when_asked(
    spark: SparkSession, penstock_server: str, tmp_path: Path
) -> None:
    topic = new_topic(penstock_server)
    file = tmp_path / "p.yaml"
    sinks = {"shown": {"from": "orders", "console": True}, "table": {"from": "orders", "parquet": "table"}}
    content = pipeline(penstock_server, topic, trigger="200 milliseconds", sinks=sinks)
    file.write_text(json.dumps(content))  # JSON is YAML too
    send(penstock_server, topic, [order(7)])
    with subprocess.Popen(
        [*COMMAND, "run", str(file), "--master", "local[1]"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:

        def rows() -> int:
            assert running.poll() is None, running.communicate()
            told = read_status(tmp_path / "p.storage")
            return 0 if told is None else min((flow.rows for flow in told.flows), default=0)

        wait_until(lambda: rows() == 1, seconds=SECONDS, what="the row is through")
        second = subprocess.run([*COMMAND, "run", str(file)], capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert f"in use by another run of this pipeline (process {running.pid})" in second.stderr
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, err
    assert "shown, batch 0\n  id=7, country='pt'" in out
    assert "Spark's UI: http://" in err
    assert "table: stopped" in err
    assert "Exception" not in err
    assert [row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect()] == [7]
    assert load(spark, penstock_server, subscribe=topic).count() == 1
