"""The two brokers of a bench: Penstock and Apache Kafka, started the same way and watched from outside."""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, Protocol, Self

from tests.support.kafka_jvm import STOCK_JVM, STOCK_PROPERTIES, KafkaBroker, led_partitions
from tests.support.processes import Child, wait_until

_TICKS = os.sysconf("SC_CLK_TCK")
_COMMAND = Path(sys.executable).with_name("penstock")
_REQUESTS = re.compile(r'^kafka_network_requestmetrics_requests_total\{request="(\w+)",.*\} (\d+)$', re.MULTILINE)
_READY = re.compile(r"^ready PLAINTEXT://127\.0\.0\.1:(\d+)$", re.MULTILINE)


class Cpu(NamedTuple):
    """Seconds of processor time that a process has used."""

    user: float
    system: float

    def since(self, earlier: Cpu) -> float:
        return self.user - earlier.user + self.system - earlier.system


class Peer(Protocol):
    name: str
    start_seconds: float

    @property
    def pid(self) -> int: ...

    @property
    def port(self) -> int: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def cpu(peer: Peer) -> Cpu:
    return cpu_of(peer.pid)


def cpu_of(pid: int) -> Cpu:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return Cpu(int(fields[11]) / _TICKS, int(fields[12]) / _TICKS)


def resident_mb(peer: Peer) -> float:
    return resident_mb_of(peer.pid)


def resident_mb_of(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def bootstrap(peer: Peer) -> str:
    return f"127.0.0.1:{peer.port}"


class Penstock:
    name = "Penstock"

    def __init__(self, folder: Path, **settings: str | int) -> None:
        self._folder = folder
        self._settings = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self.start_seconds = 0.0
        self.port = 0
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        output = self._folder / "broker.log"
        command: list[str | Path] = [
            _COMMAND,
            "serve",
            "--data",
            self._folder / "data",
            "--listen",
            "127.0.0.1:0",
        ]
        for setting in self._settings:
            command += ["--set", setting]
        start = perf_counter()
        self._child = child = Child(command, output=output)

        def ready() -> int | None:
            child.check_alive()
            found = _READY.search(output.read_text(errors="replace"))
            return int(found[1]) if found and led_partitions(int(found[1])) is not None else None

        self.port = wait_until(ready, seconds=60, what="Penstock answers", pause_seconds_max=0.005)
        self.start_seconds = perf_counter() - start
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child is not None
        self._child.stop()


class Kafka:
    """4.3 with its stock flags and a stock `server.properties`."""

    name = "Kafka 4.3"

    def __init__(self, folder: Path, **settings: str | int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        properties = {**STOCK_PROPERTIES, **settings}
        self._broker = KafkaBroker("4.3", folder, heap_mb=1024, jvm_flags=STOCK_JVM, **properties)
        self.start_seconds = 0.0

    @property
    def pid(self) -> int:
        return self._broker.pid

    @property
    def port(self) -> int:
        return self._broker.port

    def __enter__(self) -> Self:
        self._broker.start()
        self._broker.stop()  # the first start formats its directory
        start = perf_counter()
        self._broker.start()
        self.start_seconds = perf_counter() - start
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()


def exchange(peer: Peer, frame: bytes) -> bytes:
    """One request on a connection of its own; the answer's bytes without their length."""
    with socket.create_connection(("127.0.0.1", peer.port), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size, socket.MSG_WAITALL)


def requests_of(metrics_port: int) -> Counter[str]:
    """How often each API was asked for, by Penstock's page of metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30) as page:
        found: Counter[str] = Counter()
        for api, count in _REQUESTS.findall(page.read().decode()):
            found[api] += int(count)
        return found
