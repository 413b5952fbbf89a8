"""The runtime that stands in where a machine has no Java."""

import subprocess
import sys
from pathlib import Path

from tools import java


def test_the_shim_drops_the_module_that_the_wheel_lacks_and_nothing_else(tmp_path: Path) -> None:
    runtime = tmp_path / "a b" / "java"
    runtime.parent.mkdir()
    runtime.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "import sys; print(sys.argv[1:])" "$@"\n')
    runtime.chmod(0o755)
    shim = tmp_path / "shim"
    shim.write_text(java.SHIM.format(java=runtime))
    shim.chmod(0o755)
    arguments = ["--add-modules=jdk.incubator.vector", "-cp", "x y/*", "", "Main", "--add-modules=ALL-SYSTEM"]
    heard = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert heard.strip() == str(arguments[1:])


def test_a_java_that_is_not_there_is_no_java(tmp_path: Path) -> None:
    assert java._home_if_new_enough(tmp_path / "bin" / "java") is None
