"""The checkpoints of one log directory: frozen on the loop, written on any thread, in the order in which they were frozen.

A checkpoint that was frozen earlier and comes to its turn later must not undo a newer one: a recovery point that was lowered
before a truncation would be high again on disk, and no recovery would look at what is cut. So each has a number, and what is older
than what stands there is not written. Numbers live as long as the process, which alone writes these files (`.lock`).
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

    def freeze(self, offsets: Mapping[TopicPartition, int]) -> FrozenOffsets:
        """`offsets` is the caller's to give away."""
        self._frozen += 1
        return FrozenOffsets(self, self._frozen, offsets)

    def write(self, frozen: FrozenOffsets) -> None:
        with self._lock:
            if frozen.number > self.written:
                checkpoints.write_offsets(self._files, self.path, frozen.offsets)
                self.written = frozen.number
