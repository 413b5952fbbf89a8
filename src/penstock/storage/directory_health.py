"""Whether a log directory still works (rows S17, S21): the first I/O error takes all of it offline."""

from __future__ import annotations

from penstock.base.errors import StorageError


class DirectoryHealth:
    """Shared by the logs of one directory; after the first failure nothing is appended to any of them."""

    __slots__ = ("failure", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None

    def fail(self, error: OSError) -> StorageError:
        if self.failure is None:
            self.failure = f"log directory {self.path} is offline: {error}"
        return StorageError(self.failure)

    def check(self) -> None:
        if self.failure is not None:
            raise StorageError(self.failure)
