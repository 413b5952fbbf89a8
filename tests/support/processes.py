"""Child processes that never outlive the tests, free ports, and waiting by asking.

Each child leads a process group of its own. A small reaper process, started with the first child, holds the read end of
a pipe: when this process ends in whatever way, kill -9 included, the pipe closes and the reaper kills the groups still
registered.
"""

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

_REAPER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
alive = set()
for line in sys.stdin:
    (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
for group in alive:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""

Answer = TypeVar("Answer")

# Outside the range from which kernels give ports to outgoing connections, so that none of those takes a port
# between the moment it is chosen and the moment a broker binds it.
_PORTS = range(20_000, 32_000)

_reaper: "subprocess.Popen[str] | None" = None


class NotInTime(Exception):
    """What was waited for did not come true before the deadline."""


class ChildDied(Exception):
    """A child ended that should have gone on; the message carries the end of its output."""


def wait_until(
    ask: Callable[[], Answer | None], *, seconds: float, what: str, pause_seconds_max: float = 0.1
) -> Answer:
    """Asks again and again until the answer is neither None nor False, and returns it."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise NotInTime(f"{what}: not within {seconds:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, pause_seconds_max)


def free_port() -> int:
    """A loopback port that nobody listens on."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Child:
    """One process with its output in a file; a context manager that kills what is left."""

    def __init__(self, command: Sequence[str | Path], *, output: Path, env: Mapping[str, str] | None = None) -> None:
        self.output = output
        with output.open("ab") as sink:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        register(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def check_alive(self) -> None:
        if not self.is_alive():
            tail = self.output.read_text(errors="replace")[-4000:]
            raise ChildDied(f"process {self.pid} ended with {self._process.returncode}:\n{tail}")

    def kill9(self) -> None:
        self._signal_group(signal.SIGKILL)
        self._reap()

    def stop(self, number: signal.Signals = signal.SIGTERM, *, seconds: float = 60) -> int:
        """A signal, and SIGKILL if that is not enough in time; the exit code."""
        if self.is_alive():
            self._process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill9()
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _reap(self) -> None:
        self._process.wait()
        unregister(self.pid)


def register(group: int) -> None:
    """From now on the process group dies with this process."""
    _tell_reaper("+", group)


def unregister(group: int) -> None:
    _tell_reaper("-", group)


def _tell_reaper(sign: str, pid: int) -> None:
    global _reaper  # noqa: PLW0603 one reaper a process, made when first needed
    if _reaper is None:
        command = [sys.executable, "-S", "-E", "-c", _REAPER]
        _reaper = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        atexit.register(_dismiss_reaper)
    assert _reaper.stdin is not None
    _reaper.stdin.write(f"{sign}{pid}\n")
    _reaper.stdin.flush()


def _dismiss_reaper() -> None:
    if _reaper is not None and _reaper.stdin is not None:
        _reaper.stdin.close()
        _reaper.wait()
