"""The checkpoints of one log directory: frozen on the loop, written on any thread, in the order in which they were frozen.

A checkpoint that was frozen earlier and comes to its turn later must not undo a newer one: a recovery point that was lowered
before a truncation would be high again on disk, and no recovery would look at what is cut. So each has a number, and what is older
than what stands there is not written, nor is what it says of a partition that was deleted since: a topic made again under its name would find the
old one's offsets after a crash. Numbers live as long as the process, which alone writes these files (`.lock`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints


class FrozenOffsets(NamedTuple):
    """A checkpoint as it was when it was frozen. `write` is a job for any thread."""

    file: OffsetFile
    number: int
    offsets: Mapping[TopicPartition, int]

    def write(self) -> None:
        self.file.write(self)


class OffsetFile:
    """One file. `freeze` on the loop; the rest anywhere."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._frozen = 0
        self._lock = threading.Lock()
        self.written = 0
        """The number of the newest that is on disk."""
        self._deleted: dict[TopicPartition, int] = {}
        """The newest number that may still speak of a partition that is gone."""

    def freeze(self, offsets: Mapping[TopicPartition, int]) -> FrozenOffsets:
        """`offsets` is the caller's to give away."""
        self._frozen += 1
        return FrozenOffsets(self, self._frozen, offsets)

    def forget(self, partition: TopicPartition) -> None:
        """On the loop: whatever is frozen by now says nothing of this partition any more."""
        with self._lock:
            self._deleted[partition] = self._frozen

    def write(self, frozen: FrozenOffsets) -> None:
        with self._lock:
            if frozen.number <= self.written:
                return
            deleted = self._deleted
            kept = {key: offset for key, offset in frozen.offsets.items() if deleted.get(key, 0) < frozen.number}
            checkpoints.write_offsets(self._files, self.path, kept)
            self.written = frozen.number
            self._deleted = {key: number for key, number in deleted.items() if number > frozen.number}
