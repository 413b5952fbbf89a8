"""A standalone cluster from the pip package: two workers read and write, one is killed, every row is there once; pipelines too."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.parquet import read_table  # type: ignore[import-untyped]
from tools.java import ensure_java_home

from tests.pipelines import cluster_driver
from tests.pipelines.topics import committed, new_topic, send
from tests.support.processes import Child, free_port, wait_until

SECONDS = 300
ROWS, FEW_ROWS = 10_000, 600
PIPELINE = """
import os
from pyspark.sql import functions as F
from pyspark_penstock.pipelines import Pipeline

pipeline = Pipeline("p", servers="{servers}", spark={{
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
}})
pipeline.source("orders", topic="{topic}", schema="id BIGINT", dead_letters={{"topic": "{bad}"}})

def half_of(number):
    return number // 2 if number % 2 == 0 else None

@pipeline.transform()
def worked(orders):
    half = F.udf(half_of, "bigint")
    place = F.udf(os.getcwd, "string").asNondeterministic()
    return orders.select("id", half("id").alias("half"), place().alias("place"))

pipeline.sink("to_topic", view="worked", topic="{copy}", key="id")
pipeline.sink("to_table", view="worked", parquet="table")
"""
"""An executor works in a directory of its own, below its worker's."""


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(ensure_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }


def spark_class(folder: Path, name: str, *arguments: str) -> Child:
    program = Path(sys.executable).with_name("spark-class")
    return Child([program, *arguments], output=folder / f"{name}.log", env=environment())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[Child]]]:
    """The master's address, and its two workers."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    common = ("--host", "127.0.0.1", "--webui-port", "0")
    master = spark_class(tmp_path, "master", "org.apache.spark.deploy.master.Master", *common, "--port", str(port))
    with master:
        wait_until(lambda: "I have been elected leader" in said(master), seconds=SECONDS, what="the master leads")
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        workers = [
            spark_class(tmp_path, f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *common, *work, address)
            for number in (1, 2)
        ]
        with workers[0], workers[1]:
            for worker in workers:
                wait_until(
                    lambda worker=worker: "Successfully registered with master" in said(worker),  # type: ignore[misc]
                    seconds=SECONDS,
                    what="the worker is registered",
                )
            yield address, workers


def said(child: Child) -> str:
    child.check_alive()
    return child.output.read_text(errors="replace")


def fill(server: str, topic: str, rows: int) -> None:
    for partition in (0, 1):
        send(server, topic, [b"%05d" % n for n in range(partition, rows, 2)], partition=partition)


def start_driver(folder: Path, master: str, server: str, topic: str, copy: str) -> Child:
    arguments = [master, server, topic, copy, str(folder / "checkpoint")]
    command = [sys.executable, str(Path(cluster_driver.__file__)), *arguments]
    return Child(command, output=folder / "driver.log", env=environment())


def wait_for_end(driver: Child) -> None:
    def is_over() -> bool:
        return driver.output.read_text().endswith("done\n") or not driver.is_alive()

    wait_until(is_over, seconds=SECONDS, what="the end")
    assert driver.output.read_text().endswith("done\n"), driver.output.read_text()[-3000:]


def test_an_executor_in_a_process_of_its_own_reads_and_writes(penstock_server: str, tmp_path: Path) -> None:
    topic, copy = new_topic(penstock_server, partitions=2), new_topic(penstock_server, partitions=2)
    fill(penstock_server, topic, FEW_ROWS)
    with start_driver(tmp_path, "local-cluster[1,2,600]", penstock_server, topic, copy) as driver:
        wait_for_end(driver)
        assert f"count {FEW_ROWS}\n" in driver.output.read_text()
    found = sorted(row.value or b"" for row in committed(penstock_server, copy))
    assert found == [b"%05d" % number for number in range(FEW_ROWS)]


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_writes_every_row_once(
    cluster: tuple[str, list[Child]], penstock_server: str, tmp_path: Path
) -> None:
    address, workers = cluster
    topic, copy = new_topic(penstock_server, partitions=2), new_topic(penstock_server, partitions=2)
    fill(penstock_server, topic, ROWS)
    with start_driver(tmp_path, address, penstock_server, topic, copy) as driver:

        def batch() -> int:
            return max(map(int, re.findall(r"^batch (\d+)$", said(driver), re.MULTILINE)), default=-1)

        wait_until(lambda: batch() >= 3, seconds=SECONDS, what="some batches are through")
        assert f"count {ROWS}\n" in said(driver)
        assert batch() < ROWS // cluster_driver.BATCH_RECORDS - 2, "the worker would die too late to matter"
        workers[0].kill9()
        wait_until(
            lambda: driver.output.read_text().endswith("done\n") or not driver.is_alive(),
            seconds=SECONDS,
            what="the end",
        )
        assert driver.output.read_text().endswith("done\n"), driver.output.read_text()[-3000:]
    found = sorted(row.value or b"" for row in committed(penstock_server, copy))
    assert found == [b"%05d" % number for number in range(ROWS)]


@pytest.mark.long
def test_a_pipeline_runs_on_a_cluster_and_takes_its_functions_there(
    cluster: tuple[str, list[Child]], penstock_server: str, tmp_path: Path
) -> None:
    address, _ = cluster
    topic, copy, bad = (new_topic(penstock_server, partitions=2) for _ in range(3))
    for partition in (0, 1):
        numbers = range(partition, FEW_ROWS, 2)
        send(penstock_server, topic, [b'{"id": %d}' % number for number in numbers], partition=partition)
    send(penstock_server, topic, [b"oops"], partition=1)
    file = tmp_path / "p.py"
    file.write_text(PIPELINE.format(servers=penstock_server, topic=topic, copy=copy, bad=bad))
    command = [sys.executable, "-m", "penstock.cli", "pipeline", "run", str(file), "--master", address, "--json"]
    with Child(command, output=tmp_path / "run.log", env=environment()) as run:
        wait_until(lambda: not run.is_alive(), seconds=SECONDS, what="the end")
        assert run.stop() == 0, run.output.read_text()[-3000:]
    last = {told["flow"]: told for told in map(json.loads, run.output.read_text().splitlines())}
    assert {flow: (told["state"], told["rows"], told["restarts"]) for flow, told in last.items()} == dict.fromkeys(
        ("orders_bad", "to_topic", "to_table"), ("done", FEW_ROWS + 1, 0)
    )
    written = [json.loads(row.value or b"") for row in committed(penstock_server, copy)]
    assert sorted(row["id"] for row in written) == list(range(FEW_ROWS))
    assert all(row.get("half") == (None if row["id"] % 2 else row["id"] // 2) for row in written)
    places = {Path(row["place"]) for row in written}
    assert {place.parents[1] for place in places} == {tmp_path / "work"}, "the executors made the rows"
    assert sorted(read_table(tmp_path / "table")["id"].to_pylist()) == list(range(FEW_ROWS))
    assert [row.value for row in committed(penstock_server, bad)] == [b"oops"]
