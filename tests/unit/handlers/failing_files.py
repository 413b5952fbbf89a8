"""The machine's files, of which some refuse to be synced, made or read."""

from __future__ import annotations

import errno

from penstock.base.files import File, SystemFiles


class FailingFiles(SystemFiles):
    """Everything under a path in `broken` fails with EIO where it would wait for the disk."""

    def __init__(self) -> None:
        self.broken: set[str] = set()

    def _check(self, path: str) -> None:
        if any(path.startswith(prefix) for prefix in self.broken):
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str) -> File:
        self._check(path)
        return super().open(path)

    def create(self, path: str, *, preallocate_bytes: int = 0) -> File:
        self._check(path)
        return super().create(path, preallocate_bytes=preallocate_bytes)

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._check(path)
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._check(path)
        super().sync_directory(path)
