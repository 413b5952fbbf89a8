"""Load programs in C: a client in Python would be what is measured. Compiled when a bench starts."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.fetch_judges import install_package

HERE = Path(__file__).parent
LIBRARIES: Mapping[str, tuple[str, ...]] = {"requests": (), "stream": ("-lrdkafka", "-lpthread")}


class CannotCompile(Exception):
    """A load program could not be made; the message says what is missing."""


@functools.cache
def program(name: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotCompile("the load programs need a C compiler")
    target = Path(tempfile.mkdtemp(prefix="penstock-load-")) / name
    command = [compiler, "-O2", "-o", str(target), str(HERE / f"{name}.c"), *LIBRARIES[name]]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if "rdkafka.h" in ran.stderr:
        install_package("librdkafka-dev", what="librdkafka's header")
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise CannotCompile(f"{name}.c does not compile:\n{ran.stderr}")
    return target


def run(name: str, *arguments: object) -> dict[str, float]:
    """Runs a load program to its end; what it says of its run."""
    ran = subprocess.run(
        [program(name), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{name} {' '.join(map(str, arguments))}: {ran.stderr}")
    said: dict[str, float] = json.loads(ran.stdout)
    return said
