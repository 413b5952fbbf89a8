"""Sessions start wherever the environment stands."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.base.errors import ConfigError
from pyspark_penstock.session import _interpreter


@pytest.fixture
def spaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This environment under a path with a space, and temporary files in another."""
    environment = tmp_path / "my environment"
    environment.symlink_to(sys.prefix, target_is_directory=True)
    (tmp_path / "my files").mkdir()
    monkeypatch.setattr(sys, "executable", str(environment / Path(sys.executable).relative_to(sys.prefix)))
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "my files"))
    return environment


def test_workers_get_this_environment_under_a_path_without_spaces(spaced: Path) -> None:
    found = _interpreter()
    assert " " not in found
    code = "import pyspark, sys; print(sys.prefix)"
    prefix = subprocess.run([found, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(prefix).resolve() == spaced.resolve()


def test_where_there_is_no_such_path_it_is_said(spaced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="set TMPDIR to a path without one"):
        _interpreter()
