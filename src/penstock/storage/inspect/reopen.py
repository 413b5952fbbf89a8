"""Opening one partition as a start after an unclean stop does, and closing it so that the next start finds it clean.

The log directory's checkpoints are brought in step for this partition alone, and its clean marker is away meanwhile: a
crash in the middle is an unclean stop like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.base.clock import Clock
from penstock.base.errors import LogDirectoryError, UnsupportedForMessageFormatError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.base.jobs import Jobs
from penstock.storage import checkpoints, names
from penstock.storage.config import log_config
from penstock.storage.directory_contents import Remembered, read_offsets, read_remembered
from penstock.storage.directory_health import DirectoryHealth
from penstock.storage.inspect.places import PartitionPlace
from penstock.storage.inspect.walk import OLD_FORMAT_REASON
from penstock.storage.load import LoadReport, LoadRequest, load_partition
from penstock.storage.recovery import SegmentReport, old_format_bytes
from penstock.storage.segment import OpenFiles


@contextmanager
def marker_lifted(files: Files, home: str | None) -> Iterator[None]:
    """The clean marker of `home` is away inside, and back afterwards if it was there and nothing failed."""
    marker = None if home is None else f"{home}/{names.CLEAN_SHUTDOWN}"
    if home is None or marker is None or not files.exists(marker):
        yield
        return
    data = files.read(marker)
    files.remove(marker)
    files.sync_directory(home)
    yield
    checkpoints.write_atomically(files, marker, data)


def refuse_old_format(files: Files, directory: str) -> None:
    """Raises where a segment holds record format 0 or 1: recovery would cut it, and it is not broken."""
    for name in files.list(directory):
        parsed = names.parse_segment_file(name)
        if parsed is None or parsed[1] != names.LOG:
            continue
        file = files.open_read(f"{directory}/{name}")
        try:
            if old_format_bytes(file, 0):
                raise UnsupportedForMessageFormatError(f"{directory}/{name}: {OLD_FORMAT_REASON}; nothing was changed")
        finally:
            file.close()


def reopen(
    files: Files,
    clock: Clock,
    place: PartitionPlace,
    home: str | None,
    *,
    recovery_point: int | None = None,
    jobs: Jobs | None = None,
    progress: Callable[[SegmentReport], None] = lambda _report: None,
) -> LoadReport:
    """Recovers from `recovery_point` on (default: the checkpoint's) and closes cleanly.

    Gaps between segments are left alone: whether the topic is compacted is not known here. So are segments below the log's
    start: a broker deletes them, and a checkpoint that lies costs nothing here.
    """
    partition = place.partition
    if partition is None:
        raise LogDirectoryError(f"{place.path} is not called TOPIC-PARTITION; rename it first")
    refuse_old_format(files, place.path)
    known = Remembered({}, {}, {}) if home is None else read_remembered(files, home)
    request = LoadRequest(
        partition,
        place.path,
        log_config(),
        clean=False,
        recovery_point=known.recovery_points.get(partition, 0) if recovery_point is None else recovery_point,
        log_start_offset=_first_offset(files, place.path, known.log_starts.get(partition, 0)),
        high_watermark=known.high_watermarks.get(partition, 0),
    )
    health = DirectoryHealth(home or place.parent)
    with marker_lifted(files, home):
        log, report = load_partition(request, files, clock, health, OpenFiles(), jobs=jobs, progress=progress)
        log.close()
        if home is not None:
            _bring_in_step(files, home, partition, log.end_offset, log.high_watermark)
    return report


def _first_offset(files: Files, directory: str, log_start_offset: int) -> int:
    """Where the segments begin; only a log without any begins where its checkpoint says."""
    found = filter(None, map(names.parse_segment_file, files.list(directory)))
    is_segment = {(names.LOG, ""), (names.LOG, names.SWAP)}  # the latter is made one when the log is opened
    return min((base for base, *kind in found if tuple(kind) in is_segment), default=log_start_offset)


def _bring_in_step(files: Files, home: str, partition: TopicPartition, end_offset: int, high_watermark: int) -> None:
    """Writes this partition's offsets into the checkpoints that exist; those of others stay."""
    for name, offset in (
        (names.RECOVERY_POINTS, end_offset),
        (names.HIGH_WATERMARKS, high_watermark),
    ):
        offsets = read_offsets(files, f"{home}/{name}")
        offsets[partition] = offset
        checkpoints.write_offsets(files, f"{home}/{name}", offsets)
    for name in (names.LOG_STARTS, names.CLEANER_OFFSETS):
        offsets = read_offsets(files, f"{home}/{name}")
        if offsets.get(partition, 0) > end_offset:
            offsets[partition] = end_offset
            checkpoints.write_offsets(files, f"{home}/{name}", offsets)
