"""Files that are out of a log and wait for `file.delete.delay.ms`: renamed `.deleted`, still open for who reads them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.clock import Clock
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import Snapshots
from penstock.storage.segment import Segment


class Removals:
    def __init__(self, clock: Clock, snapshots: Snapshots) -> None:
        self._clock = clock
        self._snapshots = snapshots
        self.pending: list[tuple[int, list[str]]] = []
        """(monotonic ms when due, paths)."""

    def add(self, segments: Sequence[Segment], log: Log, keep_snapshot: int = -1) -> None:
        """Segments that were taken out of the log; their snapshots go with them (KAFKA-5752)."""
        due_ms = self._clock.monotonic_ms() + log.config.file_delete_delay_ms
        paths = [path for segment in segments for path in segment.all_paths()]
        for segment in segments:
            if segment.base_offset != keep_snapshot:
                paths += self._snapshots.set_aside(segment.base_offset)
        first = log.segments[0].base_offset
        for offset in [known for known in self._snapshots.offsets if known < first]:  # KAFKA-9105
            paths += self._snapshots.set_aside(offset)
        self.pending.append((due_ms, paths))

    def take_due(self, *, everything: bool = False) -> list[str]:
        """Files whose delay has passed, handed out once; the caller unlinks them, off the loop."""
        now_ms = self._clock.monotonic_ms()
        due = [paths for due_ms, paths in self.pending if everything or due_ms <= now_ms]
        self.pending = [pending for pending in self.pending if not (everything or pending[0] <= now_ms)]
        return [path for paths in due for path in paths]
