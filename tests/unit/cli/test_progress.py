"""A bar only where somebody looks, and only when it takes long."""

from __future__ import annotations

import io
import sys

import pytest

from penstock.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("patience_seconds", "is_shown"), [(3600.0, False), (0.0, True)])
def test_a_bar_is_drawn_once_it_takes_longer(
    patience_seconds: float, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", patience_seconds)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.progress_bar("recovering", 2_000_000) as advance:
        advance(1_000_000)
    assert isinstance(sys.stderr, Terminal)
    assert ("recovering" in sys.stderr.getvalue()) is is_shown


def test_a_file_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.progress_bar("recovering", 2) as advance:
        advance(1)
    assert isinstance(sys.stderr, io.StringIO)
    assert sys.stderr.getvalue() == ""
