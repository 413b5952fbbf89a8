"""One log directory that is open: its lock, its health, and what it remembers beside its logs."""

from __future__ import annotations

from penstock.base.files import Lock
from penstock.base.ids import TopicPartition
from penstock.storage.directory_health import DirectoryHealth


class DirectoryState:
    __slots__ = ("cleaner_offsets", "health", "lock", "marker", "path", "was_clean")

    def __init__(self, path: str, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        self.health = DirectoryHealth(path)
        self.marker: bytes | None = None
        self.was_clean = False
        self.cleaner_offsets: dict[TopicPartition, int] = {}
