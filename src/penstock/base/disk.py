"""How large a disk is, and how much of it is left."""

from __future__ import annotations

import os
from typing import NamedTuple


class DiskSpace(NamedTuple):
    total_bytes: int
    usable_bytes: int


def disk_space(path: str) -> DiskSpace | None:
    """Of the disk that holds `path`; None where the system cannot tell."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return DiskSpace(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)


def absolute(path: str) -> str:
    return os.path.abspath(path)
