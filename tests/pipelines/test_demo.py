"""The demo as people start it: it proves itself, draws its picture, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shlex
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
    """Whether a broker has anything to do with the folder."""
    return any(b"serve" in command and str(folder).encode() in command for command in commands_of(folder))


def commands_of(folder: Path) -> list[bytes]:
    """Of the processes that this demo started: brokers, Java, Python's workers. All have its environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}/tmp".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def check_left(folder: Path) -> None:
    """After the demo: its broker and Java ended before it did. Spark's Python workers end by themselves, when Java has."""
    assert [
        command for command in commands_of(folder) if b"java" in command.split(b"\0")[0] or b"serve" in command
    ] == []
    wait_for_nobody(folder)


def wait_for_nobody(folder: Path) -> None:
    wait_until(lambda: not commands_of(folder), seconds=SECONDS, what="everybody the demo started has ended")


def read_until(demo: subprocess.Popen[str], start: str) -> str:
    assert demo.stdout is not None
    lines: list[str] = []
    while not (lines and lines[-1].startswith(start)):
        lines.append(demo.stdout.readline())
        assert lines[-1], (lines, demo.communicate(timeout=SECONDS))
    return "".join(lines)


def test_the_demo_proves_itself_and_leaves_nothing(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        out, err = demo.communicate(timeout=SECONDS)
    assert (demo.returncode, err) == (0, "")
    assert re.search(r"in 2,404 = out 2,\d+ \+ late \d+ \+ bad \d+ \+ closing 4; none twice; \d+ aborted", out)
    assert "the same as the pipeline wrote" in out
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("penstock-demo")] == []
    check_left(tmp_path)


def test_a_demo_that_is_interrupted_clears_up(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        read_until(demo, "2. ")
        assert is_served(tmp_path)
        demo.send_signal(signal.SIGTERM)
        _, err = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 1
    assert err == "penstock: interrupted\n"
    assert [path for path in (tmp_path / "tmp").iterdir() if path.name.startswith("penstock-demo")] == []
    check_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_kept_can_be_played_with_until_it_is_told_to_stop(
    tmp_path: Path, number: signal.Signals
) -> None:
    with start(tmp_path, "--keep") as demo:
        shown = read_until(demo, "  penstock log dump")
        assert "the picture is" in shown
        commands = [shlex.split(line) for line in shown.splitlines() if line.startswith("  penstock ")]
        assert len(commands) == 4
        for command in commands:
            played = subprocess.run(
                [sys.executable, "-m", "penstock.cli", *command[1:]], capture_output=True, text=True, timeout=SECONDS, check=False
            )  # fmt: skip
            assert played.returncode == 0, (command, played.stderr)
            assert played.stdout, command
        demo.send_signal(number)
        out, err = demo.communicate(timeout=SECONDS)
    assert (demo.returncode, err) == (0, "")
    assert out.startswith("the files are in ")
    assert Path(out.removeprefix("the files are in ").strip(), "log", "orders-0").is_dir()
    check_left(tmp_path)


def test_a_demo_that_is_killed_takes_its_broker_and_spark_with_it(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        read_until(demo, "3. ")
        demo.kill()
        demo.wait()
        wait_for_nobody(tmp_path)
