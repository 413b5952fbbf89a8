"""Spark sessions for our own pipelines, tests and benches: the settings that were found to matter, and little noise.

A session somebody else made needs none of this: the format `penstock` works there as it is.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_ENDS_SECONDS = 30
SETTINGS: Mapping[str, str] = {
    # 200 by default, which ruins small stateful streams.
    "spark.sql.shuffle.partitions": "4",
    # Off by default; where it is off, `where` is evaluated after the reading.
    "spark.sql.python.filterPushdown.enabled": "true",
    # A micro-batch in 150 ms instead of 200.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def make_session(
    name: str,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    jvm_output: Path | None = None,
) -> SparkSession:
    """A session whose workers run this very interpreter (Spark would take the first `python3` of the PATH).

    What the JVM and the workers print goes to `jvm_output` if it is given: warnings at the start, and at the stop traces of
    broken pipes that mean nothing. One JVM serves a process: a second session shares the output of the first.
    """
    _find_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _interpreter()
    if master.startswith("local"):
        # Else Spark looks the machine's name up, which may take seconds or fail.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName(name).setMaster(master).setAll([*{**SETTINGS, **(settings or {})}.items()])
    with _output_to(jvm_output):
        with _ending_java_at_signals():
            SparkContext._ensure_initialized(conf=conf)
        return SparkSession.builder.config(conf=conf).getOrCreate()


@contextlib.contextmanager
def _ending_java_at_signals() -> Iterator[None]:
    """A JVM whose launch is broken off finds nobody to tell its port to, and stays for ever: so it ends first, and the signal
    counts when its launch has failed by that. A second signal counts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import pyspark.java_gateway

    gateway: Any = pyspark.java_gateway
    came: list[int] = []
    launched: list[subprocess.Popen[bytes]] = []
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    popen = gateway.Popen

    def launch(*arguments: Any, **settings: Any) -> subprocess.Popen[bytes]:
        child: subprocess.Popen[bytes] = popen(*arguments, **settings)
        launched.append(child)
        if came:
            child.kill()
        return child

    def heed(number: int, _frame: object) -> None:
        came.append(number)
        for child in launched:
            child.kill()
        if len(came) > 1:
            raise KeyboardInterrupt

    gateway.Popen = launch
    for number in kept:
        signal.signal(number, heed)
    try:
        yield
    finally:
        gateway.Popen = popen
        for number, handler in kept.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def end_session(session: SparkSession) -> None:
    """Stops it and its JVM, which would else end a little later than this process: nobody is left when a command returns."""
    try:
        session.stop()
    finally:
        end_java()


def end_java() -> None:
    """Ends the JVM of this process, if there is one, whatever it is at."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    java = None if gateway is None else gateway.__dict__.get("proc")
    if gateway is None or java is None:
        return  # somebody else's JVM, as spark-submit's
    gateway.shutdown()
    java.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        java.wait(JAVA_ENDS_SECONDS)
    java.kill()
    java.wait()


def _find_java() -> None:
    """JAVA_HOME and the PATH are Spark's own to look at; else there may be a runtime in this environment."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    made = Path(sys.prefix, "java")
    if not (made / "bin" / "java").exists():
        raise ConfigError("Spark needs Java 17 or later, and there is none: install one, or set JAVA_HOME to it")
    os.environ["JAVA_HOME"] = str(made)


def _interpreter() -> str:
    """This interpreter under a path without spaces: with one, Spark's look for Python sources finds no Python.

    The whole environment is linked, not the program alone: by its path Python finds the environment's packages.
    """
    if not _has_space(sys.executable):
        return sys.executable
    places = [
        place
        for place in (tempfile.gettempdir(), "/tmp", "/var/tmp")
        if not _has_space(place) and os.access(place, os.W_OK)
    ]
    if not places:
        raise ConfigError(
            f"Spark finds no Python in a path with a space ({sys.executable}): set TMPDIR to a path without one"
        )
    folder = tempfile.mkdtemp(prefix="penstock-python-", dir=places[0])
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    link = Path(folder, "environment")
    link.symlink_to(sys.prefix, target_is_directory=True)
    return str(link / Path(sys.executable).relative_to(sys.prefix))


def _has_space(path: str) -> bool:
    return any(character.isspace() for character in path)


@contextlib.contextmanager
def _output_to(path: Path | None) -> Iterator[None]:
    """Processes started meanwhile print to the file; this one prints where it did as soon as the block ends."""
    if path is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    with path.open("ab") as sink:
        for number in (1, 2):
            os.dup2(sink.fileno(), number)
    try:
        yield
    finally:
        for number, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, number)
            os.close(saved)
