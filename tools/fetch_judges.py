"""Brings the judges: Apache Kafka's jars through Maven, and programs from the system's packages.

`python -m tools.fetch_judges` fetches what is missing and names what it cannot get; with `CI=true` that is a failure. A
judge that is there is not fetched again, unless its pom changed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.java import NoJava, ensure_java_home

ROOT = Path(__file__).resolve().parent.parent
FETCHED = ROOT / ".judges"
KAFKA_VERSIONS = {"3.9": "3.9.2", "4.3": "4.3.1"}


class CannotFetch(Exception):
    """One judge could not be had; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    name: str
    is_there: Callable[[], bool]
    fetch: Callable[[], None]


def kafka_libs(version: str) -> Path:
    """The folder of jars of Kafka `version` ("3.9" or "4.3")."""
    return FETCHED / f"kafka-{KAFKA_VERSIONS[version]}" / "libs"


def missing() -> list[str]:
    """The judges that are not on this machine."""
    return [judge.name for judge in JUDGES if not judge.is_there()]


def _pom(version: str) -> Path:
    return ROOT / "tools" / "judges" / f"kafka-{version}" / "pom.xml"


def _stamp(version: str) -> Path:
    return kafka_libs(version).parent / "pom.sha256"


def _digest(version: str) -> str:
    return hashlib.sha256(_pom(version).read_bytes()).hexdigest()


def _kafka_is_there(version: str) -> bool:
    stamp = _stamp(version)
    return stamp.exists() and stamp.read_text().strip() == _digest(version)


def _fetch_kafka(version: str) -> None:
    _need_program("mvn", package="maven")
    try:
        java_home = ensure_java_home()
    except NoJava as error:
        raise CannotFetch(str(error)) from error
    libs = kafka_libs(version)
    shutil.rmtree(libs.parent, ignore_errors=True)
    libs.mkdir(parents=True)
    command = ["mvn", "-q", "-B", "-f", str(_pom(version)), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
    for _attempt in range(2):  # a mirror that drops one connection of hundreds is common
        ran = subprocess.run(command, check=False, env={**os.environ, "JAVA_HOME": str(java_home)}, stdout=sys.stderr)
        if ran.returncode == 0:
            break
    else:
        raise CannotFetch("Maven could not copy the jars; its own message stands above")
    # Last, so that a fetch cut short is done again.
    _stamp(version).write_text(_digest(version) + "\n")


def _need_program(program: str, *, package: str) -> None:
    """Installs the system's package of a program that is not on the PATH."""
    if shutil.which(program):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotFetch(f"`{program}` is not installed (package `{package}`)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        subprocess.run(["apt-get", *command], check=False, env=environment, stdout=sys.stderr)
    if not shutil.which(program):
        raise CannotFetch(f"`{program}` is not installed, and apt-get could not install `{package}`")


JUDGES = [
    Judge(name="kafka-3.9", is_there=lambda: _kafka_is_there("3.9"), fetch=lambda: _fetch_kafka("3.9")),
    Judge(name="kafka-4.3", is_there=lambda: _kafka_is_there("4.3"), fetch=lambda: _fetch_kafka("4.3")),
    Judge(
        name="kcat",
        is_there=lambda: shutil.which("kcat") is not None,
        fetch=lambda: _need_program("kcat", package="kcat"),
    ),
]


def main() -> int:
    failed = 0
    for judge in JUDGES:
        if judge.is_there():
            continue
        print(f"fetching {judge.name}", file=sys.stderr)
        try:
            judge.fetch()
        except CannotFetch as error:
            print(f"missing judge {judge.name}: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
