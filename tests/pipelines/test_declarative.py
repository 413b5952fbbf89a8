"""The example for Spark's Declarative Pipelines runs as it stands: a topic in, tables, a topic out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.java import ensure_java_home

from penstock.client.admin import create_topic
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from tests.pipelines.topics import committed, send
from tests.support.served_broker import ServedBroker

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark-pipelines"
SECONDS = 280


@pytest.mark.long
def test_the_example_of_declarative_pipelines_runs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/penstock-orders" in text
    spec.write_text(text.replace("file:///tmp/penstock-orders", f"file://{tmp_path}/storage"))
    with ServedBroker(tmp_path) as broker:
        server = broker.bootstrap_servers
        with Cluster(client_config({"bootstrap.servers": server})) as cluster:
            for topic in ("orders", "large-orders"):
                create_topic(cluster, topic, partitions=1)
        values = [{"id": number, "country": "se", "amount": 50.0 * number} for number in range(5)]
        send(server, "orders", [json.dumps(value).encode() for value in values])
        bin_folder = Path(sys.executable).parent
        environment = {
            **os.environ,
            "PENSTOCK_BOOTSTRAP": server,
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(ensure_java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        }
        settings = {"spark.ui.enabled": "false", "spark.sql.catalogImplementation": "hive"}
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [bin_folder / "spark-pipelines", *options, "run"],
            cwd=project, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        written = [json.loads(row.value or b"") for row in committed(server, "large-orders")]
    assert [value["id"] for value in written] == [2, 3, 4]
    assert list((project / "spark-warehouse" / "totals").glob("*.parquet"))
