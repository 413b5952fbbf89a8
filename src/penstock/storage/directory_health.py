"""Whether a log directory still works (rows S17, S21): the first I/O error takes all of it offline."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.errors import StorageError


class DirectoryHealth:
    """Shared by the logs of one directory; after the first failure, or when it is closed, nothing is appended to any of them."""

    __slots__ = ("failed", "failure", "is_closed", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        self.failed: Callable[[], object] = lambda: None
        """Called with the first failure, on the thread that met it, before anybody else hears of it."""
        self.is_closed = False
        """Its logs are being flushed for the last time, on threads: whatever comes late is refused."""

    def fail(self, error: OSError) -> StorageError:
        if self.failure is None:
            self.failure = f"log directory {self.path} is offline: {error}"
            self.failed()
        return StorageError(self.failure)

    def check(self) -> None:
        self.check_failure()
        if self.is_closed:
            raise StorageError(f"log directory {self.path} is closed")

    def check_failure(self) -> None:
        if self.failure is not None:
            raise StorageError(self.failure)
