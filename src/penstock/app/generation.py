"""The generation of a broker's logs: kept on disk, told in its registration, drawn anew when the logs may have lost something.

A file `.penstock-generation` in each log directory: the generation and the machine's boot id, a line each. Drawn anew where a directory
has no such file (an empty disk) or another one's, or where one was not closed cleanly and the machine was started since: a
killed process loses nothing, what it wrote is in the machine's memory; a machine that went down may. So may a disk that failed and can be used
again: the file is removed where a directory fails, from all of them that can still be written. A crash between two of the
writes leaves directories that differ, and the next start draws again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from penstock.base.files import Files
from penstock.storage.checkpoints import write_atomically
from penstock.storage.directory_state import DirectoryState

FILE_NAME = ".penstock-generation"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def read_boot_id() -> str:
    """Of this start of the machine; empty where the system does not say, which is like a new one each time."""
    with contextlib.suppress(OSError), open(_BOOT_ID) as source:
        return source.read().strip()
    return ""


def take_generation(
    files: Files, directories: Iterable[DirectoryState], boot_id: str, new_generation: Callable[[], str]
) -> str:
    """After the directories were opened, before the broker is registered."""
    states = list(directories)
    known = {_read(files, state.path) for state in states}
    generation, told_boot_id = next(iter(known)) if len(known) == 1 else ("", "")
    is_same_boot = boot_id != "" and boot_id == told_boot_id
    if not generation or not (is_same_boot or all(state.was_clean for state in states)):
        generation = new_generation()
    for state in states:
        write_atomically(files, f"{state.path}/{FILE_NAME}", f"{generation}\n{boot_id}\n".encode())
    return generation


def distrust(files: Files, directories: Iterable[DirectoryState]) -> None:
    """One of them failed: what was written there and not synced may be gone when it is back. The next start draws a new generation."""
    for state in sorted(directories, key=lambda one: one.health.failure is not None):  # what still works first
        with contextlib.suppress(OSError):
            files.remove(f"{state.path}/{FILE_NAME}")


def _read(files: Files, directory: str) -> tuple[str, str]:
    try:
        lines = files.read(f"{directory}/{FILE_NAME}").decode().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return "", ""
    return (lines[0], lines[1]) if len(lines) == 2 else ("", "")
