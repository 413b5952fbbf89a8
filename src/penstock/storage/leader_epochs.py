"""Leader epoch history (row S11): at which offset each leader's reign began.

Bytes: `leader-epoch-checkpoint`, see `checkpoints`. Invariants: epochs rise, start offsets do not fall; the first entry
may start below the log's start only by being clamped to it. The file is written by each flush before the recovery
point moves, never on the way of an append: a crash leaves the epochs of every batch below the recovery point, and
recovery takes the later ones from the batches. Who may call: `partition_log`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from penstock.storage.checkpoints import EpochStart

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Pure: `dirty` says that the file on disk says something else."""

    __slots__ = ("_entries", "_written")

    def __init__(self, entries: Sequence[EpochStart] = ()) -> None:
        """`entries` are those of the file."""
        self._entries: list[EpochStart] = []
        self._written: tuple[EpochStart, ...] | None = tuple(entries)
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def dirty(self) -> bool:
        """An epoch that was dropped and came back is none that has to be written: so it goes with each start of an idle log."""
        return self._written is None or self._written != tuple(self._entries)

    def is_written_below(self, end_offset: int) -> bool:
        """Whether the file says of a log that ends at `end_offset` what is to be said. An epoch that begins there has written
        nothing, and whoever opens the log, Kafka too, drops it: nobody has to wait for it at a stop."""
        if self._written is None:
            return False
        told, wanted = (
            [one for one in every if one.start_offset < end_offset] for every in (self._written, self._entries)
        )
        return told == wanted

    def distrust_file(self) -> None:
        """Nobody knows what the file says: it is to be written, whatever the entries are."""
        self._written = None

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    @property
    def earliest(self) -> EpochStart | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records that `epoch` begins at `start_offset`; says whether that was news.

        A later entry that contradicts it (an epoch at or above, or a start at or beyond) is dropped: the new fact wins.
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """(largest known epoch <= `epoch`, where it ends): what OffsetsForLeaderEpoch answers (KIP-101, KIP-279)."""
        entries = self._entries
        if epoch < 0 or not entries:
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == entries[-1].epoch:
            return EpochStart(epoch, log_end_offset)
        slot = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if slot == len(entries):
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if slot == 0:
            return EpochStart(epoch, entries[0].start_offset)
        return EpochStart(entries[slot - 1].epoch, entries[slot].start_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that began at or beyond it never were."""
        entries = self._entries
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that holds it is kept, and starts there."""
        entries = self._entries
        slot = bisect_right(entries, start_offset, key=lambda entry: entry.start_offset)
        if slot == 0 or (slot == 1 and entries[0].start_offset == start_offset):
            return
        kept = EpochStart(entries[slot - 1].epoch, start_offset)
        entries[:slot] = [kept]

    def take_dirty(self) -> tuple[EpochStart, ...] | None:
        """The entries, if the file on disk says something else; the caller writes them."""
        if not self.dirty:
            return None
        self._written = tuple(self._entries)
        return self._written

    def restart(self) -> tuple[EpochStart, ...]:
        """Clears them; the caller writes what is returned, whatever the file says."""
        self._entries.clear()
        self._written = ()
        return self._written

    def clear(self) -> None:
        self._entries.clear()
