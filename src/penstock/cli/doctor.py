"""`penstock doctor`: what this machine offers, each check on a line, and what to do where something is missing."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

from penstock.base.errors import DirectoryLockedError, PenstockError
from penstock.base.files import SystemFiles
from penstock.cli import kernels_notice, locks
from penstock.cli.output import Output
from penstock.cli.text import size_text
from penstock.storage.inspect.places import DirectoryPlace, find_place

_DESCRIPTORS_WANTED = 100_000
_FREE_BYTES_WANTED = 1_000_000_000
_JAVA_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`state` is ok, note (works, but worth knowing) or failed."""

    kind: ClassVar[str] = "check"
    name: str
    state: str
    detail: str


def run(log_dirs: list[str], output: Output) -> int:
    checks = [
        _python(),
        *_kernels(),
        *_packages(),
        _java(),
        _descriptors(),
        _processors(),
        *(check for path in log_dirs for check in _log_directory(os.path.abspath(path))),
    ]
    output.table("", checks)
    failed = [check for check in checks if check.state == "failed"]
    output.say(
        "everything is in order" if not failed else f"{len(failed)} check{'' if len(failed) == 1 else 's'} failed"
    )
    return 1 if failed else 0


def _python() -> Check:
    version = (
        f"{platform.python_version()} ({platform.python_implementation()}, {platform.system()} {platform.machine()})"
    )
    return Check(name="Python", state="ok" if sys.version_info >= (3, 11) else "failed", detail=version)


def _kernels() -> Iterator[Check]:
    """Interpreted kernels are slow, not wrong; where CI is set they hide what is being tested, and fail."""
    from penstock.records import kernels

    bad = "failed" if os.environ.get("CI") == "true" else "note"
    detail = "compiled" if kernels.COMPILED else kernels_notice.SENTENCE
    yield Check(name="kernels", state="ok" if kernels.COMPILED else bad, detail=detail)
    detail = "by the processor's own instruction" if kernels.HARDWARE_CRC else "by tables, some five times slower"
    yield Check(name="CRC-32C", state="ok" if kernels.HARDWARE_CRC else "note", detail=detail)


def _packages() -> Iterator[Check]:
    for name, needed in (("cramjam", True), ("kio", True), ("uvloop", True), ("pyarrow", False), ("pyspark", False)):
        try:
            yield Check(name=name, state="ok", detail=metadata.version(name))
        except metadata.PackageNotFoundError:
            detail = "not installed" if needed else "not installed: pip install 'penstock[spark]' for the Spark side"
            yield Check(name=name, state="failed" if needed else "note", detail=detail)


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    path = next((path for path in candidates if os.access(path, os.X_OK)), shutil.which("java"))
    if path is None:
        return Check(name="Java", state="note", detail="not found; only Spark and the judges of the tests need it")
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name="Java", state="note", detail=f"{path} does not run: {error}")
    first = (done.stderr or done.stdout).partition("\n")[0].strip()
    return Check(name="Java", state="ok" if done.returncode == 0 else "note", detail=f"{first} ({path})")


def _descriptors() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = f"{_limit(soft)}, may be raised to {_limit(hard)}"
    if 0 <= hard < _DESCRIPTORS_WANTED:
        few = f"{limits}; a broker with many partitions wants {_DESCRIPTORS_WANTED} (ulimit -n)"
        return Check(name="open files", state="note", detail=few)
    return Check(name="open files", state="ok", detail=limits)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _processors() -> Check:
    return Check(name="processors", state="ok", detail=str(os.cpu_count() or 1))


def _log_directory(path: str) -> Iterator[Check]:
    name = f"log directory {path}"
    if not os.path.exists(path):
        parent = os.path.dirname(path)
        usable = os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK)
        detail = "does not exist; it will be made" if usable else f"does not exist, and {parent} may not be written to"
        yield Check(name=name, state="note" if usable else "failed", detail=detail)
        return
    for check in (_kind, _writable, _free):
        found = check(path)
        yield Check(name=name, state=found[0], detail=found[1])


def _kind(path: str) -> tuple[str, str]:
    try:
        place = find_place(SystemFiles(), path) if os.listdir(path) else None
        if place is not None and not isinstance(place, DirectoryPlace):
            return "failed", "is not a log directory but a partition's, or a file"
        with locks.reading([path], live=False):
            pass
    except DirectoryLockedError:
        return "note", "is in use by another process"
    except PenstockError as error:
        return "failed", str(error)
    except OSError as error:
        return "failed", f"cannot be read: {error.strerror}"
    return "ok", "is empty" if place is None else f"{len(place.partitions)} partitions"


def _writable(path: str) -> tuple[str, str]:
    if os.access(path, os.W_OK | os.X_OK):
        return "ok", "may be written to"
    return "failed", "may not be written to by this user"


def _free(path: str) -> tuple[str, str]:
    free = shutil.disk_usage(path).free
    return "ok" if free >= _FREE_BYTES_WANTED else "note", f"{size_text(free)} free"
