"""A ZooKeeper server from the jars inside the pyspark package: its configuration, its command, its process."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from penstock.base.errors import DirectoryLockedError, PenstockError
from penstock.storage import names

TICK_MS = 500
SESSION_TIMEOUT_MS_MAX = 60_000
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS = ("zookeeper-*", "slf4j-api-*", "netty-*", "snappy-java-*", "metrics-core-*", "commons-io-*", "commons-cli-*")
_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
START_SECONDS_MAX = 60
_CHILD = "import sys; from penstock.app.zookeeper_server import child_main; child_main(*sys.argv[1:])"


class ZooKeeperServerError(PenstockError):
    """A ZooKeeper server cannot be run here, or did not start; the message says why."""


def find_java() -> str:
    """The Java that Spark would take: JAVA_HOME's, the one on the PATH, the one beside this interpreter."""
    home = os.environ.get("JAVA_HOME")
    beside = Path(sys.prefix) / "java" / "bin" / "java"
    candidates = [str(Path(home) / "bin" / "java") if home else None, shutil.which("java"), str(beside)]
    for candidate in candidates:
        if candidate is not None and os.access(candidate, os.X_OK):
            return candidate
    raise ZooKeeperServerError("ZooKeeper needs Java: install version 17 or later, or set JAVA_HOME")


def find_jars() -> str:
    """The class path of a server."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperServerError("ZooKeeper's jars come with pyspark: pip install 'penstock[spark]'")
    directory = Path(spec.origin).parent / "jars"
    found = [str(jar) for pattern in _JARS for jar in sorted(directory.glob(f"{pattern}.jar"))]
    if not found:
        raise ZooKeeperServerError(f"there is no ZooKeeper among the jars of {directory}")
    return os.pathsep.join(found)


def server_command(config: Path) -> list[str]:
    return [find_java(), *_FLAGS, "-cp", find_jars(), _MAIN, str(config)]


def server_environment() -> dict[str, str]:
    """With names of files in UTF-8, whatever the terminal speaks: Java would take others for them."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _in_properties(text: str) -> str:
    """As a value of Java's properties, which know no encoding but Latin-1."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x80 else f"\\u{code:04x}" for code in codes)


def write_server_config(
    data: Path, host: str, port: int, *, member_id: int | None = None, members: Mapping[int, str] | None = None
) -> Path:
    """Makes the data directory and the configuration in it; `members` maps ids to `host:port:port` of an ensemble."""
    data.mkdir(parents=True, exist_ok=True)
    lines = [
        f"dataDir={_in_properties(str(data))}",
        f"clientPort={port}",
        f"clientPortAddress={host}",
        f"tickTime={TICK_MS}",
        f"maxSessionTimeout={SESSION_TIMEOUT_MS_MAX}",
        "initLimit=20",
        "syncLimit=10",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "autopurge.purgeInterval=1",
        "4lw.commands.whitelist=ruok,srvr,dump",
        *(f"server.{number}={where}" for number, where in sorted((members or {}).items())),
    ]
    if member_id is not None:
        (data / "myid").write_text(f"{member_id}\n")
    path = data / "zoo.cfg"
    path.write_text("\n".join(lines) + "\n")
    return path


def keep_others_out(data: Path) -> None:
    """Two servers over one directory would ruin it. The lock is held as long as this process lives, also when it becomes a server."""
    data.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data / names.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DirectoryLockedError(f"{data} is in use by another ZooKeeper; stop it first") from None
    os.set_inheritable(descriptor, True)


def child_main(data: str, ends_with_parent: str, *command: str) -> None:
    if ends_with_parent:
        with contextlib.suppress(AttributeError, OSError):  # Linux has it
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    try:
        keep_others_out(Path(data))
    except DirectoryLockedError as error:
        sys.exit(str(error))
    os.execve(command[0], command, server_environment())


class ZooKeeperServer:
    """One server without an ensemble, as a child process with its output in a file."""

    def __init__(
        self,
        data: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        flags: Sequence[str] = (),
        ends_with_thread: bool = False,
    ) -> None:
        """`ends_with_thread`: however the thread that starts it ends, so does the server."""
        self.data = data
        self.host = host
        self.port = port or free_port(host)
        self.output = data.with_name(f"{data.name}.log")
        self._flags = flags
        self._ends_with_thread = ends_with_thread
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        command = server_command(write_server_config(self.data, self.host, self.port))
        command[1:1] = self._flags
        command[:0] = [sys.executable, "-c", _CHILD, str(self.data), "yes" if self._ends_with_thread else ""]
        with self.output.open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if not self.is_running() or time.monotonic() > deadline:
                self.stop()
                said = self.output.read_text(errors="replace")[-1000:].strip()
                raise ZooKeeperServerError(f"ZooKeeper did not start at {self.connect}; it said: {said}")
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        """Whether it serves: it says "imok" before it has read its data, and a dump only after."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(b"dump")
                with connection.makefile("rb") as answer:
                    return b"ephemeral nodes dump" in answer.read()
        except OSError:
            return False

    def stop(self) -> None:
        """SIGTERM is as good as SIGKILL to it: what it confirmed is on its disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
