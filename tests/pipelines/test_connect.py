"""Spark Connect finds the format as other sessions do: its clients read, and write exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines import connect_driver
from tests.pipelines.test_cluster import environment, fill
from tests.pipelines.topics import committed, new_topic

SECONDS = 280


@pytest.mark.long
def test_a_client_of_connect_reads_and_writes(penstock_server: str, tmp_path: Path) -> None:
    topic, copy = new_topic(penstock_server, partitions=2), new_topic(penstock_server)
    fill(penstock_server, topic, 20)
    arguments = [penstock_server, topic, copy, str(tmp_path / "checkpoint")]
    done = subprocess.run(
        [sys.executable, str(Path(connect_driver.__file__)), *arguments],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"client": "pyspark.sql.connect.session", "rows": 20, "of one": 10}
    assert sorted(row.value or b"" for row in committed(penstock_server, copy)) == [b"%05d" % n for n in range(20)]
