"""The demo as people start it: it proves itself, draws its picture, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools.java import ensure_java_home

from tests.support.processes import wait_until

SECONDS = 280

pytestmark = pytest.mark.long  # CI runs the demo itself


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "JAVA_HOME": str(ensure_java_home())}
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "demo",
        "--records",
        "2400",
        "--picture",
        str(folder / "p.png"),
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def is_served(folder: Path) -> bool:
    """Whether a process has anything to do with the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return any(str(folder).encode() in line and b"serve" in line for line in found)


def test_the_demo_proves_itself_and_leaves_nothing(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        out, err = demo.communicate(timeout=SECONDS)
    assert (demo.returncode, err) == (0, "")
    assert re.search(r"in 2,404 = out 2,\d+ \+ late \d+ \+ bad \d+ \+ closing 4; none twice; \d+ aborted", out)
    assert "the same as the pipeline wrote" in out
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("penstock-demo")] == []
    assert not is_served(tmp_path)


def test_a_demo_that_is_interrupted_clears_up(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        wait_until(lambda: is_served(tmp_path), seconds=SECONDS, what="the broker is there")
        assert demo.stdout is not None
        while not demo.stdout.readline().startswith("2. "):
            assert demo.poll() is None
        demo.send_signal(signal.SIGTERM)
        _, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 1
    assert err == "penstock: interrupted\n"
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("penstock-demo")] == []
    assert not is_served(tmp_path)
