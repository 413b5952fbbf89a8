"""Clients of others, each in a process of its own that does what it is told until it is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tools.fetch_judges import SOURCES, client_folder, kafka_libs

from tests.support import judges
from tests.support.kafka_jvm import QUICK_JVM, java
from tests.support.processes import register, unregister

ROOT = Path(__file__).parents[2]
CLIENTS = ("librdkafka", "kafka-python", "aiokafka", "kafkajs", "franz", "java-client")
_MODULES = {"librdkafka": "librdkafka", "kafka-python": "kafka_python", "aiokafka": "aiokafka_client"}


class ClientFailed(Exception):
    """The client raised; the message is its error."""


def _command(name: str) -> list[str]:
    if name in _MODULES:
        return [sys.executable, "-m", f"tests.support.clients.{_MODULES[name]}"]
    judges.require(name)
    folder = client_folder(name)
    if name == "kafkajs":
        return ["node", str(SOURCES / name / "client.js"), str(folder)]
    if name == "franz":
        return [str(folder / "franz")]
    judges.require("kafka-4.3")
    return [java(), "-Xmx128m", *QUICK_JVM, "-cp", f"{folder}:{kafka_libs('4.3')}/*", "JavaClient"]


class ClientProgram:
    """`program.do("write", topic=…)` waits for the answer and gives it, or raises what the client raised.

    What a request may be stands in `tests/support/clients/kafka_python.py`, the plainest of them.
    """

    def __init__(self, name: str, servers: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*_command(name), servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        register(self._process.pid)

    def ask(self, do: str, **arguments: object) -> None:
        """Only sends the request: others can be asked meanwhile."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClientFailed(f"{self.name} ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientFailed(f"{self.name}: {answer['error']}")
        return answer["ok"]

    def do(self, do: str, **arguments: object) -> Any:
        self.ask(do, **arguments)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        unregister(self._process.pid)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
