"""A `penstock serve` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.processes import Child, wait_until

SOURCE = Path(__file__).parents[2] / "src"
_READY = re.compile(r"^ready PLAINTEXT://(127\.0\.0\.1:\d+)$", re.MULTILINE)


class ServedBroker:
    """Started with `start`, ended by `stop` or `kill9`, and started again over the same directory.

    Each life has another port, unless `port` is set: clients that are to find the next life need that.
    """

    def __init__(self, directory: Path, *, options: Sequence[str | Path] = (), **settings: str) -> None:
        self.data = directory / "data"
        self._directory = directory
        self.port = 0
        self._settings = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self._options = list(options)
        self._starts = 0
        self._child: Child | None = None
        self.bootstrap_servers = ""

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def output(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("broker-*.log")))

    def start(self) -> Self:
        self._starts += 1
        output = self._directory / f"broker-{self._starts}.log"
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        command += ["--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]
        for setting in self._settings:
            command += ["--set", setting]
        command += map(str, self._options)
        child = self._child = Child(command, output=output, env={**os.environ, "PYTHONPATH": str(SOURCE)})

        def ready() -> str | None:
            found = _READY.search(output.read_text(errors="replace"))
            if found is None:
                child.check_alive()
                return None
            return found[1]

        self.bootstrap_servers = wait_until(ready, seconds=30, what="the broker is ready")
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._child is not None
        return self._child.stop(number)

    def kill9(self) -> None:
        assert self._child is not None
        self._child.kill9()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill9()
