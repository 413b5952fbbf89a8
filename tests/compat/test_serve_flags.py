"""`penstock serve` as a process: Kafka's own file, the log as JSON, and what it says when it cannot start."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
from tests.support.processes import Child, free_port, wait_until
from tests.support.served_broker import ServedBroker
from tests.support.wire import Wire
from tests.unit.app.test_listeners import STOCK_KRAFT

from penstock.cli.serve import HURRY, STOPPING

SERVE = [sys.executable, "-m", "penstock.cli", "serve"]


def properties(path: Path, settings: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def test_kafkas_own_file_starts_and_options_beat_it(tmp_path: Path) -> None:
    file = properties(tmp_path / "server.properties", {**STOCK_KRAFT, "num.partitions": "3"})
    options = ["--config", str(file), "--log-format", "json", "--set", "num.partitions=4"]
    with ServedBroker(tmp_path, options=options) as broker, Wire(broker.bootstrap_servers) as wire:
        made = wire.ask(3, 12, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        assert len(made["topics"][0]["partitions"]) == 4
        assert broker.stop() == 0
        said = [line for line in broker.output.splitlines() if not line.startswith("ready ")]
    entries = [json.loads(line) for line in said if line]
    assert {"time_ms", "level", "room", "message"} <= entries[0].keys()
    unused = [entry["message"] for entry in entries if "KRaft" in entry["message"]]
    assert {message.split()[0] for message in unused} == {
        "process.roles",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
    }
    assert (broker.data / "t-3").is_dir()


def test_where_it_listens_is_told_where_clients_are_told_otherwise(tmp_path: Path) -> None:
    told = ["--set", "advertised.listeners=PLAINTEXT://127.0.0.1:9"]
    with ServedBroker(tmp_path, options=told) as broker:
        assert broker.bootstrap_servers == "127.0.0.1:9"
        (address,) = re.findall(
            r"listening at PLAINTEXT://(\S+); clients are told PLAINTEXT://127.0.0.1:9$", broker.output, re.M
        )
        with Wire(address) as wire:
            (node,) = wire.ask(3, 12, {"topics": []})["brokers"]
        assert (node["host"], node["port"]) == ("127.0.0.1", 9)


@pytest.mark.parametrize("prepare", ["os.close(1)", "r, w = os.pipe(); os.close(r); os.dup2(w, 1)"])
def test_a_broker_serves_and_ends_well_though_nobody_reads_its_stdout(tmp_path: Path, prepare: str) -> None:
    port = free_port()
    served = [*SERVE, "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    program = f"import os, sys; {prepare}; os.execv(sys.argv[1], sys.argv[1:])"
    child = Child([sys.executable, "-c", program, *served], output=tmp_path / "said")

    def is_served() -> bool:
        child.check_alive()
        try:
            with Wire(f"127.0.0.1:{port}") as wire:
                return bool(wire.ask(3, 12, {"topics": []})["brokers"])
        except ConnectionRefusedError:
            return False

    wait_until(is_served, seconds=60, what="the broker serves")
    assert child.stop() == 0
    assert "Traceback" not in (tmp_path / "said").read_text()


BUSY = """
import sys
from penstock.cli.serve import main
from penstock.storage.log_directories import LogDirectories

done = LogDirectories.{work}


def busy(self, *arguments):
    print("busy", file=sys.stderr, flush=True)
    sys.stdin.readline()
    return done(self, *arguments)


LogDirectories.{work} = busy
sys.exit(main(sys.argv[1:]))
"""


class Busy:
    """A broker that stays in its recovery (`open`) or its last flush (`_close`) until it is told to go on."""

    def __init__(self, work: str, directory: Path) -> None:
        options = ["--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-c", BUSY.format(work=work), *options]
        self._said = directory / "said"
        with self._said.open("w") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.said, seconds=60, what=f"it says {text!r}")

    @property
    def said(self) -> str:
        return self._said.read_text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        return self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_a_signal_during_the_recovery_ends_it_cleanly_afterwards(tmp_path: Path) -> None:
    with Busy("open", tmp_path) as broker:
        broker.wait_for("busy")
        broker.signal(signal.SIGINT)
        broker.wait_for(STOPPING)
        broker.go_on()
        assert broker.wait() == 0
        assert "ready" not in broker.said
        assert "Traceback" not in broker.said
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_signal_ends_a_start_that_waits_for_zookeeper(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        host, port = silent.getsockname()
        settings = ["--set", f"zookeeper.connect={host}:{port}", "--set", "zookeeper.connection.timeout.ms=3600000"]
        command = [*SERVE, "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *settings]
        with Child(command, output=tmp_path / "said") as broker:
            asked, _ = silent.accept()  # and nothing is answered
            with asked:
                assert broker.stop() == 0


@pytest.mark.parametrize("work", ["open", "_close"])
def test_a_second_signal_hurries_also_where_logs_are_recovered_or_flushed(tmp_path: Path, work: str) -> None:
    with Busy(work, tmp_path) as broker:
        broker.wait_for("busy" if work == "open" else "ready")
        broker.signal(signal.SIGTERM)
        broker.wait_for(STOPPING)
        broker.wait_for("busy")
        broker.signal(signal.SIGTERM)
        broker.wait_for(HURRY)
        assert broker.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--set", "zookeeper.connect=127.0.0.1:1", "--set", "zookeeper.connection.timeout.ms=300"],
            "no ZooKeeper answers at 127.0.0.1:1",
        ),
        (["--config", "nowhere.properties"], "penstock: nowhere.properties: No such file or directory"),
        (["--set", "=x"], "write key=value"),
        (["--listen", "nonsense"], "is not a listener"),
        (["--listen", "no such host:0"], "the host cannot be found"),
        (["--set", "nonsense"], "write key=value"),
        (["--data", ""], "--data is empty"),
        (["--data", "/proc/version/below"], "log directory /proc/version/below cannot be made"),
        (
            ["--listen", "127.0.0.1:0", "--set", "metrics.listener=192.0.2.1:0"],
            "metrics.listener: METRICS://192.0.2.1:0 cannot be listened on",
        ),
        (["--listen", "127.0.0.1:²"], "is not a listener"),
        (["--listen", "ü..x:0"], "the host cannot be found"),
        (
            ["--listen", "127.0.0.1:0", "--set", "metrics.listener=no such host:0"],
            "metrics.listener: METRICS://no such host:0: the host cannot be found",
        ),
        (["--listen", "127.0.0.1:0", "--set", "metrics.listener=ü..x:0"], "the host cannot be found"),
        (["--set", "num.partitions=x"], "num.partitions"),
        (["--log-format", "xml"], "xml"),
        (["--log-level", "loud"], "loud"),
    ],
)
def test_what_cannot_start_says_why_in_one_sentence(options: list[str], said: str, tmp_path: Path) -> None:
    command = [*SERVE, "--data", str(tmp_path / "data"), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert ran.returncode != 0
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""
