"""Keeping away from a directory that another process works in.

A reader takes a shared lock on `.lock` where there is one: two readers get on, a broker's exclusive lock refuses them, and
a broker that starts meanwhile is told that the directory is in use. It creates nothing. A writer takes the broker's lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.base.errors import DirectoryLockedError
from penstock.base.files import Files
from penstock.storage import names

_LINUX_FLOCK = "hhqqi"
"""`struct flock`: type, whence, start, length, process."""


@contextmanager
def reading(homes: list[str], *, live: bool) -> Iterator[None]:
    """Holds every directory still for reading. A live one is read as it is."""
    with ExitStack() as stack:
        for home in () if live else homes:
            stack.enter_context(_shared(home))
        yield


@contextmanager
def _shared(home: str) -> Iterator[None]:
    try:
        descriptor = os.open(f"{home}/{names.LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise DirectoryLockedError(
                f"{home} is in use by another process (it holds {names.LOCK}); stop it, or read on with --live"
            ) from error
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writing(files: Files, homes: list[str]) -> Iterator[None]:
    """Holds every directory as a broker would."""
    with ExitStack() as stack:
        for home in homes:
            stack.callback(files.lock(f"{home}/{names.LOCK}").release)
        yield


def holder(home: str) -> int | None:
    """The process that works in a directory as a broker does; None where none does, or the system does not say."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(f"{home}/{names.LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_LINUX_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, pid = struct.unpack(_LINUX_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return pid if kind == fcntl.F_WRLCK and pid > 0 else None
