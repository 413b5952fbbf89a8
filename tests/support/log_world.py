"""A partition's log on a forgetful disk, with a plain list beside it that knows what must be there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.records.batch import Codec
from penstock.records.build import Record, build_batch, build_end_marker
from penstock.storage.config import log_config
from penstock.storage.load import LoadReport
from penstock.storage.log_directories import LogDirectories
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.upkeep import compact, remove_files, retain
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import Row, batches_of, check_log, rows_of

PARTITION = TopicPartition("t", 0)
DIRECTORY = "/data"


class LogWorld:
    """`rows` is everything appended and not cut or trimmed; `flushed_offset` what a power cut must leave."""

    def __init__(self, **config: object) -> None:
        settings = {"segment.bytes": "700", "index.interval.bytes": "100", "segment.index.bytes": "1000"}
        settings.update({key.replace("_", "."): str(value) for key, value in config.items()})
        self.config = log_config(settings)
        self.files = ForgetfulFiles()
        self.clock = ManualClock()
        self.rows: list[Row] = []
        self.flushed_offset = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.clean_offset: int | None = None
        self.in_transaction: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.reports: list[LoadReport] = []
        self.open()

    @property
    def log(self) -> PartitionLog:
        return self.directories.logs[PARTITION]

    def open(self) -> None:
        self.directories = LogDirectories(
            [DIRECTORY], self.files, self.clock, config_for=lambda _partition: self.config
        )
        self.reports = self.directories.open()
        if PARTITION not in self.directories.logs:
            self.directories.create(PARTITION, self.config)
        self.files.sync_directory("")

    # What a user does.
    def append(
        self,
        records: Sequence[Record],
        *,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        transactional: bool = False,
        epoch: int | None = None,
    ) -> int:
        if epoch is not None:
            self.epoch = epoch
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        result = self.log.append_as_leader(batch, leader_epoch=self.epoch)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        for slot, (timestamp, key, value, _) in enumerate(records):
            self.rows.append(Row(result.base_offset + slot, timestamp, key, value))
        if transactional:
            self.in_transaction.setdefault(producer_id, []).extend(range(result.base_offset, result.last_offset + 1))
        self.log.set_high_watermark(self.log.end_offset)
        return result.base_offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        timestamp = self.clock.wall_ms()
        marker = build_end_marker(commit, producer_id, 0, 0, timestamp)
        self.log.append_as_leader(marker, leader_epoch=self.epoch, origin=Origin.COORDINATOR)
        self.log.set_high_watermark(self.log.end_offset)
        offsets = self.in_transaction.pop(producer_id, [])
        if not commit:
            self.aborted.update(offsets)
        row = rows_of(self.log, from_offset=self.log.end_offset - 1)[-1]
        self.rows.append(row)

    def flush(self) -> None:
        end_offset = self.log.end_offset
        self.log.flush()
        self.directories.checkpoint()
        self.flushed_offset = end_offset

    def truncate(self, offset: int) -> None:
        """Cuts, and flushes the cut: until then a power cut may bring back what was cut, as it may on any disk."""
        self.directories.truncate(PARTITION, offset)
        self.rows = [row for row in self.rows if row.offset < self.log.end_offset]
        self.flushed_offset = min(self.flushed_offset, offset)
        self.flush()
        self.reread()

    def reread(self) -> None:
        """Takes from the log what a producer would know after it was cut."""
        log = self.log
        self.sequences = {p.producer_id: p.last_sequence + 1 for p in log.producers.values()}
        batches = [batch for batch in batches_of(log) if batch.is_transactional and not batch.is_control]
        self.in_transaction = {
            producer_id: [
                offset
                for batch in batches
                if batch.producer_id == producer_id and batch.base_offset >= first_offset
                for offset in range(batch.base_offset, batch.last_offset + 1)
            ]
            for first_offset, producer_id in log.producers.open_transactions.items()
        }
        ended = log.aborted_transactions(log.log_start_offset, log.end_offset)
        self.aborted = {
            offset
            for batch in batches
            for entry in ended
            if entry.producer_id == batch.producer_id and entry.first_offset <= batch.base_offset <= entry.last_offset
            for offset in range(batch.base_offset, batch.last_offset + 1)
        }

    def delete_records(self, offset: int) -> None:
        self.log.delete_records(offset)
        self.directories.checkpoint()
        self.rows = [row for row in self.rows if row.offset >= self.log.log_start_offset]

    def retain(self) -> None:
        retain(self.log, self.clock)
        self.remove_due()
        self.rows = [row for row in self.rows if row.offset >= self.log.log_start_offset]

    def remove_due(self) -> None:
        remove_files(self.files, self.log.removals.take_due(everything=True))

    def compact(self, map_bytes: int = 4096) -> None:
        self.log.flush()
        self.flushed_offset = self.log.end_offset
        before = list(self.rows)
        clean_offset = compact(
            self.log, self.files, self.clock, last_clean_offset=self.clean_offset, map_bytes=map_bytes
        )
        if clean_offset is not None:
            self.clean_offset = clean_offset
        self.remove_due()
        self.files.sync_directory(self.log.directory)  # until then a power cut may bring the old segments back
        self.rows = check_compacted(before, rows_of(self.log), self.aborted)

    def close(self) -> None:
        assert self.directories.close() == []
        self.flushed_offset = max((row.offset + 1 for row in self.rows), default=0)

    # What the world does.
    def crash(self, how: Callable[[ForgetfulFiles], None], *, keeps_cache: bool) -> None:
        """The process ends by `how`; it is opened again, and everything that must hold is checked."""
        how(self.files)
        self.open()
        self.check_after_crash(keeps_cache=keeps_cache)

    def check_after_crash(self, *, keeps_cache: bool) -> None:
        log = self.log
        check_log(log, self.files)
        found = rows_of(log)
        wanted = [row for row in self.rows if row.offset >= log.log_start_offset]
        if self.config.compact and not keeps_cache:
            # Gaps are lawful in a compacted topic, so a lost tail of an unflushed segment cannot be told from one.
            assert set(found) <= set(wanted)
        else:
            assert found == wanted[: len(found)], "what is there is a prefix of what was written"
        if keeps_cache:
            assert len(found) == len(wanted)
        gone = {row for row in wanted if row.offset < self.flushed_offset} - set(found)
        assert not gone, f"flushed records are gone: {gone}"
        self.rows = found
        self.flushed_offset = min(self.flushed_offset, log.end_offset)
        self.reread()
        log.set_high_watermark(log.end_offset)

    def check(self) -> None:
        check_log(self.log, self.files)
        assert rows_of(self.log) == self.rows


def power_cut(seed: int) -> Callable[[ForgetfulFiles], None]:
    return lambda files: files.power_cut(random.Random(seed))


def kill(files: ForgetfulFiles) -> None:
    files.kill()


def strict_power_cut(files: ForgetfulFiles) -> None:
    files.forget_everything_unsynced()


def check_compacted(before: list[Row], after: list[Row], aborted: set[int]) -> list[Row]:
    """Nothing new, nothing changed, and the newest record of each key is there unless it was a tombstone or aborted."""
    known = {row.offset: row for row in before}
    for row in after:
        assert known.get(row.offset) == row, row
    newest: dict[bytes, Row] = {
        row.key: row for row in before if row.key is not None and not row.control and row.offset not in aborted
    }
    present = {row.offset for row in after}
    for row in newest.values():
        assert row.offset in present or row.value is None, f"the newest record of {row.key!r} is gone"
    return after
