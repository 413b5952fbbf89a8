"""A partition or a log directory against itself: names, segments, snapshots, epochs, checkpoints.

What a crash may leave and a start mends (a torn tail, leftovers of a change) is a problem here too: the directory is not
as it should be until it was recovered. In a live directory it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.base.errors import CorruptFileError, PenstockError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints, names, producer_snapshot
from penstock.storage.checkpoints import EpochStart
from penstock.storage.inspect.dump import DumpOptions, dump_file
from penstock.storage.inspect.items import ProblemItem
from penstock.storage.inspect.places import (
    OFFSET_CHECKPOINTS,
    DirectoryPlace,
    FileKind,
    FilePlace,
    PartitionPlace,
    Place,
    file_place,
    files_of,
    is_kafkas_own,
)
from penstock.storage.inspect.problems import Cure, Problem
from penstock.storage.inspect.verify_segment import (
    OpenTransactions,
    Report,
    SegmentCheck,
    SegmentRequest,
    SegmentSummary,
)
from penstock.storage.inspect.walk import LogWalk

Progress = Callable[[int], None]
_INDEX_KINDS = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
_RESTING_SUFFIXES = (names.CUT, ".tmp", ".checkpoint", ".checkpoint.deleted")
_RESTING_NAMES = frozenset({"quorum-state"})
"""Of Kafka's own metadata log, which is let alone."""


@dataclass(slots=True, kw_only=True)
class PartitionSummary:
    path: str
    partition: TopicPartition | None
    segments: list[SegmentSummary] = field(default_factory=list)
    epochs: list[EpochStart] = field(default_factory=list)
    """As the batches have them."""
    waiting: int = 0
    """Files renamed `.deleted`, which a clean stop may leave and the next start removes."""

    @property
    def start_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def is_whole(self) -> bool:
        return not any(segment.is_damaged for segment in self.segments)


def verify(
    files: Files, place: Place, report: Report, *, live: bool = False, progress: Progress = lambda _bytes: None
) -> list[PartitionSummary]:
    """Checks everything at `place`; problems go to `report`. OSError where a file cannot be read."""
    if isinstance(place, FilePlace):
        return _verify_file(files, place, report, live=live, progress=progress)
    if isinstance(place, PartitionPlace):
        return [verify_partition(files, place, report, live=live, progress=progress)]
    return _verify_directory(files, place, report, live=live, progress=progress)


def log_bytes(files: Files, place: Place) -> int:
    """How many bytes `verify` will walk: for progress."""
    return sum(
        files.size(found.path)
        for found in files_of(files, place)
        if found.kind is FileKind.LOG and files.exists(found.path)
    )


def verify_partition(
    files: Files,
    place: PartitionPlace,
    report: Report,
    *,
    live: bool = False,
    progress: Progress = lambda _bytes: None,
) -> PartitionSummary:
    summary = PartitionSummary(path=place.path, partition=place.partition)
    found = _check_names(files, place, report, live=live)
    summary.waiting = sum(known.suffix == names.DELETED for known in found)
    bases = sorted(known.base_offset for known in found if known.kind is FileKind.LOG and not known.suffix)
    open_transactions = OpenTransactions()
    # The marker speaks for the logs of the broker that wrote it, not for a Kafka controller's beside them.
    closed = not live and not is_kafkas_own(place) and files.exists(f"{place.parent}/{names.CLEAN_SHUTDOWN}")
    for base in bases:
        request = SegmentRequest(place.path, base, base == bases[-1], live, closed=closed)
        try:
            segment = SegmentCheck(files, request, open_transactions, report).run(progress)
        except FileNotFoundError:
            if not live:
                raise
            continue  # retention took it meanwhile
        if summary.segments and base < summary.end_offset:
            reason = f"the segment begins at offset {base}, but the one before it ends at {summary.end_offset - 1}"
            report(Problem(path=request.path(names.LOG), reason=reason, position=0, offset=base, cure=Cure.CUT))
        summary.segments.append(segment)
        summary.epochs += [
            entry for entry in segment.epochs if not summary.epochs or entry.epoch > summary.epochs[-1].epoch
        ]
    for known in found:
        if known.kind is FileKind.SNAPSHOT and not known.suffix:
            _check_snapshot(files, known, report)
    _check_epochs(files, place, summary, report, live=live)
    _check_metadata(files, place, report)
    return summary


def _check_names(files: Files, place: PartitionPlace, report: Report, *, live: bool) -> list[FilePlace]:
    """Every file is known by name and belongs to a segment."""
    listed = files.list(place.path)
    found: list[FilePlace] = []
    for name in listed:
        known = file_place(f"{place.path}/{name}")
        if known is None:
            if not name.endswith(_RESTING_SUFFIXES) and name not in _RESTING_NAMES:
                report(Problem(path=f"{place.path}/{name}", reason="no file of a partition is called so"))
        else:
            found.append(known)
    if live:
        return found
    bases = {known.base_offset for known in found if known.kind is FileKind.LOG and not known.suffix}
    for known in found:
        if known.suffix in (names.CLEANED, names.SWAP):
            reason = "a leftover of a change that never ended (a start completes or drops it)"
            report(Problem(path=known.path, reason=reason, cure=Cure.LEFTOVERS))
        elif known.kind in _INDEX_KINDS and not known.suffix and known.base_offset not in bases:
            report(Problem(path=known.path, reason="an index without a log", cure=Cure.REMOVE))
    return found


def _check_snapshot(files: Files, place: FilePlace, report: Report) -> None:
    try:
        producers = producer_snapshot.decode(files.read(place.path), place.path)
    except FileNotFoundError:
        return
    except CorruptFileError as error:
        report(Problem(path=place.path, reason=error.reason, cure=Cure.REMOVE))
        return
    for producer in producers:
        if producer.last_offset >= place.base_offset:
            reason = (
                f"producer {producer.producer_id} has last offset {producer.last_offset}, "
                "beyond the snapshot's own offset"
            )
            report(Problem(path=place.path, reason=reason, offset=producer.last_offset, cure=Cure.REMOVE))
            return


def _check_epochs(
    files: Files, place: PartitionPlace, summary: PartitionSummary, report: Report, *, live: bool
) -> None:
    path = f"{place.path}/{names.LEADER_EPOCHS}"

    def wrong(reason: str, offset: int | None = None) -> None:
        report(Problem(path=path, reason=reason, offset=offset, cure=Cure.EPOCHS))

    try:
        history = checkpoints.read_epochs(files, path)
    except CorruptFileError as error:
        wrong(error.reason)
        return
    for before, entry in pairwise(history):
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            wrong(f"epoch {entry.epoch} from offset {entry.start_offset} on follows epoch {before.epoch}")
            return
    if live or not summary.is_whole:
        return
    if history and history[-1].start_offset > summary.end_offset:
        wrong(f"epoch {history[-1].epoch} begins beyond the log's end", history[-1].start_offset)
    starts = {entry.epoch: entry.start_offset for entry in history}
    for entry in summary.epochs:
        if entry.start_offset < starts.get(entry.epoch, 0) and entry.epoch != history[0].epoch:
            wrong(
                f"epoch {entry.epoch} begins at offset {starts[entry.epoch]}, but a batch has it before",
                entry.start_offset,
            )


def _check_metadata(files: Files, place: PartitionPlace, report: Report) -> None:
    path = f"{place.path}/{names.PARTITION_METADATA}"
    if not files.exists(path):
        return
    try:
        checkpoints.read_topic_id(files, place.path)
    except PenstockError as error:
        reason = error.reason if isinstance(error, CorruptFileError) else str(error)
        report(Problem(path=path, reason=reason))


def _verify_file(
    files: Files, place: FilePlace, report: Report, *, live: bool, progress: Progress
) -> list[PartitionSummary]:
    """A file of a segment against its log; any other by what its own bytes say."""
    log_path = f"{place.directory}/{names.segment_file(place.base_offset, names.LOG)}{place.suffix}"
    of_segment = place.kind is FileKind.LOG or place.kind in _INDEX_KINDS
    if not of_segment or place.suffix.endswith(names.CUT) or not files.exists(log_path):
        for item in dump_file(files, place, DumpOptions(live=live)):
            if isinstance(item, ProblemItem):
                report(Problem(path=item.file, reason=item.reason, position=item.position, offset=item.offset))
        return []
    listed = [file_place(f"{place.directory}/{name}") for name in files.list(place.directory)]
    bases = [known.base_offset for known in listed if known is not None and known.kind is FileKind.LOG]

    def report_own(problem: Problem) -> None:
        if problem.path == place.path:
            report(problem)

    request = SegmentRequest(place.directory, place.base_offset, place.base_offset == max(bases), live, place.suffix)
    segment = SegmentCheck(files, request, OpenTransactions(), report_own).run(progress)
    return [PartitionSummary(path=place.path, partition=None, segments=[segment])]


def _verify_directory(
    files: Files, place: DirectoryPlace, report: Report, *, live: bool, progress: Progress
) -> list[PartitionSummary]:
    # The checkpoints first: in a live directory the logs only grow beyond them.
    read = {name: _read_checkpoint(files, f"{place.path}/{name}", report) for name in OFFSET_CHECKPOINTS}
    properties = FilePlace(path=f"{place.path}/{names.META_PROPERTIES}", kind=FileKind.META_PROPERTIES)
    if files.exists(properties.path):
        for item in dump_file(files, properties, DumpOptions()):
            if isinstance(item, ProblemItem):
                report(Problem(path=item.file, reason=item.reason))
    summaries = []
    for partition in place.partitions:
        try:
            summary = verify_partition(files, partition, report, live=live, progress=progress)
        except FileNotFoundError:
            if not live:
                raise
            continue  # its topic was deleted meanwhile
        summaries.append(summary)
    ends = {summary.partition: summary.end_offset for summary in summaries if summary.partition and summary.segments}
    _check_ranges(place, read, ends, report)
    return summaries


def verify_checkpoints(files: Files, place: DirectoryPlace, report: Report) -> None:
    """The directory's checkpoints against its logs, whose ends are read from their last segments."""
    read = {name: _read_checkpoint(files, f"{place.path}/{name}", report) for name in OFFSET_CHECKPOINTS}
    ends = {found.partition: quick_end_offset(files, found) for found in place.partitions if found.partition}
    _check_ranges(place, read, ends, report)


def quick_end_offset(files: Files, place: PartitionPlace) -> int:
    """One past the last good batch, by walking the last segment alone."""
    found = [parsed for parsed in map(names.parse_segment_file, files.list(place.path)) if parsed is not None]
    bases = [base for base, kind, suffix in found if kind == names.LOG and not suffix]
    if not bases:
        return 0
    file = files.open_read(f"{place.path}/{names.segment_file(max(bases), names.LOG)}")
    try:
        walk = LogWalk(file, max(bases))
        for _ in walk:
            pass
        return walk.end_offset
    finally:
        file.close()


def _read_checkpoint(files: Files, path: str, report: Report) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(files, path)
    except CorruptFileError as error:
        report(Problem(path=path, reason=error.reason, cure=Cure.CHECKPOINT))
        return {}


def _check_ranges(
    place: DirectoryPlace,
    read: Mapping[str, Mapping[TopicPartition, int]],
    ends: Mapping[TopicPartition, int],
    report: Report,
) -> None:
    """No checkpoint speaks of offsets that its log does not reach."""
    for name, offsets in read.items():
        for partition, offset in offsets.items():
            end_offset = ends.get(partition)
            if end_offset is not None and offset > end_offset:
                reason = f"{partition} stands at {offset}, beyond its log's end {end_offset}"
                report(Problem(path=f"{place.path}/{name}", reason=reason, offset=offset, cure=Cure.CHECKPOINT))
