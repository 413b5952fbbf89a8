"""What `penstock cluster` does: children, a file `cluster.json` that says which, and their end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.app.config import BrokerConfig
from penstock.app.zookeeper_server import ZooKeeperServer, free_port
from penstock.base.config import PORT_MAX, is_port
from penstock.base.errors import DirectoryLockedError, PenstockError
from penstock.base.files import SystemFiles
from penstock.cli.children import serve_command
from penstock.cli.cluster import open_cluster
from penstock.cli.locks import holder, writing
from penstock.cli.serve import ENDING
from penstock.client.cluster import Metadata

FILE_NAME = "cluster.json"
OK, FAILED = 0, 1
_START_SECONDS_MAX = 120
_STOP_SECONDS_MAX = 60
_HURRIED_SECONDS_MAX = 5
_SILENT_SECONDS_MAX = 5
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.05
_EACH_ITS_OWN = (
    "advertised.listeners",
    "broker.id",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "zookeeper.connect",
)
"""Keys that cannot hold for every broker, and that this command gives each."""
_COMPLAINT = "penstock: "
_PATIENCE = {"request_timeout_ms": "2000", "default_api_timeout_ms": "10000"}
"""Of who asks brokers that may hang."""
_NUMBERS_MAX = {"id": 2**31 - 1, "pid": 2**31 - 1, "port": PORT_MAX}


class LocalClusterError(PenstockError):
    """A cluster on this machine that is not there, or does not start."""


class _Child:
    """One broker: `penstock serve`, with what it says in a file beside its data."""

    def __init__(self, broker_id: int, data: Path, host: str, port: int) -> None:
        self.broker_id = broker_id
        self.data = data
        self.host = host
        self.port = port
        self.output = data.with_name(f"{data.name}.log")
        self.process: subprocess.Popen[str] | None = None

    def start(self, zookeeper: str, settings: Mapping[str, str]) -> None:
        given = {"broker.id": str(self.broker_id), "zookeeper.connect": zookeeper, **settings}
        with self.output.open("a") as log:
            self.process = subprocess.Popen(
                serve_command(str(self.data), f"{self.host}:{self.port}", given),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        timer = threading.Timer(_START_SECONDS_MAX, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line.startswith("ready "):
            raise LocalClusterError(f"broker {self.broker_id} did not start: {self._complaint()}")
        self.port = int(line.rpartition(":")[2])

    def _complaint(self) -> str:
        """Why it ended, in its own words: its last complaint, or what it said last."""
        lines = self.output.read_text(errors="replace").strip().split("\n")
        complaints = [line for line in lines if line.startswith(_COMPLAINT)]
        return complaints[-1].removeprefix(_COMPLAINT) if complaints else lines[-1]

    def is_there(self) -> bool:
        """Whether it runs, or one that somebody started in its place."""
        return (self.process is not None and self.process.poll() is None) or holder(str(self.data)) is not None

    def described(self) -> dict[str, Any]:
        assert self.process is not None
        return {"id": self.broker_id, "pid": self.process.pid, "host": self.host, "port": self.port}


class _Stopped(Exception):
    """A signal came before the cluster was up."""


class _Signals:
    """SIGTERM, Ctrl-C and the end of the terminal: while the cluster starts they end that at once, afterwards whoever waits for `stop` hears of them, and of
    a second one whoever looks at `hurry`."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.hurry = threading.Event()
        self._is_starting = True

    def listen(self) -> None:
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has SIGHUP
                signal.signal(number, self._came)

    def _came(self, *_: object) -> None:
        if self.stop.is_set():
            self.hurry.set()
        self.stop.set()
        if self._is_starting:
            self._is_starting = False  # the next one does not disturb what this one began
            raise _Stopped

    def started(self) -> None:
        self._is_starting = False


def run_up(data: Path, brokers: int, listen: str, settings: Mapping[str, str]) -> int:
    host, first_port = _parse_listen(listen, brokers)
    for key in _EACH_ITS_OWN:
        if key in settings:
            raise LocalClusterError(f"--set {key}: each broker gets its own from this command")
    for complaint in BrokerConfig(settings).complaints:
        print(f"penstock: --set: {complaint}", file=sys.stderr, flush=True)
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    try:
        with writing(SystemFiles(), [str(data)]):
            if _is_running(data):
                raise LocalClusterError(f"a cluster runs in {data} already")
            for left_out in _left_out(data, brokers):
                sentence = f"{left_out} is not started: what only it has nobody leads, until it is (--brokers)"
                print(f"penstock: {sentence}", file=sys.stderr, flush=True)
            return _run(data, brokers, host, first_port, settings)
    except DirectoryLockedError:
        raise LocalClusterError(f"a cluster runs in {data} already, or starts there") from None


def _run(data: Path, brokers: int, host: str, first_port: int, settings: Mapping[str, str]) -> int:
    zookeeper = ZooKeeperServer(data / "zookeeper", port=_zookeeper_port(data), ends_with_thread=True)
    children = [
        _Child(number, _directory(data, number), host, first_port + number - 1 if first_port else 0)
        for number in range(1, brokers + 1)
    ]
    signals = _Signals()
    try:
        signals.listen()
        zookeeper.start()
        for child in children:
            child.start(zookeeper.connect, {**_replication(brokers), **settings})
        for child in children:
            child.wait_until_ready()
        _write_file(data, zookeeper, children)
        signals.started()
        print(f"ready {','.join(f'{child.host}:{child.port}' for child in children)}", flush=True)
        _watch(zookeeper, children, signals.stop)
        return OK
    except _Stopped:
        print("penstock: stopped before it was up", file=sys.stderr, flush=True)
        return FAILED
    finally:
        signals.started()
        _stop_all(children, signals.hurry)
        zookeeper.stop()
        _stop_successor(zookeeper.data)


def _directory(data: Path, broker_id: int) -> Path:
    return data / f"broker-{broker_id}"


def _left_out(data: Path, brokers: int) -> list[Path]:
    """Brokers' directories of an earlier start with more of them."""
    started = {_directory(data, number) for number in range(1, brokers + 1)}
    return sorted(path for path in data.glob("broker-*") if path.is_dir() and path not in started)


def _replication(brokers: int) -> dict[str, str]:
    """Three replicas of everything, or as many as there are brokers."""
    factor, in_sync = str(min(3, brokers)), str(min(2, brokers))
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "min.insync.replicas": in_sync,
    }


def _watch(zookeeper: ZooKeeperServer, children: list[_Child], stop: threading.Event) -> None:
    """Says when a broker or ZooKeeper ends or is back, or the controller changes, until it is time to stop."""
    serving = {child.broker_id for child in children}
    left_out: set[int] = set()
    """Processes that the others did not know of at the last look."""
    controller = -1
    is_coordinated = True
    while not stop.wait(_LOOK_SECONDS):
        if is_coordinated != (zookeeper.is_running() or _answers(zookeeper.host, zookeeper.port)):
            is_coordinated = not is_coordinated
            ended = "ZooKeeper ended: brokers serve what they have, and nothing can be changed"
            print("ZooKeeper is back" if is_coordinated else ended, flush=True)
        there = {child.broker_id for child in children if child.is_there()}
        # First those that answered last: who hangs takes its time.
        asked = sorted(children, key=lambda child: child.broker_id not in serving)
        told = _ask([child.described() for child in asked if child.broker_id in there])
        left_out_before, left_out = left_out, set() if told is None else there - told.brokers.keys()
        now = (there - left_out) | (serving & left_out - left_out_before)
        for broker_id in sorted(serving ^ now):
            went = "does not answer: the others do without it" if broker_id in there else "ended"
            print(f"broker {broker_id} {'is back' if broker_id in now else went}", flush=True)
        serving = now
        if told is not None and told.controller not in (controller, -1):
            controller = told.controller
            some = "brokers {} are" if len(serving) > 1 else "broker {} is"
            print(
                f"{some.format(', '.join(map(str, sorted(serving))))} alive, broker {controller} is the controller",
                flush=True,
            )


def _stop_all(children: list[_Child], hurry: threading.Event) -> None:
    """One after the other, so that leaders can move as long as there is somewhere to go."""
    for child in children:
        if child.process is not None:
            _stop(child.process, child.broker_id, hurry)
            _stop_successor(child.data)


def _stop(process: subprocess.Popen[str], broker_id: int, hurry: threading.Event) -> None:
    process.terminate()
    begun = time.monotonic()
    deadline = begun + _STOP_SECONDS_MAX
    is_silent, is_hurried = True, False
    while process.poll() is None:
        now = time.monotonic()
        if now > deadline:
            process.kill()
        elif hurry.is_set() and not is_hurried:
            is_hurried, deadline = True, now + _HURRIED_SECONDS_MAX
            process.terminate()  # the second one hurries it, if it hears that
        elif is_silent and now - begun > _SILENT_SECONDS_MAX:
            is_silent = False
            print(f"waiting for broker {broker_id} to stop; Ctrl-C once more ends it soon", flush=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PAUSE_SECONDS)


def _stop_successor(home: Path) -> None:
    """What somebody started by hand in the place of one that ended."""
    pid = holder(str(home))
    if pid is None or not _serves(pid):
        return
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)
        while holder(str(home)) == pid:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE_SECONDS)


def _serves(pid: int) -> bool:
    """Whether a process is a server, and no tool at work on a directory."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"serve" in command or any(b"QuorumPeerMain" in word for word in command)
    return False


def _parse_listen(listen: str, brokers: int) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not _is_address(listen):
        raise LocalClusterError(f"--listen {listen!r}: write HOST:PORT")
    if int(port) + brokers - 1 > PORT_MAX:
        raise LocalClusterError(
            f"--listen {listen!r}: {brokers} brokers take consecutive ports, and {PORT_MAX} is the last"
        )
    return host, int(port)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and "/" not in host and is_port(port, lowest=0)


def _zookeeper_port(data: Path) -> int:
    """The same as last time where that is free: a cluster is found where it was."""
    with contextlib.suppress(LocalClusterError, ValueError, OSError):
        port = int(_read_file(data)["zookeeper"].rpartition(":")[2])
        with socket.socket() as probe:
            # As ZooKeeper does: connections that ended linger.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        return port
    return free_port()


def _write_file(data: Path, zookeeper: ZooKeeperServer, children: list[_Child]) -> None:
    content = {"zookeeper": zookeeper.connect, "brokers": [child.described() for child in children]}
    temporary = data / f"{FILE_NAME}.tmp"
    temporary.write_text(json.dumps(content))
    temporary.rename(data / FILE_NAME)


def _read_file(data: Path) -> dict[str, Any]:
    try:
        content = json.loads((data / FILE_NAME).read_text())
    except FileNotFoundError:
        raise LocalClusterError(f"no cluster was started in {data}: there is no {FILE_NAME}") from None
    except ValueError:
        content = None
    if not _is_whole(content):
        raise LocalClusterError(f"{data / FILE_NAME} does not say what runs there: it was not written by this command")
    found: dict[str, Any] = content
    return found


def _is_whole(content: Any) -> bool:
    brokers = content.get("brokers") if isinstance(content, dict) else None
    return (
        isinstance(brokers, list)
        and isinstance(content.get("zookeeper"), str)
        and _is_address(content["zookeeper"])
        and all(isinstance(one, dict) and _is_broker(one) for one in brokers)
    )


def _is_broker(content: dict[str, Any]) -> bool:
    numbers = {key: content.get(key) for key in _NUMBERS_MAX}
    return isinstance(content.get("host"), str) and all(
        isinstance(number, int) and 0 < number <= _NUMBERS_MAX[key] for key, number in numbers.items()
    )


def _is_running(data: Path) -> bool:
    with contextlib.suppress(LocalClusterError):
        return any(broker["alive"] for broker in _look(data, _read_file(data)["brokers"]))
    return False


def _look(data: Path, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Brokers as they are now: one that was started again by hand is another process than the one that was started here."""
    found = []
    for broker in known:
        pid = holder(str(_directory(data, broker["id"])))
        located = broker if pid is None else {**broker, "pid": pid}
        found.append({**located, "alive": _is_alive(located)})
    return found


def _is_alive(broker: Mapping[str, Any]) -> bool:
    try:
        os.kill(broker["pid"], 0)
    except OSError:
        return False
    return _answers(broker["host"], broker["port"])


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host.strip("[]"), port), timeout=2):  # brackets of an IPv6 address
            return True
    except OSError:
        return False


def _ask(brokers: list[dict[str, Any]]) -> Metadata | None:
    """What the cluster says of itself; None where nobody answers."""
    servers = ",".join(f"{broker['host']}:{broker['port']}" for broker in brokers)
    if not servers:
        return None
    with contextlib.suppress(PenstockError, OSError), open_cluster(servers, **_PATIENCE) as cluster:
        return cluster.metadata(())
    return None


def run_status(data: Path, *, as_json: bool) -> int:
    known = _read_file(data)
    brokers = _look(data, known["brokers"])
    told = _ask([broker for broker in brokers if broker["alive"]])
    for broker in brokers:
        if told is None:
            continue
        address = told.brokers.get(broker["id"])
        if address is None:
            broker["alive"] = False  # what hangs still takes connections; the others do without it
        elif not broker["alive"]:  # it came back elsewhere, perhaps
            elsewhere = {**broker, "host": address.host, "port": address.port}
            if _is_alive(elsewhere):
                broker.update(elsewhere, alive=True)
    controller = -1 if told is None else told.controller
    if as_json:
        print(json.dumps({"brokers": brokers, "controller": controller, "zookeeper": known["zookeeper"]}))
        return OK
    for broker in brokers:
        role = ", controller" if broker["id"] == controller else ""
        state = _state(is_there=broker["alive"])
        print(f"broker {broker['id']} at {broker['host']}:{broker['port']} (process {broker['pid']}): {state}{role}")
    host, _, port = known["zookeeper"].rpartition(":")
    print(f"ZooKeeper at {known['zookeeper']}: {_state(is_there=_answers(host, int(port)))}")
    return OK


def _state(*, is_there: bool) -> str:
    return "alive" if is_there else "not there"
