"""A flush: the part of it that waits for the disk, made so that any thread can run it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.files import Files
from penstock.storage import checkpoints, names
from penstock.storage.checkpoints import EpochStart


class FlushJob(NamedTuple):
    """Syncs the files of some segments, and their directory once. Safe on any thread: it opens its own descriptors."""

    files: Files
    directory: str
    bases: list[int]
    sync_names: bool
    snapshots: list[int]
    leader_epochs: tuple[EpochStart, ...] | None
    end_offset: int
    epoch: int

    def run(self) -> None:
        """A file that went away meanwhile (retention, topic deletion) needs no sync (KAFKA-15391)."""
        kinds = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
        wanted = [names.segment_file(base, kind) for base in self.bases for kind in kinds]
        wanted += [names.segment_file(offset, names.SNAPSHOT) for offset in self.snapshots]
        for name in wanted:
            try:
                file = self.files.open(f"{self.directory}/{name}")
            except FileNotFoundError:
                continue
            try:
                file.sync()
            finally:
                file.close()
        try:
            if self.leader_epochs is not None:  # which syncs the directory too, and all other names with it
                checkpoints.write_epochs(self.files, f"{self.directory}/{names.LEADER_EPOCHS}", self.leader_epochs)
            elif self.sync_names or self.snapshots:
                self.files.sync_directory(self.directory)
        except FileNotFoundError:
            return
