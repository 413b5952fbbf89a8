"""What the storage tests share: one partition on a disk in memory, files put there by hand, and changes that fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from tests.support.forgetful_files import ForgetfulFiles

from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.base.jobs import Jobs
from penstock.records.batch import Codec
from penstock.records.build import Record, build_batch, build_end_marker
from penstock.storage import names
from penstock.storage.config import LogConfig, log_config
from penstock.storage.directory_health import DirectoryHealth
from penstock.storage.load import LoadReport, LoadRequest, load_partition
from penstock.storage.partition_log import PartitionLog
from penstock.storage.segment import OpenFiles

T0 = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)
ROOT = "/data"
PATH = "/data/t-0"


def new_disk() -> ForgetfulFiles:
    """A disk with one empty partition directory."""
    files = ForgetfulFiles()
    files.make_directory(ROOT)
    files.make_directory(PATH)
    files.sync_directory("")
    files.sync_directory(ROOT)
    return files


def small_config(**settings: object) -> LogConfig:
    values = {"segment.bytes": "700", "index.interval.bytes": "100", "segment.index.bytes": "1000"}
    values.update({key.replace("_", "."): str(value) for key, value in settings.items()})
    return log_config(values)


def open_log(
    files: ForgetfulFiles,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    gaps_are_holes: bool = True,
    config: LogConfig | None = None,
    clock: ManualClock | None = None,
    jobs: Jobs | None = None,
) -> tuple[PartitionLog, LoadReport]:
    request = LoadRequest(
        PARTITION,
        PATH,
        config or small_config(),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        gaps_are_holes=gaps_are_holes,
    )
    return load_partition(request, files, clock or ManualClock(), DirectoryHealth(ROOT), OpenFiles(), jobs=jobs)


def path_of(base_offset: int, kind: str = names.LOG, suffix: str = "") -> str:
    return f"{PATH}/{names.segment_file(base_offset, kind)}{suffix}"


def put_file(files: ForgetfulFiles, path: str, data: bytes) -> None:
    """A file with these bytes, on disk for good."""
    if files.exists(path):
        files.remove(path)
    file = files.create(path)
    if data:
        file.pwrite(data, 0)
    file.sync()
    files.sync_directory(path.rpartition("/")[0])


def records(count: int = 1, *, key: bytes | None = b"k", size: int = 20, timestamp: int = T0) -> list[Record]:
    return [(timestamp + slot, key, b"v" * size, ()) for slot in range(count)]


def batch_at(
    base_offset: int, count: int = 1, *, size: int = 20, timestamp: int = T0, epoch: int = 0, codec: Codec = Codec.NONE
) -> bytes:
    """A batch as a leader would have written it."""
    return build_batch(
        records(count, size=size, timestamp=timestamp), base_offset=base_offset, leader_epoch=epoch, codec=codec
    )


def produced(
    values: Sequence[Record] | None = None,
    *,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> bytes:
    """A batch as a client sends it."""
    idempotent = producer_id >= 0
    return build_batch(
        records() if values is None else values,
        producer_id=producer_id,
        producer_epoch=epoch if idempotent else -1,
        base_sequence=sequence if idempotent else -1,
        transactional=transactional,
        codec=codec,
    )


def marker(producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = T0) -> bytes:
    return build_end_marker(commit, producer_id, epoch, coordinator_epoch, timestamp)


def fail_when(files: ForgetfulFiles, matches: Callable[[str], bool]) -> None:
    """From now on changes whose description `matches` fail with an I/O error."""
    inner = ForgetfulFiles.step.__get__(files)

    def step(what: str) -> None:
        if matches(what):
            raise OSError(errno.EIO, "Input/output error", what)
        inner(what)

    files.step = step  # type: ignore[method-assign]


def listing(files: ForgetfulFiles) -> list[str]:
    return files.list(PATH)
