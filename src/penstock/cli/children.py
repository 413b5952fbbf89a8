"""Brokers that a command starts beside itself: `penstock serve`, told to stop however that command ends."""

from __future__ import annotations

import sys

_CHILD = """
import ctypes, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # Linux: however the parent ends, its children are told to stop
except (AttributeError, OSError):
    pass
from penstock.cli.entry import main
sys.exit(main())
"""


def serve_command(data: str, listen: str, settings: dict[str, str]) -> list[str]:
    """To be started by a thread that lives as long as the broker is to: its end counts as the parent's."""
    command = [sys.executable, "-c", _CHILD, "serve", "--data", data, "--listen", listen]
    return command + [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
