"""`penstock log recover`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from penstock.base.clock import SystemClock
from penstock.base.errors import StorageError
from penstock.base.files import Files, SystemFiles
from penstock.base.ids import TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.cli import kernels_notice, locks, places
from penstock.cli.output import Output
from penstock.cli.progress import progress_bar
from penstock.storage import names
from penstock.storage.config import log_config
from penstock.storage.inspect.places import DirectoryPlace, PartitionPlace
from penstock.storage.inspect.reopen import refuse_old_format, reopen
from penstock.storage.inspect.verify import log_bytes
from penstock.storage.load import LoadReport
from penstock.storage.log_directories import LogDirectories, Recovery
from penstock.storage.recovery import SegmentReport

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredItem:
    kind: ClassVar[str] = "recovered"
    file: str
    partition: str
    segments: int
    recovered_segments: int
    end_offset: int
    cut: tuple[str, ...]
    """What was cut, where to, and why; empty where nothing was."""


def run(paths: list[str], output: Output, *, from_start: bool) -> int:
    files = SystemFiles()
    found = places.find_directories(files, paths, "recover")
    kernels_notice.give()
    items: list[RecoveredItem] = []
    total = sum(log_bytes(files, place) for place in found)
    with progress_bar("recovering", total) as progress:
        for place in found:
            if isinstance(place, PartitionPlace):
                items.append(_recover_partition(files, place, progress, from_start=from_start))
            else:
                items += recover_directory(files, place, progress, from_start=from_start)
    output.table("", items)
    cuts = sum(len(item.cut) for item in items)
    recovered = sum(item.recovered_segments for item in items)
    output.say(f"{len(items)} partitions, {recovered} segments recovered, {cuts or 'nothing'} cut")
    return 0


def _recover_partition(files: Files, place: PartitionPlace, progress: Progress, *, from_start: bool) -> RecoveredItem:
    home = places.home(files, place)

    def tell(report: SegmentReport) -> None:
        progress(report.size_bytes)

    with locks.writing(files, places.homes(files, [place])):
        report = reopen(
            files,
            SystemClock(),
            place,
            home,
            recovery_point=0 if from_start else None,
            jobs=_jobs(),
            progress=tell,
        )
    return _item(place.path, report)


def recover_directory(
    files: Files, place: DirectoryPlace, progress: Progress, *, from_start: bool
) -> list[RecoveredItem]:
    """Opens the directory as a broker would after an unclean stop, and closes it.

    Whether a topic is compacted is not known here, so a gap between segments counts as compaction, never as a loss.
    """
    for partition in place.partitions:
        refuse_old_format(files, partition.path)

    def tell(_partition: TopicPartition, report: SegmentReport) -> None:
        progress(report.size_bytes)

    config = log_config({"cleanup.policy": "compact"})
    recovery = Recovery.FROM_START if from_start else Recovery.ALWAYS
    directories = LogDirectories(
        [place.path], files, SystemClock(), config_for=lambda _topic: config, jobs=_jobs(), recovery=recovery
    )
    reports = directories.open(tell)
    complaints = directories.close()
    if complaints:
        raise StorageError("; ".join(complaints))
    return [_item(f"{place.path}/{report.partition}", report) for report in reports]


def _jobs() -> ThreadJobs:
    return ThreadJobs(min(os.cpu_count() or 1, 8))


def _item(path: str, report: LoadReport) -> RecoveredItem:
    cut = []
    for segment in report.recovered:
        if segment.cut_bytes:
            log_name = names.segment_file(segment.base_offset, names.LOG)
            kept = segment.kept_as or "not kept: zeroes"
            cut.append(f"{segment.cut_bytes} bytes of {log_name}: {segment.reason} ({kept})")
    for base, kept in zip(report.cut_segments, report.cut_names, strict=True):
        cut.append(f"{names.segment_file(base, names.LOG)}: it lies behind a cut ({kept})")
    return RecoveredItem(
        file=path,
        partition=str(report.partition),
        segments=report.segments,
        recovered_segments=len(report.recovered),
        end_offset=report.end_offset,
        cut=tuple(cut),
    )
