"""`penstock cluster`, `penstock elect` and `penstock zookeeper`, as a user types them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import Child, register, unregister, wait_until
from tests.support.stores import AskedZooKeeper

from penstock.app.zookeeper_server import free_port
from penstock.cli.main import main

pytestmark = pytest.mark.long
WAIT_SECONDS = 120
PENSTOCK = [sys.executable, "-m", "penstock.cli"]


class Up:
    """`penstock cluster up` in a process."""

    def __init__(self, data: Path) -> None:
        self.data = data
        command = [*PENSTOCK, "cluster", "up", "--data", str(data), "--listen", "127.0.0.1:0", "--brokers", "3"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        register(self.process.pid)
        self.bootstrap = ""

    def wait(self) -> "Up":
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), line
        self.bootstrap = line.split()[1]
        return self

    def read_until(self, wanted: str) -> None:
        """Reads what the command says up to this line."""
        assert self.process.stdout is not None
        assert any(line.strip() == wanted for line in self.process.stdout)

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        self.process.send_signal(signal_number)
        code = self.process.wait(WAIT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        unregister(self.process.pid)
        return code


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    cluster = Up(tmp_path_factory.mktemp("up") / "cluster").wait()
    yield cluster
    if cluster.process.poll() is None:
        cluster.end()


def status(up: Up, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["cluster", "status", "--data", str(up.data), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def alive(found: dict[str, Any]) -> list[int]:
    return [broker["id"] for broker in found["brokers"] if broker["alive"]]


def test_a_cluster_with_one_command(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    found = status(up, capsys)
    assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
    assert alive(found) == [1, 2, 3]
    assert found["controller"] in (1, 2, 3)
    assert set(found) == {"brokers", "controller", "zookeeper"}
    assert set(found["brokers"][0]) == {"id", "pid", "host", "port", "alive"}
    assert up.bootstrap == ",".join(f"{one['host']}:{one['port']}" for one in found["brokers"])


def test_topics_have_three_replicas_and_leaders_can_be_elected(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "create", "t", "--partitions", "3", "-b", up.bootstrap]) == 0

    def rows() -> list[dict[str, Any]]:
        capsys.readouterr()
        if main(["topics", "describe", "t", "-b", up.bootstrap, "--json"]) != 0:
            return []  # a broker that was not told yet
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    wait_until(lambda: len(rows()) == 3, seconds=WAIT_SECONDS, what="the topic is known")
    assert [len(row["replicas"]) for row in rows()] == [3, 3, 3]
    assert {row["replicas"][0] for row in rows()} == {1, 2, 3}
    assert main(["elect", "preferred", "--topic", "t", "-b", up.bootstrap, "--json"]) == 0
    wait_until(
        lambda: all(row["leader"] == row["replicas"][0] for row in rows()),
        seconds=WAIT_SECONDS,
        what="every preferred replica leads",
    )
    assert main(["elect", "preferred", "--topic", "t:9", "-b", up.bootstrap]) == 1


def test_each_broker_has_its_own_configuration_whoever_is_the_controller(
    up: Up, capsys: pytest.CaptureFixture[str]
) -> None:
    for broker in ("1", "2", "3"):
        value = f"log.retention.ms={broker}000000"
        assert main(["configs", "set", "broker", broker, value, "-b", up.bootstrap]) == 0
    capsys.readouterr()
    for broker in ("1", "2", "3"):
        assert main(["configs", "show", "broker", broker, "-b", up.bootstrap, "--json"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {row["value"] for row in rows if row["key"] == "log.retention.ms"} == {f"{broker}000000"}


def test_a_second_cluster_in_the_same_place_is_refused(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", "--data", str(up.data), "--listen", "127.0.0.1:0"]) == 1
    assert "runs in" in capsys.readouterr().err


def test_a_dead_broker_is_seen_and_ctrl_c_ends_the_rest(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    before = status(up, capsys)
    os.kill(before["brokers"][0]["pid"], signal.SIGKILL)
    wait_until(lambda: alive(status(up, capsys)) == [2, 3], seconds=WAIT_SECONDS, what="broker 1 is not alive")
    wait_until(lambda: status(up, capsys)["controller"] in (2, 3), seconds=WAIT_SECONDS, what="another controller")
    up.read_until("broker 1 ended")
    assert up.end() == 0
    for broker in before["brokers"]:
        with pytest.raises(ProcessLookupError):
            os.kill(broker["pid"], 0)
    found = status(up, capsys)
    assert alive(found) == []
    assert found["controller"] == -1


def test_a_broker_that_somebody_starts_again_by_hand_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    up = Up(tmp_path / "cluster").wait()
    before = status(up, capsys)
    broker = before["brokers"][2]
    os.kill(broker["pid"], signal.SIGKILL)
    wait_until(lambda: alive(status(up, capsys)) == [1, 2], seconds=WAIT_SECONDS, what="broker 3 is not alive")
    up.read_until("broker 3 ended")
    for port in (broker["port"], free_port()):
        at = f"127.0.0.1:{port}"
        command = [*PENSTOCK, "serve", "--data", str(up.data / "broker-3"), "--listen", at, "--set", "broker.id=3"]
        with Child([*command, "--set", f"zookeeper.connect={before['zookeeper']}"], output=tmp_path / "said") as child:
            wait_until(lambda: alive(status(up, capsys)) == [1, 2, 3], seconds=WAIT_SECONDS, what="broker 3 is back")
            found = status(up, capsys)["brokers"][2]
            assert (found["pid"], f"{found['host']}:{found['port']}") == (child.pid, at)
            up.read_until("broker 3 is back")
            if at == f"127.0.0.1:{broker['port']}":
                assert child.stop() == 0
                up.read_until("broker 3 ended")
            else:
                assert up.end() == 0
                wait_until(lambda: not child.is_alive(), seconds=WAIT_SECONDS, what="it ends with the others")
                assert child.stop() == 0
    assert processes_of(up.data) == []


def test_a_broker_that_hangs_is_not_called_alive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up = Up(tmp_path / "cluster").wait()
    pid = status(up, capsys)["brokers"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: alive(status(up, capsys)) == [2, 3], seconds=WAIT_SECONDS, what="broker 1 is out")
        up.read_until("broker 1 does not answer: the others do without it")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: alive(status(up, capsys)) == [1, 2, 3], seconds=WAIT_SECONDS, what="broker 1 is back")
    up.read_until("broker 1 is back")
    assert up.end() == 0


def test_a_second_ctrl_c_ends_what_hangs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up = Up(tmp_path / "cluster").wait()
    os.kill(status(up, capsys)["brokers"][1]["pid"], signal.SIGSTOP)
    up.process.send_signal(signal.SIGINT)
    up.read_until("waiting for broker 2 to stop; Ctrl-C once more ends it soon")
    assert up.end(signal.SIGINT) == 0
    assert processes_of(up.data) == []


def test_brokers_of_an_earlier_start_that_are_left_out_are_named(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    for name in ("broker-1", "broker-2", "broker-3"):
        (data / name).mkdir(parents=True)
    command = [*PENSTOCK, "cluster", "up", "--data", str(data), "--listen", "127.0.0.1:0", "--brokers", "1"]
    with Child(command, output=tmp_path / "said") as child:
        wait_until(lambda: "ready " in (tmp_path / "said").read_text(), seconds=WAIT_SECONDS, what="it is up")
        assert child.stop() == 0
    said = (tmp_path / "said").read_text().splitlines()
    assert [line.split(" is not started")[0] for line in said[:2]] == [
        f"penstock: {data / name}" for name in ("broker-2", "broker-3")
    ]


def test_a_cluster_stands_where_it_was_asked_for_whatever_its_path_is_called(tmp_path: Path) -> None:
    """And its ZooKeeper has the port of the last time, though connections to it have just ended."""
    data = tmp_path / "\u00fc \\ \U0001f6b0"
    seen = []
    for _ in range(2):
        up = Up(data).wait()
        seen.append(json.loads((data / "cluster.json").read_text())["zookeeper"])
        assert up.end() == 0
        assert (data / "zookeeper" / "version-2").is_dir()
    assert list(tmp_path.iterdir()) == [data]
    assert seen[0] == seen[1]


def test_a_terminal_that_is_closed_ends_it_like_ctrl_c(tmp_path: Path) -> None:
    up = Up(tmp_path / "cluster").wait()
    assert up.end(signal.SIGHUP) == 0
    assert processes_of(up.data) == []


def test_whoever_kills_the_command_leaves_nothing_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the same place can be used again, without a second ZooKeeper in it."""
    first = Up(tmp_path / "cluster").wait()
    host, _, port = status(first, capsys)["zookeeper"].rpartition(":")
    first.process.kill()
    first.end()
    wait_until(lambda: alive(status(first, capsys)) == [], seconds=WAIT_SECONDS, what="no broker is alive")

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=10):
            return True
        return False

    wait_until(lambda: not answers(), seconds=WAIT_SECONDS, what="ZooKeeper is gone")
    second = Up(first.data).wait()
    assert alive(status(second, capsys)) == [1, 2, 3]
    assert second.end() == 0


@pytest.mark.parametrize("moment", ["zookeeper/zoo.cfg", "broker-2.log"])
def test_ctrl_c_while_it_starts_ends_all_that_was_started(
    tmp_path: Path, moment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster").mkdir()
    os.mkfifo(tmp_path / "cluster" / "broker-3.log")  # nobody reads it: it does not come up before the signal
    up = Up(tmp_path / "cluster")
    wait_until((up.data / moment).exists, seconds=WAIT_SECONDS, what=f"{moment} is there")
    assert main(["cluster", "up", "--data", str(up.data), "--listen", "127.0.0.1:0"]) == 1
    assert "or starts there" in capsys.readouterr().err
    assert up.end(signal.SIGINT) == 1
    assert not (up.data / "cluster.json").exists(), "it was not up yet"
    assert processes_of(up.data) == []


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*PENSTOCK, "cluster", "up", "--data", str(tmp_path / "cluster"), "--listen", listen]
        command += ["--brokers", "1"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert ended.returncode == 1
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("penstock: broker 1 did not start: ")
    assert listen in sentence
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("place", [0, 1])
def test_a_port_that_a_member_of_an_ensemble_cannot_have_is_named(tmp_path: Path, place: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [free_port(), free_port()]
        ports[place] = taken.getsockname()[1]
        server = f"1=127.0.0.1:{ports[0]}:{ports[1]}"
        arguments = ["--listen", f"127.0.0.1:{free_port()}", "--id", "1", "--server", server, "--server", "2=[::1]:1:2"]
        command = [*PENSTOCK, "zookeeper", "--data", str(tmp_path / "data"), *arguments]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert ended.returncode != 0
    assert f"--server 1: 127.0.0.1:{ports[place]} cannot be listened on" in ended.stderr


def processes_of(data: Path) -> list[str]:
    """The command lines of processes that name the directory or something in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(data) in line:
                found.append(line)
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cluster", "status", "--data", "nowhere"], "no cluster was started in nowhere"),
        (["cluster", "up", "--listen", "here"], "write HOST:PORT"),
        (["cluster", "up", "--listen", ":9092"], "write HOST:PORT"),
        (["cluster", "up", "--listen", "PLAINTEXT://127.0.0.1:0"], "write HOST:PORT"),
        (["cluster", "up", "--data", ""], "name a directory"),
        (["cluster", "status", "--data", ""], "name a directory"),
        (["zookeeper", "--data", ""], "name a directory"),
        (["zookeeper", "--server", "1=h:1:2", "--server", "1=g:1:2", "--id", "1"], "there is a member 1 already"),
        (["zookeeper", "--server", "1=h:1:2", "--server", "2=h:3:2", "--id", "1"], "h:2 is taken by another"),
        (["cluster", "up", "--listen", "127.0.0.1:65534"], "consecutive ports"),
        (["cluster", "up", "--set", "num.partitions=x"], "penstock: num.partitions='x' is not a valid integer"),
        (["cluster", "up", "--set", "listeners=PLAINTEXT://127.0.0.1:1"], "--set listeners: each broker gets its own"),
        (["cluster", "up", "--set", "broker.id=7"], "--set broker.id: each broker gets its own"),
        (["cluster", "up", "--set", "nonsense=1", "--data", "/dev/null"], "--set: nonsense is not known"),
        (["zookeeper", "--listen", "here"], "write HOST:PORT"),
        (["zookeeper", "--id", "3", "--server", "1=h:1:2"], "--id names none"),
        (["zookeeper", "--server", "1=h"], "write ID=HOST:PORT:PORT"),
        (["zookeeper", "--server", "1=h:2888:x", "--id", "1"], "write ID=HOST:PORT:PORT"),
        (["zookeeper", "--listen", "127.0.0.1:65536"], "write HOST:PORT"),
        (["elect", "unclean"], "name its topics"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) != 0
    assert said in capsys.readouterr().err


def test_a_zookeeper_in_the_foreground(tmp_path: Path) -> None:
    port = free_port()
    command = [*PENSTOCK, "zookeeper", "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    with Child(command, output=tmp_path / "said") as child:
        store = AskedZooKeeper(f"127.0.0.1:{port}")
        assert store.store.session_id != 0
        store.close()
        second = ["zookeeper", "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{free_port()}"]
        ended = subprocess.run([*PENSTOCK, *second], check=False, capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == f"penstock: {tmp_path / 'data'} is in use by another ZooKeeper; stop it first\n"
        child.stop()
