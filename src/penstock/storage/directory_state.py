"""One log directory that is open: its lock, its health, and what it remembers beside its logs."""

from __future__ import annotations

from penstock.base.files import Files, Lock
from penstock.base.ids import TopicPartition
from penstock.storage import names
from penstock.storage.directory_health import DirectoryHealth
from penstock.storage.offset_files import FrozenOffsets, OffsetFile


class DirectoryState:
    __slots__ = ("cleaner_offsets", "health", "lock", "lowered", "marker", "offset_files", "path", "was_clean")

    def __init__(self, path: str, lock: Lock, files: Files) -> None:
        self.path = path
        self.lock = lock
        self.health = DirectoryHealth(path)
        self.marker: bytes | None = None
        self.was_clean = False
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.offset_files = {
            name: OffsetFile(files, f"{path}/{name}")
            for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS, names.CLEANER_OFFSETS)
        }
        self.lowered: dict[TopicPartition, tuple[FrozenOffsets, ...]] = {}
        """Checkpoints with offsets that were lowered before a cut: it waits until they, or newer ones, are on disk."""
