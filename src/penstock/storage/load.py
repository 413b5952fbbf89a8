"""Opening a partition's directory (rows S15 and S16): clean up what a crash left, load, recover if need be.

Each step is safe to be cut and run again:
1. to 3. What an unfinished change left is completed or dropped (`clean_up`).
4. After an unclean stop, segments from the recovery point on are recovered; what follows a cut is renamed `.cut`. So are
   those that contradict a clean marker, have a bad transaction index, or hold offsets that must be split (`split`).
5. Producers come from the newest good snapshot and the batches after it; epochs are trimmed to the log.
There is always an active segment at the end, and no input makes this fail twice in the same way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from penstock.base.clock import Clock
from penstock.base.errors import CorruptFileError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.base.jobs import InlineJobs, Jobs
from penstock.storage import checkpoints, cuts, names
from penstock.storage.clean_up import DirectoryNames, clean_up, segment_end
from penstock.storage.config import LogConfig
from penstock.storage.directory_health import DirectoryHealth
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_replay import recall, replay, restore_snapshot
from penstock.storage.producer_snapshot import Snapshots
from penstock.storage.producer_state import Producers
from penstock.storage.recovery import SegmentReport, recover_segment
from penstock.storage.segment import RELATIVE_OFFSET_MAX, ActiveSegment, OpenFiles, Segment
from penstock.storage.split import split_segment
from penstock.storage.time_index import NO_TIMESTAMP, TimeIndex
from penstock.storage.transaction_index import AbortedTransaction, TransactionIndex, read_entries


class LoadRequest(NamedTuple):
    """What is known of a partition before its directory is opened."""

    partition: TopicPartition
    directory: str
    config: LogConfig
    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    gaps_are_holes: bool = False
    """Whether a gap between two unflushed segments means lost data (any topic that is not compacted)."""
    synced: bool = False
    """Whether all that lies there is on disk: a clean end saw to it. A new log's directory is clean, and never was synced."""


class LoadReport(NamedTuple):
    """What opening a partition did, for people and metrics."""

    partition: TopicPartition
    segments: int
    recovered: list[SegmentReport]
    cut_segments: list[int]
    end_offset: int
    cut_names: Sequence[str] = ()
    """The files that the cut segments' logs are now, in the same order."""


def load_partition(
    request: LoadRequest,
    files: Files,
    clock: Clock,
    health: DirectoryHealth,
    open_files: OpenFiles,
    *,
    jobs: Jobs | None = None,
    jitter_for: Callable[[LogConfig], int] = lambda _config: 0,
    started: Callable[[int], None] = lambda _segments: None,
    progress: Callable[[SegmentReport], None] = lambda _report: None,
) -> tuple[PartitionLog, LoadReport]:
    """Opens one partition's directory; see the module for the order."""
    directory = request.directory
    listed = files.list(directory) if request.synced else []
    found = clean_up(files, directory)
    recovered = _recover(request, files, found, jobs or InlineJobs(), started, progress)
    try:
        log = _open_log(request, files, clock, open_files, recovered)
    except CorruptFileError:
        if not request.clean:
            raise
        request = request._replace(clean=False)  # the marker lied: file and indexes contradict each other
        recovered = _recover(request, files, found, jobs or InlineJobs(), started, progress)
        log = _open_log(request, files, clock, open_files, recovered)
    bases, reports, cut, cut_names = recovered
    partition_log = _assemble(request, files, clock, health, log, found.snapshots, reports, jitter_for)
    if not request.clean:
        _remove_below_start(partition_log)
    elif request.synced and not reports and set(files.list(directory)) <= set(listed):
        partition_log.found_synced()  # what was only removed, as the snapshot at an earlier end, each start removes again
    return partition_log, LoadReport(request.partition, len(bases), reports, cut, partition_log.end_offset, cut_names)


class _Recovered(NamedTuple):
    """The segments that remain, what was found in those that were recovered, those that were set aside, and as what."""

    bases: list[int]
    reports: list[SegmentReport]
    cut: list[int]
    cut_names: list[str]


def _recover(
    request: LoadRequest,
    files: Files,
    found: DirectoryNames,
    jobs: Jobs,
    started: Callable[[int], None],
    progress: Callable[[SegmentReport], None],
) -> _Recovered:
    """Step 4."""
    directory, bases = request.directory, found.logs
    unflushed = [] if request.clean else _unflushed(bases, request.recovery_point)
    doubtful = unflushed[:1] or _active_without_index(files, directory, bases)
    doubtful += _overflowing(files, directory, bases) + _with_bad_transaction_index(files, directory, found)
    wanted = [base for base in bases if base >= min(doubtful)] if doubtful else []
    reports: list[SegmentReport] = []
    cut: list[int] = []
    started(len(wanted))
    recover = partial(
        recover_segment,
        files,
        directory,
        index_interval_bytes=request.config.index_interval_bytes,
        log_start_offset=request.log_start_offset,
    )
    for report in jobs.run(partial(recover, base_offset=base) for base in wanted):
        if cut:
            continue
        if reports and _is_hole(reports[-1], report, request.gaps_are_holes and reports[-1].base_offset in unflushed):
            cut = [base for base in bases if base >= report.base_offset]
            continue
        if report.overflows:
            parts = split_segment(files, directory, report.base_offset)
            bases = sorted({*bases, *parts})
            reports += [recover(base_offset=base) for base in parts]
        else:
            reports.append(report)
        progress(report)
    return _Recovered([base for base in bases if base not in set(cut)], reports, cut, _set_aside(files, directory, cut))


def _set_aside(files: Files, directory: str, bases: list[int]) -> list[str]:
    """Renames segments behind a cut to `.cut`, newest first; their names then."""
    moved = [cuts.set_segment_aside(files, directory, base) for base in sorted(bases, reverse=True)]
    if moved:
        files.sync_directory(directory)  # or a power cut brings them back, beside what was appended since
    return [path.rpartition("/")[2] for path in reversed(moved)]


def _overflowing(files: Files, directory: str, bases: list[int]) -> list[int]:
    """Sealed segments with offsets that their indexes cannot name (KAFKA-6264); only a wide gap makes one possible."""
    found = []
    for base, following in pairwise(bases):
        if following - base > RELATIVE_OFFSET_MAX + 1:
            segment = Segment(files, directory, base, 0, OpenFiles())
            segment.size_bytes = files.size(segment.path(names.LOG))
            if segment_end(segment) - 1 - base > RELATIVE_OFFSET_MAX:
                found.append(base)
            segment.close()
    return found


def _with_bad_transaction_index(files: Files, directory: str, found: DirectoryNames) -> list[int]:
    """Segments whose aborted transactions cannot be read: only a replay of the log can name them again."""
    bad = []
    for base in found.transaction_indexes:
        path = f"{directory}/{names.segment_file(base, names.TRANSACTION_INDEX)}"
        try:
            offsets = [base - 1] + [entry.last_offset for entry in read_entries(files.read(path), path)]
        except CorruptFileError:
            bad.append(base)
            continue
        if any(later <= earlier for earlier, later in pairwise(offsets)):
            bad.append(base)
    return bad


def _is_hole(before: SegmentReport, after: SegmentReport, gaps_are_holes: bool) -> bool:
    """Whether two segments do not belong together: `before` was cut, ends too early, or goes on beyond `after`'s base.

    A tail of zeroes is no cut where nothing is missing behind it: a preallocated file that was sealed and not yet synced.
    """
    if before.end_offset == after.base_offset and before.cut_is_padding:
        return False
    return (
        before.cut_bytes > 0
        or before.end_offset > after.base_offset
        or (gaps_are_holes and before.end_offset != after.base_offset)
    )


def _remove_below_start(log: PartitionLog) -> None:
    """Segments wholly below the log's start were deleted already; a crash may have brought them back, in any state."""
    bases = [segment.base_offset for segment in log.log.segments]
    log.remove_segments([base for base, end in pairwise(bases) if end <= log.log_start_offset])


def _unflushed(bases: list[int], recovery_point: int) -> list[int]:
    """Segments with a byte or an index entry that may not be on disk.

    One that ends just at the recovery point counts: it may have been sealed, its files trimmed, after that flush.
    """
    below = [base for base in bases if base < recovery_point]
    return [base for base in bases if base >= recovery_point or base == below[-1]] if below else list(bases)


def _active_without_index(files: Files, directory: str, bases: list[int]) -> list[int]:
    """The last segment needs its indexes at once; one that lost them is walked even after a clean stop."""
    if not bases:
        return []
    missing = [
        kind
        for kind in (names.OFFSET_INDEX, names.TIME_INDEX)
        if not files.exists(f"{directory}/{names.segment_file(bases[-1], kind)}")
    ]
    return [bases[-1]] if missing else []


def _assemble(
    request: LoadRequest,
    files: Files,
    clock: Clock,
    health: DirectoryHealth,
    log: Log,
    snapshot_offsets: list[int],
    reports: list[SegmentReport],
    jitter_for: Callable[[LogConfig], int],
) -> PartitionLog:
    directory = request.directory
    log_start_offset = max(request.log_start_offset, log.segments[0].base_offset)
    epochs = _read_epochs(files, directory, log, reports)
    if log.end.offset < log_start_offset:  # KAFKA-10101: what remains lies below the start
        log.restart_at(log_start_offset, clock.wall_ms())
        reports = []
        snapshot_offsets = _drop_snapshots(files, directory, snapshot_offsets)
        checkpoints.write_epochs(files, f"{directory}/{names.LEADER_EPOCHS}", epochs.restart())
    end_offset = log.end.offset
    _trim_epochs(epochs, reports, log_start_offset, end_offset)
    snapshots = Snapshots(files, directory, snapshot_offsets)
    producers = _load_producers(files, directory, log, snapshots, reports, log_start_offset)
    recovery_point = end_offset if request.clean else request.recovery_point
    recovery_point = min(max(recovery_point, log_start_offset), end_offset)
    high_watermark = _readable(log, min(max(request.high_watermark, log_start_offset), end_offset))
    producers.passed_high_watermark(high_watermark)
    return PartitionLog(
        partition=request.partition,
        topic_id=_topic_id(files, directory),
        files=files,
        clock=clock,
        health=health,
        log=log,
        producers=producers,
        snapshots=snapshots,
        epochs=epochs,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
        jitter_for=jitter_for,
    )


def _readable(log: Log, offset: int) -> int:
    """`offset`, or where the next segment begins if its own cannot be read: one bad segment keeps no log from opening."""
    for segment in log.from_offset(offset):
        try:
            log.place(offset)
            return offset
        except CorruptFileError:
            following = log.higher(segment.base_offset)
            offset = log.end.offset if following is None else following.base_offset
    return offset


def _open_log(
    request: LoadRequest,
    files: Files,
    clock: Clock,
    open_files: OpenFiles,
    recovered: _Recovered,
) -> Log:
    directory, config, bases = request.directory, request.config, recovered.bases
    segments = [
        Segment(files, directory, base, files.size(f"{directory}/{names.segment_file(base, names.LOG)}"), open_files)
        for base in bases[:-1]
    ]
    active_base = bases[-1] if bases else request.log_start_offset
    open_active = partial(
        ActiveSegment,
        files,
        directory,
        active_base,
        open_files,
        index_interval_bytes=config.index_interval_bytes,
        index_bytes_max=config.segment_index_bytes,
        created_ms=clock.wall_ms(),
        preallocate_bytes=config.segment_bytes if config.preallocate and not bases else 0,
    )
    active = open_active()
    if [index for index in active.indexes() if _strip_padding(index)]:
        active.close()
        active = open_active()
    known = {report.base_offset: report for report in recovered.reports}
    try:
        end_offset = known[active_base].end_offset if active_base in known else _checked_end(active)
    except CorruptFileError:
        active.close()
        raise
    return Log(files, directory, config, open_files, segments, active, end_offset)


def _checked_end(active: ActiveSegment) -> int:
    """One past the last offset, from the last index entry on; CorruptFileError where file and indexes do not fit.

    They fit after every clean stop. Where they do not, the clean marker speaks of other files than these.
    """
    offset_index, time_index = active.indexes()
    offset_index.check()
    time_index.check()
    last = offset_index.last()
    position, end_offset, newest_ms = last.position, active.base_offset, NO_TIMESTAMP
    for batch in active.headers(last.position):
        position, end_offset, newest_ms = batch.end_position, batch.last_offset + 1, max(newest_ms, batch.max_timestamp)
    if position != active.size_bytes:
        raise CorruptFileError(
            active.path(names.LOG), f"its batches end at byte {position}, the file {active.size_bytes}"
        )
    if offset_index.entries and last.offset >= end_offset:
        raise CorruptFileError(offset_index.path, f"names offset {last.offset}; the log ends at {end_offset}")
    if time_index.entries and time_index.last().offset >= end_offset:
        raise CorruptFileError(
            time_index.path, f"names offset {time_index.last().offset}; the log ends at {end_offset}"
        )
    if newest_ms > time_index.last().timestamp:
        raise CorruptFileError(time_index.path, f"lacks timestamp {newest_ms}")
    if end_offset - 1 - active.base_offset > RELATIVE_OFFSET_MAX:
        raise CorruptFileError(active.path(names.LOG), "its offsets are too far above its base")
    return end_offset


def _strip_padding(index: OffsetIndex | TimeIndex) -> bool:
    """Forgets zeroes behind the entries, left where the file was preallocated and never trimmed; whether there were any."""
    size = index.entry_bytes
    if index.entries < 2 or any(index.buffer[(index.entries - 1) * size : index.entries * size]):
        return False
    used = len(bytes(index.buffer[: index.entries * size]).rstrip(b"\0"))
    index.truncate_entries(-(-used // size))
    return True


def _drop_snapshots(files: Files, directory: str, offsets: list[int]) -> list[int]:
    for offset in offsets:
        with suppress(FileNotFoundError):
            files.remove(f"{directory}/{names.segment_file(offset, names.SNAPSHOT)}")
    return []


def _read_epochs(files: Files, directory: str, log: Log, reports: list[SegmentReport]) -> LeaderEpochs:
    """The checkpoint's epochs; where it is missing, empty or cannot be read, those of the batches.

    Segments that were recovered need no walk: their reports have them.
    """
    epochs = LeaderEpochs()
    try:
        epochs = LeaderEpochs(checkpoints.read_epochs(files, f"{directory}/{names.LEADER_EPOCHS}"))
    except CorruptFileError:
        epochs.distrust_file()
    if not epochs.entries:
        recovered_from = reports[0].base_offset if reports else log.end.offset
        for segment in log.segments:
            if segment.base_offset >= recovered_from:
                break
            with suppress(CorruptFileError):
                for batch in segment.headers(0):
                    if batch.leader_epoch > epochs.latest:
                        epochs.assign(batch.leader_epoch, batch.base_offset)
    return epochs


def _trim_epochs(epochs: LeaderEpochs, reports: list[SegmentReport], log_start_offset: int, end_offset: int) -> None:
    """Epochs of recovered segments in place of what the checkpoint says of them; none beyond either end of the log."""
    if reports:
        epochs.truncate_from_end(reports[0].base_offset)
        for report in reports:
            for entry in report.epochs:
                if entry.epoch > epochs.latest:
                    epochs.assign(entry.epoch, entry.start_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)


def _load_producers(
    files: Files,
    directory: str,
    log: Log,
    snapshots: Snapshots,
    reports: list[SegmentReport],
    log_start_offset: int,
) -> Producers:
    """Snapshot, replay of unrecovered segments after it, then the recovered ones, whose transaction indexes are rebuilt."""
    producers = Producers()
    end_offset = log.end.offset
    _drop_stray_snapshots(snapshots, log, end_offset)
    recovered_from = reports[0].base_offset if reports else end_offset
    start_offset = restore_snapshot(producers, snapshots, recovered_from)
    start_offset = max(start_offset, log_start_offset)
    recall(producers, log, start_offset)
    for segment in log.from_offset(start_offset):
        if segment.base_offset < recovered_from:
            with suppress(CorruptFileError):  # its readers will be told; the log opens
                replay(producers, segment, start_offset)
    if reports:  # what snapshots say of recovered segments may be another history's
        for offset in [found for found in snapshots.offsets if found > recovered_from]:
            snapshots.remove(offset)
    for report in reports:
        if report.base_offset > recovered_from:
            snapshots.write(report.base_offset, producers.values())
        _apply_notes(files, directory, producers, report, start_offset)
    return producers


def _apply_notes(files: Files, directory: str, producers: Producers, report: SegmentReport, start_offset: int) -> None:
    path = f"{directory}/{names.segment_file(report.base_offset, names.TRANSACTION_INDEX)}"
    if files.exists(path):
        files.remove(path)
    index = TransactionIndex(files, path)
    for batch, marker in report.producers:
        if batch.last_offset < start_offset:
            continue
        completed = producers.update(batch, marker)
        if completed is None:
            continue
        if completed.aborted:
            stable = producers.last_stable_offset_after(completed)
            index.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        producers.complete(completed)
    index.sync()
    index.close()


def _drop_stray_snapshots(snapshots: Snapshots, log: Log, end_offset: int) -> None:
    """Snapshots belong at segment bases and at the end; others tell of segments that are gone, and of another history."""
    wanted = {segment.base_offset for segment in log.segments} | {end_offset}
    for offset in [found for found in snapshots.offsets if found not in wanted]:
        snapshots.remove(offset)


def _topic_id(files: Files, directory: str) -> uuid.UUID | None:
    try:
        return checkpoints.read_topic_id(files, directory)
    except CorruptFileError:
        return None
