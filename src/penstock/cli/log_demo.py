"""`penstock log demo`: the log at work. Write, kill -9, recover, prove, write on, prove again, show."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO

from rich.console import Console

from penstock.base.clock import SystemClock
from penstock.base.errors import LogDirectoryError, PenstockError
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.cli import kernels_notice, log_demo_records
from penstock.cli.log_demo_writer import ACKNOWLEDGEMENT
from penstock.cli.picture import picture
from penstock.cli.progress import progress_bar
from penstock.cli.text import size_text
from penstock.records.batch import Stop, scan
from penstock.storage.answers import Bound
from penstock.storage.load import LoadReport
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.recovery import SegmentReport

_READ_BYTES = 4 * 1024 * 1024
_WRITER_ENDS_SECONDS = 60


class DemoError(PenstockError):
    """The demo did not go as it should; says where it stopped."""


def run(records: int, data: str | None, *, keep: bool) -> int:
    kernels_notice.give()
    console = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # asked to end, it clears up as for an interrupt
    with demo_directory(data, keep=keep, console=console) as directory:
        _play(directory, records, console)
    return 0


@contextlib.contextmanager
def demo_directory(data: str | None, *, keep: bool, console: Console) -> Iterator[str]:
    """Where the demo writes: nothing of it is left behind unless asked for."""
    if data is None:
        path = tempfile.mkdtemp(prefix="penstock-demo-")
    else:
        path = os.path.abspath(data)
        if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise LogDirectoryError(f"{path} is not an empty directory; the demo writes only to one of its own")
        os.makedirs(path, exist_ok=True)
    try:
        yield path
    finally:
        if keep:
            console.print(f"the files are in {path}")
        else:
            shutil.rmtree(path, ignore_errors=True)


def _play(directory: str, records: int, console: Console) -> None:
    kill_at = records * 3 // 5
    with progress_bar("writing", records, in_bytes=False) as progress, _writer(directory, records) as (writer, pipe):
        started = time.monotonic()
        acknowledged = _follow(pipe, kill_at, progress)
        writer.kill()
        seconds = time.monotonic() - started
        # What was on its way in the pipe was acknowledged before the end.
        acknowledged = max(acknowledged, _follow(pipe, None, progress))
        writer.wait()
    if acknowledged < kill_at:
        raise DemoError(f"the writer stopped by itself at record {acknowledged}")
    console.print(
        f"1. wrote and acknowledged {acknowledged:,} records in {seconds:.1f} s; killed the writer with -9 in the middle"
    )
    with _recovered(directory, records) as (log, report, seconds):
        recovered = frozenset(segment.base_offset for segment in report.recovered)
        size = sum(segment.size_bytes for segment in report.recovered)
        console.print(f"2. recovered {len(recovered)} segments, {size_text(size)}, in {seconds:.2f} s: {_cuts(report)}")
        if log.end_offset < acknowledged:
            raise DemoError(f"the log ends at {log.end_offset}, but {acknowledged} records were acknowledged")
        _prove(log, log.end_offset)
        console.print(
            f"3. read back {log.end_offset:,} records: all {acknowledged:,} acknowledged ones are there, as written"
        )
        console.print(picture(log, recovered))
        found = log.end_offset
    with progress_bar("writing on", records - found, in_bytes=False) as progress:
        _write_rest(directory, records, found, progress)
    with _recovered(directory, records) as (log, report, seconds):
        console.print(
            f"4. the writer went on to {log.end_offset:,} records and stopped cleanly; "
            f"opened again in {seconds * 1000:.0f} ms, {len(report.recovered) or 'nothing'} to recover"
        )
        _prove(log, records)
        console.print(f"5. read back {records:,} records: none missing, none twice, none changed")
        console.print(picture(log))


@contextlib.contextmanager
def _writer(directory: str, records: int) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The writer's process and its acknowledgements; it is gone afterwards, whatever happens here."""
    command = [sys.executable, "-m", "penstock.cli.log_demo_writer", directory, str(records)]
    # In a session of its own: an interrupt from the keyboard is for this process, which ends the writer.
    writer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    assert writer.stdout is not None
    try:
        yield writer, writer.stdout
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


def _follow(pipe: IO[bytes], until: int | None, progress: Callable[[int], None]) -> int:
    """Reads acknowledgements up to a record, or to the end; the last one read, 0 for none."""
    last = 0
    while until is None or last < until:
        data = pipe.read(ACKNOWLEDGEMENT.size)
        if len(data) < ACKNOWLEDGEMENT.size:
            break
        (offset,) = ACKNOWLEDGEMENT.unpack(data)
        progress(offset - last if last else 0)
        last = offset
    return last


def _write_rest(directory: str, records: int, found: int, progress: Callable[[int], None]) -> None:
    with _writer(directory, records) as (writer, pipe):
        last = _follow(pipe, None, progress)
        if writer.wait(_WRITER_ENDS_SECONDS) != 0 or max(last, found) != records:
            raise DemoError(f"the writer stopped at record {last}")


@contextlib.contextmanager
def _recovered(directory: str, records: int) -> Iterator[tuple[PartitionLog, LoadReport, float]]:
    config = log_demo_records.config(records)
    directories = LogDirectories(
        [directory],
        SystemFiles(),
        SystemClock(),
        config_for=lambda _partition: config,
        jobs=ThreadJobs(min(os.cpu_count() or 1, 4)),
    )
    total = sum(entry.stat().st_size for entry in os.scandir(f"{directory}/{log_demo_records.PARTITION}"))
    started = time.monotonic()
    with progress_bar("recovering", total) as progress:

        def tell(_partition: TopicPartition, report: SegmentReport) -> None:
            progress(report.size_bytes)

        (report,) = directories.open(tell)
    seconds = time.monotonic() - started
    try:
        log = directories.logs[log_demo_records.PARTITION]
        log.set_high_watermark(log.end_offset)
        yield log, report, seconds
    finally:
        directories.close()


def _cuts(report: LoadReport) -> str:
    cut = sum(segment.cut_bytes for segment in report.recovered)
    return f"{cut} bytes of a torn batch cut" if cut else "nothing to cut"


def _prove(log: PartitionLog, records: int) -> None:
    """Reads every record through the log, as a consumer does, and compares each with what was written."""
    offset = 0
    with progress_bar("reading back", records, in_bytes=False) as progress:
        while offset < records:
            found = log.read(offset, bytes_max=_READ_BYTES, bound=Bound.LOG_END).slice
            data = b"" if found is None else found.read()
            scanned = scan(data)
            if not scanned.batches or scanned.stop not in (Stop.COMPLETE, Stop.INCOMPLETE):
                raise DemoError(f"the proof failed: offset {offset} cannot be read")
            after = log_demo_records.check(data[: scanned.end], offset)
            progress(after - offset)
            offset = after
    if offset != records:
        raise DemoError(f"the proof failed: {offset - records} records more than were written")
