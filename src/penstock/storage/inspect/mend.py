"""Mending what can be proven mendable: whatever the log itself can tell again, and nothing that is data.

A bad batch is data: cutting it means cutting everything behind it, which only `force` allows. A last write that was cut
off is not, no start keeps it. What is cut stays beside the log as `.cut`. Every step is written aside and renamed into
place, so that a crash leaves the old file or the new one. Who may call: whoever holds the directory's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.base.clock import Clock
from penstock.base.errors import CorruptFileError
from penstock.base.files import Files
from penstock.records.batch import Batch
from penstock.storage import checkpoints, cuts, names
from penstock.storage.clean_up import clean_up
from penstock.storage.inspect.places import DirectoryPlace, PartitionPlace, file_place, is_kafkas_own
from penstock.storage.inspect.problems import Cure, Problem
from penstock.storage.inspect.reopen import marker_lifted, refuse_old_format, reopen
from penstock.storage.inspect.verify import (
    PartitionSummary,
    Progress,
    quick_end_offset,
    verify_checkpoints,
    verify_partition,
)
from penstock.storage.inspect.verify_segment import OpenTransactions, SegmentCheck, SegmentRequest
from penstock.storage.inspect.walk import Broken, Found, LogWalk
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.producer_replay import end_marker, restore_snapshot
from penstock.storage.producer_snapshot import Snapshots
from penstock.storage.producer_state import EndMarker, Producers
from penstock.storage.segment import Indexer
from penstock.storage.time_index import TimeIndex
from penstock.storage.transaction_index import ENTRY_BYTES, AbortedTransaction, entry_bytes, read_entries

Say = Callable[[str, str], None]
"""Told of each change: the file, and what was done to it."""

_INDEX_INTERVAL_BYTES = 4096


class Mender(NamedTuple):
    """Mends the partitions of one log directory, or one partition that stands alone (`home` is None)."""

    files: Files
    clock: Clock
    home: str | None
    say: Say
    force: bool = False

    def mend_partition(self, place: PartitionPlace, progress: Progress = lambda _bytes: None) -> list[Problem]:
        """Mends what it may; returns the problems that are left."""
        refuse_old_format(self.files, place.path)
        problems, summary = self._look(place, progress)
        unfinished = any(problem.cure is Cure.LEFTOVERS for problem in problems)
        if (unfinished or summary.waiting) and self._clear_leftovers(place):
            problems, summary = self._look(place, progress)
        if self._cut(place, problems, summary):
            problems, summary = self._look(place, progress)
        done = {id(problem) for problem in problems if self._mend(place, summary, problem)}
        if done:
            self.files.sync_directory(place.path)
        return [problem for problem in problems if id(problem) not in done]

    def _look(self, place: PartitionPlace, progress: Progress) -> tuple[list[Problem], PartitionSummary]:
        problems: list[Problem] = []
        summary = verify_partition(self.files, place, problems.append, progress=progress)
        return problems, summary

    def _clear_leftovers(self, place: PartitionPlace) -> bool:
        """Completes or drops what a start would. A bad swap that would take other segments' place stays; with force it
        is set aside, and they stay."""
        listed = self.files.list(place.path)
        bases = [
            parsed[0] for parsed in map(names.parse_segment_file, listed) if parsed and parsed[1:] == (names.LOG, "")
        ]
        for name in listed:
            known = file_place(f"{place.path}/{name}")
            if known is None or known.suffix != names.SWAP or known.kind.value != names.LOG:
                continue
            request = SegmentRequest(place.path, known.base_offset, True, False, names.SWAP)
            check = SegmentCheck(self.files, request, OpenTransactions(), lambda _problem: None).run()
            if not check.broken:
                continue
            if not self.force:
                return False
            if any(known.base_offset <= base < max(check.end_offset, known.base_offset + 1) for base in bases):
                moved = cuts.set_aside(self.files, known.path)
                self.say(known.path, f"set aside as {_name(moved)}: it is broken, and what it should replace is there")
        before = set(self.files.list(place.path))
        with marker_lifted(self.files, self.home):
            clean_up(self.files, place.path)
            self.files.sync_directory(place.path)
        for name in sorted(before - set(self.files.list(place.path))):
            self.say(f"{place.path}/{name}", "cleared, as a start does")
        return True

    # The log.
    def _cut(self, place: PartitionPlace, problems: list[Problem], summary: PartitionSummary) -> bool:
        """Cuts a torn tail; with force, everything from the first bad batch on."""
        wanted = [problem for problem in problems if problem.cure in (Cure.CUT, Cure.TAIL)]
        if not wanted or (not self.force and any(problem.cure is Cure.CUT for problem in wanted)):
            return False
        first = min(wanted, key=lambda problem: (problem.path, problem.position or 0))
        base = _base_of(first.path)
        position = first.position or 0
        before = [segment.base_offset for segment in summary.segments if segment.base_offset < base]
        behind = [segment.base_offset for segment in summary.segments if segment.base_offset > base]
        with marker_lifted(self.files, self.home):
            if position == 0 and before:  # nothing of it stays: it goes aside like those behind it
                action = ""
                behind.insert(0, base)
            else:
                action = self._keep_tail(first.path, position)  # may fail, so it comes before anything changes
            for found in reversed(behind):
                self._set_aside(place, found)
            if action:
                self.files.truncate(first.path, position)
                self._sync(first.path)
                self.say(first.path, action)
            self.files.sync_directory(place.path)
            reopen(self.files, self.clock, place, self.home, recovery_point=base if action else before[-1])
        return True

    def _set_aside(self, place: PartitionPlace, base: int) -> None:
        moved = cuts.set_segment_aside(self.files, place.path, base)
        self.say(
            f"{place.path}/{names.segment_file(base, names.LOG)}",
            f"set aside as {_name(moved)}: it lies behind the cut",
        )

    def _keep_tail(self, path: str, position: int) -> str:
        """Keeps the bytes from `position` on aside, unless they are zeroes; what to say of the cut."""
        file = self.files.open_read(path)
        try:
            length = file.size() - position
            kept = cuts.keep_tail(self.files, file, position)
        finally:
            file.close()
        where = f", kept as {_name(kept)}" if kept else " of zeroes"
        return f"cut at position {position}: {length} bytes{where}"

    # What the log can tell again.
    def _mend(self, place: PartitionPlace, summary: PartitionSummary, problem: Problem) -> bool:
        path = problem.path
        if problem.cure is Cure.REMOVE:
            if self.files.exists(path):
                self.files.remove(path)
                self.say(path, f"removed: {problem.reason}")
            return True
        if problem.cure is Cure.EPOCHS and summary.is_whole:
            checkpoints.write_epochs(self.files, path, summary.epochs)
            self.say(path, f"written anew from the batches: {len(summary.epochs)} epochs")
            return True
        if problem.cure not in (Cure.INDEXES, Cure.TRANSACTION_INDEX):
            return False
        base = _base_of(path)
        if any(segment.broken for segment in summary.segments if segment.base_offset == base):
            return False
        if problem.cure is Cure.INDEXES:
            return self._rebuild_indexes(place, base, path)
        if any(segment.is_damaged for segment in summary.segments if segment.base_offset < base):
            return False  # a marker that is lost there decides what begins here
        return self._rebuild_transactions(place, summary, base, path)

    def _rebuild_indexes(self, place: PartitionPlace, base: int, path: str) -> bool:
        log_path = f"{place.path}/{names.segment_file(base, names.LOG)}"
        targets = [f"{place.path}/{names.segment_file(base, kind)}" for kind in (names.OFFSET_INDEX, names.TIME_INDEX)]
        temporary = [f"{target}.tmp" for target in targets]
        offset_index = OffsetIndex(self.files, temporary[0], base)
        time_index = TimeIndex(self.files, temporary[1], base)
        file = self.files.open_read(log_path)
        try:
            entries_max = file.size() // _INDEX_INTERVAL_BYTES + 4
            for index in (offset_index, time_index):
                if self.files.exists(index.path):
                    self.files.remove(index.path)
                index.open_active(entries_max * index.entry_bytes)
            indexer = Indexer(offset_index, time_index, _INDEX_INTERVAL_BYTES)
            for piece in LogWalk(file, base):
                assert isinstance(piece, Found), "a broken log's indexes are not rebuilt"
                indexer.add([piece.batch])
            indexer.finish()
        finally:
            file.close()
            offset_index.close()
            time_index.close()
        for source, target in zip(temporary, targets, strict=True):
            self._sync(source)
            self.files.rename(source, target)
        self.say(path, f"rebuilt: {offset_index.entries} offset entries, {time_index.entries} time entries")
        return True

    def _sync(self, path: str) -> None:
        file = self.files.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _rebuild_transactions(self, place: PartitionPlace, summary: PartitionSummary, base: int, path: str) -> bool:
        """From the markers; a transaction that began before the log does is taken from the old file's good entries."""
        known = {entry.last_offset: entry for entry in self._known_aborts(path)}
        entries = []
        for offset, producer_id, entry in self._aborts(place, summary, base):
            old = known.get(offset)
            if entry is not None:
                entries.append(entry)
            elif old is not None and old.producer_id == producer_id:
                entries.append(old)
        if entries:
            checkpoints.write_atomically(self.files, path, b"".join(map(entry_bytes, entries)))
        elif self.files.exists(path):
            self.files.remove(path)
        self.say(path, f"written anew from the markers: {len(entries)} aborted transactions")
        return True

    def _known_aborts(self, path: str) -> list[AbortedTransaction]:
        data = self.files.read(path) if self.files.exists(path) else b""
        try:
            return read_entries(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], path)
        except CorruptFileError:
            return []

    def _aborts(
        self, place: PartitionPlace, summary: PartitionSummary, base: int
    ) -> Iterator[tuple[int, int, AbortedTransaction | None]]:
        """(offset, producer id, entry) of each abort marker in a segment; no entry where nothing of its data is known.

        All of the log before it is read: a snapshot in between may be whole and yet not this log's.
        """
        offsets = [
            parsed[0]
            for parsed in map(names.parse_segment_file, self.files.list(place.path))
            if parsed is not None and parsed[1:] == (names.SNAPSHOT, "")
        ]
        producers = Producers()
        first = min((segment.base_offset for segment in summary.segments), default=base)
        start = restore_snapshot(producers, Snapshots(self.files, place.path, offsets), first)
        for segment in summary.segments:
            if segment.base_offset > base:
                return
            for batch, marker in self._producer_batches(place, segment.base_offset, start):
                completed = producers.update(batch, marker)
                entry = None
                if completed is not None:
                    stable = producers.last_stable_offset_after(completed)
                    entry = AbortedTransaction(
                        completed.producer_id, completed.first_offset, completed.last_offset, stable
                    )
                    producers.complete(completed)
                if marker is not None and not marker.commit and segment.base_offset == base:
                    yield batch.base_offset, batch.producer_id, entry

    def _producer_batches(
        self, place: PartitionPlace, base: int, start: int
    ) -> Iterator[tuple[Batch, EndMarker | None]]:
        file = self.files.open_read(f"{place.path}/{names.segment_file(base, names.LOG)}")
        try:
            for piece in LogWalk(file, base):
                if isinstance(piece, Broken) or piece.batch.producer_id < 0 or piece.batch.base_offset < start:
                    continue
                batch = piece.batch
                yield batch, end_marker(piece.data, batch._replace(position=piece.start)) if batch.is_control else None
        finally:
            file.close()

    # The log directory.
    def mend(self, place: PartitionPlace | DirectoryPlace, progress: Progress = lambda _bytes: None) -> list[Problem]:
        """Mends a partition, or all of a directory and its checkpoints; returns the problems that are left."""
        if isinstance(place, PartitionPlace):
            return self.mend_partition(place, progress)
        partitions = [partition for partition in place.partitions if not is_kafkas_own(partition)]
        for partition in partitions:
            refuse_old_format(self.files, partition.path)
        left: list[Problem] = []
        for partition in partitions:
            left += self.mend_partition(partition, progress)
        remaining: list[Problem] = []
        verify_checkpoints(self.files, place, remaining.append)
        for name in {_name(problem.path): None for problem in remaining if problem.cure is Cure.CHECKPOINT}:
            self._mend_checkpoint(place, name)
        return left + [problem for problem in remaining if problem.cure is not Cure.CHECKPOINT]

    def _mend_checkpoint(self, place: DirectoryPlace, name: str) -> None:
        """An unreadable checkpoint is set aside, which is safe: without it a start looks further back."""
        path = f"{place.path}/{name}"
        try:
            offsets = checkpoints.read_offsets(self.files, path)
        except CorruptFileError as error:
            moved = cuts.set_aside(self.files, path)
            self.files.sync_directory(place.path)
            self.say(path, f"set aside as {_name(moved)}: {error.reason}")
            return
        for partition in place.partitions:
            end_offset = quick_end_offset(self.files, partition)
            if partition.partition is not None and offsets.get(partition.partition, 0) > end_offset:
                self.say(path, f"{partition.partition} lowered from {offsets[partition.partition]} to {end_offset}")
                offsets[partition.partition] = end_offset
        checkpoints.write_offsets(self.files, path, offsets)


def _base_of(path: str) -> int:
    place = file_place(path)
    assert place is not None
    return place.base_offset


def _name(path: str) -> str:
    return path.rpartition("/")[2]
