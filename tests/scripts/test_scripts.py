"""Golden scripts: one plain-text scenario a file, the file's name is the claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scripts.log_script import LogScript

SCRIPTS = sorted(path for path in (Path(__file__).parent / "storage").iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script(path: Path) -> None:
    commands, separator, wanted = path.read_text().partition("\n---\n")
    assert separator, f"{path.name} has no line of three dashes"
    script = LogScript()
    for line in commands.splitlines():
        if line.strip() and not line.startswith("#"):
            script.run(line)
    script.finish()
    assert script.said == wanted.splitlines()


def test_every_script_says_what_it_claims() -> None:
    assert len(SCRIPTS) >= 20
    for path in SCRIPTS:
        assert path.read_text().startswith("# "), path.name
