"""The parts of the demo: its generator writes what it says, its picture is one, its proof does not hold by itself."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from rich.console import Console
from tests.pipelines.topics import is_decided
from tests.support.processes import register, unregister, wait_until

from penstock.cli.demo import DemoError, _Broker, _Play
from penstock.cli.demo_generator import (
    CLICKS,
    END,
    LATE_FROM_ROUND,
    ORDERS,
    ROUNDS,
    START,
    Generator,
    Made,
    make_topics,
)
from penstock.cli.main import main
from penstock.cli.pipeline_run import StopSignals
from penstock.cli.png import BLUE, ORANGE, Curve, write_curves
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.testing import Broker
from pyspark_penstock.batch import BatchReader
from pyspark_penstock.clusters import close_clusters
from pyspark_penstock.demo import Findings
from pyspark_penstock.options import read_batch_options

RECORDS = 8_000


def values(server: str, topics: str, isolation: str = "read_committed") -> list[bytes]:
    options = {"kafka.bootstrap.servers": server, "subscribe": topics, "kafka.isolation.level": isolation}
    reader = BatchReader(read_batch_options(options))
    return [value for one in reader.partitions() for rows in reader.read(one) for value in rows["value"].to_pylist()]


def test_the_generator_writes_what_it_says() -> None:
    read: list[int] = []

    def is_read(events: int) -> bool:
        read.append(events)
        return True

    with Broker() as broker, Cluster(client_config({"bootstrap.servers": broker.bootstrap_servers})) as cluster:
        make_topics(cluster)
        generator = Generator(cluster, RECORDS, is_read, lambda: False)
        generator.run()
        made = generator.made
        wait_until(lambda: is_decided(broker.bootstrap_servers, ORDERS), seconds=60, what="the markers of orders")
        wait_until(lambda: is_decided(broker.bootstrap_servers, CLICKS), seconds=60, what="the markers of clicks")
        found = values(broker.bootstrap_servers, f"{ORDERS},{CLICKS}")
        everything = values(broker.bootstrap_servers, f"{ORDERS},{CLICKS}", "read_uncommitted")
        close_clusters()
    assert len(found) == made.events == RECORDS + made.closing
    assert len(everything) == made.events + made.aborted
    good = []
    for value in found:
        try:
            good.append(json.loads(value))
        except ValueError:
            continue
    assert len(found) - len(good) == made.bad == RECORDS // 100
    assert len({event["id"] for event in good}) == len(good)
    times = [event["at"] for event in good]
    start, end = (f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in (START, END))
    assert sum(at < start for at in times) == made.late == RECORDS // ROUNDS * (ROUNDS - LATE_FROM_ROUND) // 100
    assert sum(at > end for at in times) == made.closing == 4
    per_round = RECORDS // ROUNDS
    assert read == [0, *(number * per_round for number in range(ROUNDS - 1))]  # never more than two rounds ahead


def test_a_picture_is_a_png_with_its_curves(tmp_path: Path) -> None:
    path = tmp_path / "new" / "picture.png"
    curves = [
        Curve(title="up", colour=BLUE, points=[(0.0, 0.0), (1.0, 5.0), (2.0, 10.0)]),
        Curve(title="nothing", colour=ORANGE, points=[]),
    ]
    write_curves(path, "a title, of 2 curves", curves, width=400, panel_height=200)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack_from(">II", data, 16)
    assert (width, height) == (400, 440)
    at = data.index(b"IDAT")
    (size,) = struct.unpack_from(">I", data, at - 4)
    pixels = zlib.decompress(data[at + 4 : at + 4 + size])
    assert len(pixels) == height * (1 + 3 * width)
    assert pixels.count(bytes(BLUE)) > 200


MADE = Made(events=1_004, late=40, bad=10, closing=4, aborted=30)
FOUND = Findings(
    events=1_004, aborted=30, counted=950, windows=8, late=40, open=4, bad=10, table_rows=994, table_ids=994, same_answer=True
)  # fmt: skip


def test_the_proof_holds_only_if_everything_in_it_does() -> None:
    play = _Play("b:1", Path("."), 1_000, Console(quiet=True), StopSignals())
    play._prove(MADE, FOUND)
    for field in dataclasses.fields(Findings):
        if field.name == "windows":
            continue
        value = getattr(FOUND, field.name)
        wrong = dataclasses.replace(FOUND, **{field.name: not value if isinstance(value, bool) else value - 1})
        with pytest.raises(DemoError, match="the proof fails: it is not so that "):
            play._prove(MADE, wrong)


def test_the_demo_takes_no_directory_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["demo", "--data", str(tmp_path), "--picture", str(tmp_path / "p.png")]) == 1
    assert "is not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_broker_that_somebody_ended_is_missed(tmp_path: Path) -> None:
    with _Broker(tmp_path) as broker:
        broker.check()
        os.kill(broker.pid, signal.SIGKILL)
        os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(DemoError, match="the broker has ended: "):
            broker.check()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's end")
def test_a_broker_ends_with_whoever_started_it_however_that_ended(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from penstock.cli.demo import _Broker
with _Broker(Path({str(tmp_path)!r})) as broker:
    print(broker.pid, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        broker = int(parent.stdout.readline())
        register(broker)
        assert Path(f"/proc/{broker}/exe").exists()
        parent.kill()
        parent.wait()
        wait_until(lambda: not Path(f"/proc/{broker}/exe").exists(), seconds=60, what="the broker has ended")
        unregister(broker)
