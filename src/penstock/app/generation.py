"""The generation of a broker's logs: kept on disk, told in its registration, drawn anew when the logs may have lost something.

A file `.penstock-generation` in each log directory: the generation, the machine's boot id, and how many directories were in use, a line each.
Drawn anew where a directory has no such file (an empty disk) or another one's, where one of them is away, or where one was not closed cleanly and
the machine was started since: a killed process loses nothing, what it wrote is in the machine's memory; a machine that went down may. So may a disk
that failed and can be used again: with the first failure of a directory the file is removed, from all of them that can still be written. A crash
between two of the writes leaves directories that differ, and the next start draws again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial

from penstock.base.files import Files
from penstock.storage.checkpoints import write_atomically
from penstock.storage.directory_state import DirectoryState

FILE_NAME = ".penstock-generation"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_UNKNOWN = ("", "", "")


def read_boot_id() -> str:
    """Of this start of the machine; empty where the system does not say, which is like a new one each time."""
    with contextlib.suppress(OSError), open(_BOOT_ID) as source:
        return source.read().strip()
    return ""


def take_generation(
    files: Files, directories: Iterable[DirectoryState], boot_id: str, new_generation: Callable[[], str]
) -> str:
    """After the directories were opened, before the broker is registered. From here on one that fails is not trusted any more."""
    states = list(directories)
    known = {_read(files, state.path) for state in states}
    generation, told_boot_id, count = next(iter(known)) if len(known) == 1 else _UNKNOWN
    is_same_boot = boot_id != "" and boot_id == told_boot_id
    if count != str(len(states)) or not (is_same_boot or all(state.was_clean for state in states)):
        generation = new_generation()
    for state in states:
        state.health.failed = partial(_distrust, files, states)
        write_atomically(files, f"{state.path}/{FILE_NAME}", f"{generation}\n{boot_id}\n{len(states)}\n".encode())
    return generation


def _distrust(files: Files, directories: list[DirectoryState]) -> None:
    """One of them failed: what was written there and not synced may be gone when it is back. The next start draws a new generation."""
    for state in sorted(directories, key=lambda one: one.health.failure is not None):  # what still works first
        with contextlib.suppress(OSError):
            files.remove(f"{state.path}/{FILE_NAME}")


def _read(files: Files, directory: str) -> tuple[str, str, str]:
    try:
        lines = files.read(f"{directory}/{FILE_NAME}").decode().splitlines()
        generation, boot_id, count = lines
    except (FileNotFoundError, ValueError):
        return _UNKNOWN
    return generation, boot_id, count
