"""How many files a process may hold open (row S7): a broker asks for all that it may have."""

from __future__ import annotations

import resource
from typing import NamedTuple, Protocol


class Limits(Protocol):
    """The part of `resource` that is needed here."""

    RLIMIT_NOFILE: int
    RLIM_INFINITY: int

    def getrlimit(self, resource: int, /) -> tuple[int, int]: ...

    def setrlimit(self, resource: int, limits: tuple[int, int], /) -> None: ...


class OpenFilesLimit(NamedTuple):
    before: int
    now: int


_MACOS_MAX = 10_240  # OPEN_MAX: a larger soft limit is refused there though the hard one is infinite


_SEALED_FILES_MIN, _SEALED_FILES_MAX = 64, 8192


def sealed_files_max(limits: Limits | None = None) -> int:
    """How many sealed files may be open at once: a quarter of what the process may have, the rest is for other things."""
    system: Limits = resource if limits is None else limits
    soft, _ = system.getrlimit(system.RLIMIT_NOFILE)
    return _SEALED_FILES_MAX if soft < 0 else min(max(soft // 4, _SEALED_FILES_MIN), _SEALED_FILES_MAX)


def raise_open_files_limit(limits: Limits | None = None) -> OpenFilesLimit:
    """Raises the soft limit to the hard one, once, at the start of a broker. Where that is refused it stays as it is."""
    system: Limits = resource if limits is None else limits
    soft, hard = system.getrlimit(system.RLIMIT_NOFILE)
    for wanted in (hard, _MACOS_MAX):
        if soft == system.RLIM_INFINITY or soft == wanted or 0 <= wanted < soft:
            break
        try:
            system.setrlimit(system.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        return OpenFilesLimit(soft, wanted)
    return OpenFilesLimit(soft, soft)
