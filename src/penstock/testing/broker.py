"""A broker that a test starts, uses and throws away.

`Broker` runs on a thread of this process: it starts in milliseconds after the first one, and its faults are set directly.
`BrokerProcess` runs in a process of its own, which can be killed with -9 and started again over the same directory; it
ends when this process does, however that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.base.errors import PenstockError

if TYPE_CHECKING:
    from penstock.app.config import BrokerConfig
    from penstock.testing.faults import Faults

START_SECONDS_MAX = 60
_TESTING_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""What makes a broker quick for a handful of records; settings beat it."""


class BrokerFailed(PenstockError):
    """A test's broker did not start, or ended by itself; the message says what it said."""


def _settings(given: Mapping[str, object]) -> dict[str, str]:
    return {**_TESTING_DEFAULTS, **{name.replace("_", "."): _text(value) for name, value in given.items()}}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Held:
    """What both brokers share: a directory, kept if it was given, and settings under Kafka's names."""

    def __init__(self, data: str | Path | None = None, **settings: object) -> None:
        """Settings are Kafka's, with `_` for `.`: Broker(log_segment_bytes=1 << 20)."""
        self._given = data
        self._data: Path | None = None if data is None else Path(data)
        self._settings = _settings(settings)
        self._address = ""

    @property
    def bootstrap_servers(self) -> str:
        if not self._address:
            raise BrokerFailed("the broker is not running")
        return self._address

    @property
    def data(self) -> Path:
        """The log directory; a temporary one is made when the broker first starts and removed when it is closed."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="penstock-testing-"))
        return self._data

    def _all_settings(self) -> dict[str, str]:
        port = self._address.rpartition(":")[2] or "0"
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **self._settings, "log.dirs": str(self.data)}
        if port != "0":  # at the same address as before
            settings["listeners"] = re.sub(r":0(?=,|$)", f":{port}", settings["listeners"], count=1)
        return settings

    def start(self) -> Self:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def restart(self) -> Self:
        """A clean stop and a start over the same directory, at the same address."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stops, and removes a directory that was not given."""
        self.stop()
        if self._given is None and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


class Broker(_Held):
    """A broker on a thread of this process."""

    def __init__(self, data: str | Path | None = None, **settings: object) -> None:
        from penstock.testing.faults import Faults

        super().__init__(data, **settings)
        self.faults: Faults = Faults()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._complaints: list[str] = []

    def start(self) -> Self:
        from penstock.app.config import BrokerConfig

        if self._thread is not None:
            raise BrokerFailed("the broker is running already")
        config = BrokerConfig(self._all_settings())
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(config, ready), name="penstock-broker", daemon=True)
        self._thread.start()
        try:
            self._address = ready.result(START_SECONDS_MAX)
        except BaseException as error:
            self._thread.join(START_SECONDS_MAX)
            self._thread = None
            raise BrokerFailed(f"the broker did not start: {error}") from error
        return self

    def stop(self) -> None:
        """A clean stop; raises with what went wrong."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed: it ended by itself
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(START_SECONDS_MAX)
        if thread.is_alive():
            raise BrokerFailed("the broker does not stop")
        if self._complaints:
            raise BrokerFailed("; ".join(self._complaints))

    def _run(self, config: BrokerConfig, ready: Future[str]) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(config, ready))

    async def _serve(self, config: BrokerConfig, ready: Future[str]) -> None:
        from penstock.app.broker import Broker as Served

        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._complaints = []
        call_later = self._loop.call_later
        served = Served(config, intercept=lambda dispatch: self.faults.wrap(dispatch, call_later))
        try:
            await served.start()
        except BaseException as error:
            await served.stop()
            ready.set_exception(error)
            return
        bound = served.advertised(served.endpoints[0])
        ready.set_result(f"{bound.host}:{bound.port}")
        await self._stopping.wait()
        self._complaints = await served.stop()


class BrokerProcess(_Held):
    """A broker in a process of its own."""

    _program = "penstock.testing.process"

    def __init__(self, data: str | Path | None = None, **settings: object) -> None:
        super().__init__(data, **settings)
        self._process: subprocess.Popen[str] | None = None
        self.addresses: list[str] = []
        """Where it listens, in the order of its listeners; the first as clients are told."""
        self.faults = RemoteFaults(self._say)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        return self._process.pid

    @property
    def log_directories(self) -> list[Path]:
        return [Path(one) for one in self._all_settings()["log.dirs"].split(",")]

    @property
    def output(self) -> Path:
        """What it says on stderr, all starts."""
        return self.data.with_name(self.data.name + ".log")

    def start(self) -> Self:
        if self._process is not None:
            raise BrokerFailed("the broker is running already")
        command = [sys.executable, "-m", self._program, json.dumps(self._all_settings())]
        with self.output.open("a") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            self._process.wait(START_SECONDS_MAX)
            self._forget()
            said = self.output.read_text(errors="replace")[-2000:]
            raise BrokerFailed(f"the broker did not start; it said: {said}")
        self.addresses = line.split()[1:]
        self._address = self.addresses[0]
        return self

    def stop(self) -> None:
        """A clean stop; raises where it does not end well."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(START_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed("the broker does not stop; it was killed") from None
        self._forget()
        if code != 0:
            said = self.output.read_text(errors="replace")[-2000:]
            raise BrokerFailed(f"the broker ended with {code}; it said: {said}")

    def kill(self) -> None:
        """kill -9: what was not on disk by then depends on the system alone."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._forget()

    def kill_if_running(self) -> None:
        if self._process is not None:
            self.kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT pause it."""
        os.kill(self.pid, number)

    def close(self) -> None:
        output = self.output
        super().close()
        if self._given is None:
            output.unlink(missing_ok=True)

    def _forget(self) -> None:
        assert self._process is not None
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process = None

    def _say(self, command: dict[str, Any]) -> None:
        """Tells the process of a fault, and waits until it has understood."""
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise ValueError(answer or "the broker ended")


class RemoteFaults:
    """The faults of a broker in another process; see `Faults`."""

    def __init__(self, say: Any) -> None:
        self._say = say

    def delay(self, api: str, ms: int, times: int = -1) -> None:
        self._say({"fault": "delay", "api": api, "ms": ms, "times": times})

    def fail(self, api: str, error: str, times: int = 1) -> None:
        self._say({"fault": "fail", "api": api, "error": error, "times": times})

    def lose_request(self, api: str, times: int = 1) -> None:
        self._say({"fault": "lose_request", "api": api, "times": times})

    def lose_answer(self, api: str, times: int = 1) -> None:
        self._say({"fault": "lose_answer", "api": api, "times": times})

    def clear(self) -> None:
        self._say({"fault": "clear"})
