"""Whoever is killed with -9 while a pipeline runs, the topic and the table it writes exactly once hold every row once."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tools.java import ensure_java_home

from tests.pipelines.topics import committed, new_topic, send
from tests.support.processes import Child, wait_until
from tests.support.served_broker import ServedBroker

SECONDS = 300
ROUND_ROWS = 400
VICTIMS = ("driver", "source", "task", "broker")
TURNS, KILLS = 6, 5
"""Thirty kills together, each turn with its own broker and pipeline."""
_MARKS = {"source": b"python_streaming_source_runner", "task": b"pyspark.daemon"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


class PipelineProcess:
    """`penstock pipeline run` in a process of its own, started again whenever it is gone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._starts = 0
        self.child: Child | None = None

    def ensure(self) -> Child:
        if self.child is None or not self.child.is_alive():
            self._starts += 1
            output = self._file.with_name(f"run-{self._starts}.log")
            command = [sys.executable, "-m", "penstock.cli", "pipeline", "run", str(self._file), "--master", "local[2]"]
            self.child = Child(command, output=output, env={**os.environ, "JAVA_HOME": str(ensure_java_home())})
        return self.child

    def rows(self) -> int:
        """Of all flows the least, in the present run."""
        try:
            content = json.loads((self._file.with_suffix(".storage") / "progress.json").read_text())
        except FileNotFoundError:
            return 0
        if self.child is None or content["process_id"] != self.child.pid:
            return 0
        return min((flow["rows"] for flow in content["flows"]), default=0)


def processes_of(leader: int, mark: bytes) -> list[int]:
    """Processes below this one whose command line has the mark."""
    parents, marked = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if mark in (path / "cmdline").read_bytes():
                marked.append(int(path.name))
        except OSError:
            continue

    def is_below(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == leader:
                return True
        return False

    return [process for process in marked if is_below(process)]


@pytest.mark.parametrize("turn", range(TURNS))
def test_every_row_is_written_once_whoever_is_killed(spark: SparkSession, tmp_path: Path, turn: int) -> None:
    chance = random.Random(turn)
    with ServedBroker(tmp_path) as broker:
        server = broker.bootstrap_servers
        broker.port = int(server.rpartition(":")[2])
        topic, copy = new_topic(server, partitions=2), new_topic(server, partitions=2)
        file = tmp_path / "p.yaml"
        sinks = {"copy": {"from": "numbers", "topic": copy}, "table": {"from": "numbers", "parquet": "table"}}
        source = {"topic": topic, "schema": "n BIGINT", "options": {"maxOffsetsPerTrigger": 97}}
        content = {
            "servers": server,
            "trigger": "50 milliseconds",
            "restarts": 100,
            "sources": {"numbers": source},
            "sinks": sinks,
        }
        file.write_text(json.dumps(content))
        pipeline = PipelineProcess(file)
        sent = 0
        for kill in range(turn * KILLS, (turn + 1) * KILLS):
            for partition in (0, 1):
                rows = [b'{"n": %d}' % number for number in range(sent + partition, sent + ROUND_ROWS, 2)]
                send(server, topic, rows, partition=partition)
            sent += ROUND_ROWS
            child = pipeline.ensure()
            before = pipeline.rows()
            wanted = before + chance.randrange(0, ROUND_ROWS // 2)
            wait_until(lambda child=child, wanted=wanted: child.check_alive() or (pipeline.rows() >= wanted and pipeline.rows() > 0), seconds=SECONDS, what="some rows are through")  # type: ignore[misc]  # fmt: skip
            victim = VICTIMS[kill % len(VICTIMS)]
            if victim == "driver":
                child.kill9()
            elif victim == "broker":
                broker.kill9()
                broker.start()
            else:
                for process in processes_of(child.pid, _MARKS[victim]):
                    os.kill(process, signal.SIGKILL)
        child = pipeline.ensure()
        expected = list(range(sent))

        def is_through() -> bool:
            child.check_alive()
            return len(committed(server, copy, is_open=True)) >= sent and table_rows() >= sent

        def table_rows() -> int:
            return spark.read.schema("n BIGINT").parquet(str(tmp_path / "table")).count()

        wait_until(is_through, seconds=SECONDS, what="everything is through")
        assert child.stop() == 0, child.output.read_text()[-3000:]
        assert sorted(json.loads(row.value or b"")["n"] for row in committed(server, copy)) == expected
        table = spark.read.schema("n BIGINT").parquet(str(tmp_path / "table")).collect()
        assert sorted(row["n"] for row in table) == expected
