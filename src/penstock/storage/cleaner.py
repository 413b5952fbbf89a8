"""Compaction, the doing half (row S19): the newest record of each key stays, at its offset.

A round, on any thread: build a map of keys over the dirty part (bounded memory; a full map ends the range early), copy
each group of segments into one `.cleaned` segment without what is superseded, sync it. The log then takes the results
in: `.cleaned` -> `.swap` -> live. A crash leaves `.cleaned` (removed) or `.swap` (completed) by `load`.

What stays: records beyond the map, the newest of each key, tombstones until their delete horizon (KIP-534), the last
batch of each active producer and of the round, empty if need be (KAFKA-5490), markers of transactions that still have
records (KAFKA-13727). What goes: superseded records, aborted ones, keyless ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock.base.errors import CorruptFileError
from penstock.base.files import Files, ReadableBuffer
from penstock.records import codecs, payload
from penstock.records.batch import Batch, Codec, Stop, records_slice, scan
from penstock.records.build import rebuild
from penstock.records.key_map import KeyMap
from penstock.storage import names
from penstock.storage.config import LogConfig
from penstock.storage.producer_replay import end_marker
from penstock.storage.segment import ActiveSegment, OpenFiles
from penstock.storage.stretches import GoodBatches, Stretch
from penstock.storage.transaction_index import AbortedTransaction

_WRITE_BYTES = 1024 * 1024


class Source(NamedTuple):
    """A segment to clean, opened when its turn comes: a round over many segments holds one of them at a time."""

    base_offset: int
    end_offset: int
    size_bytes: int
    path: str
    modified_ms: int
    aborted: list[AbortedTransaction]


class CompactionJob(NamedTuple):
    """Everything a round needs, frozen when it was planned."""

    files: Files
    directory: str
    config: LogConfig
    groups: list[list[Source]]
    first_dirty_offset: int
    end_offset: int
    active_producers: dict[int, tuple[int, int]]
    """Producer id -> (last data offset or -1, epoch)."""
    now_ms: int
    map_bytes: int
    seed: bytes
    epoch: int

    def run(self) -> CompactionResult:
        return _Round(self).run()


class CleanedGroup(NamedTuple):
    old_bases: list[int]
    base_offset: int
    size_bytes: int


class CompactionResult(NamedTuple):
    job: CompactionJob
    groups: list[CleanedGroup]
    clean_offset: int
    """Everything below is clean; the next round's first dirty offset."""
    bytes_read: int
    bytes_written: int
    records_removed: int
    missing: str = ""
    """A segment's file that was gone when its turn came: the log changed, and the round counts for nothing."""


class _Transactions:
    """Which batches belong to aborted transactions, and whose markers have nothing left to mark."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, AbortedTransaction]] = []
        self._seen: set[AbortedTransaction] = set()
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions whose marker and data were met: entries of the cleaned segment's index."""

    def add(self, aborted: list[AbortedTransaction]) -> None:
        for entry in aborted:
            if entry not in self._seen:
                self._seen.add(entry)
                heapq.heappush(self._waiting, (entry.first_offset, entry.last_offset, entry))

    def _advance(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            entry = heapq.heappop(self._waiting)[2]
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def data_is_aborted(self, batch: Batch) -> bool:
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        found = self._aborted.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = (found[0], True)
        return True

    def marker_is_spent(self, batch: Batch, data: ReadableBuffer) -> bool:
        """Whether no record of the marker's transaction was met in this round."""
        self._advance(batch.last_offset)
        if batch.record_count == 0:
            return True
        marker = end_marker(data, batch)
        if marker is None:
            return False
        if marker.commit:
            spent = batch.producer_id not in self._committed
            self._committed.discard(batch.producer_id)
            return spent
        found = self._aborted.pop(batch.producer_id, None)
        if found is not None and found[1]:
            self.retained.append(found[0])
            return False
        return True


class _Round:
    def __init__(self, job: CompactionJob) -> None:
        self._job = job
        self._map = KeyMap(job.map_bytes, job.seed)
        self._transactions = _Transactions()
        self._read = self._written = self._removed = 0

    def run(self) -> CompactionResult:
        job = self._job
        groups: list[CleanedGroup] = []
        clean_offset, missing = job.first_dirty_offset, ""
        try:
            clean_offset = self._build_map()
            for group in job.groups:
                if group[0].base_offset >= clean_offset:
                    break
                groups.append(self._clean_group(group))
            job.files.sync_directory(job.directory)
        except FileNotFoundError as error:
            missing = str(error.filename)
        return CompactionResult(job, groups, clean_offset, self._read, self._written, self._removed, missing)

    def _build_map(self) -> int:
        """Puts the dirty keys into the map; returns the offset up to which it speaks."""
        job = self._job
        transactions = _Transactions()
        for source in (source for group in job.groups for source in group):
            if source.end_offset <= job.first_dirty_offset:
                continue
            transactions.add(source.aborted)
            for data, _, batches in _stretches(job.files, source):
                for batch in batches:
                    if batch.is_control:
                        transactions.marker_is_spent(batch, data)
                    elif batch.last_offset >= job.first_dirty_offset and not transactions.data_is_aborted(batch):
                        body, start, end = uncompressed(data, batch)
                        taken = self._map.put_batch(
                            body,
                            start,
                            end,
                            batch.record_count,
                            batch.base_offset,
                            last_offset=batch.last_offset,
                            from_offset=job.first_dirty_offset,
                        )
                        if taken < batch.record_count:
                            return self._map.latest_offset + 1
                    self._map.latest_offset = max(self._map.latest_offset, batch.last_offset)
            # A gap behind the last batch counts as seen, or a round could end where it began (KAFKA-8764).
            self._map.latest_offset = max(self._map.latest_offset, source.end_offset - 1)
        return max(self._map.latest_offset + 1, job.first_dirty_offset)

    def _clean_group(self, group: list[Source]) -> CleanedGroup:
        job, config = self._job, self._job.config
        self._transactions.retained = []
        self._remove_leftovers(group[0].base_offset)
        target = ActiveSegment(
            job.files,
            job.directory,
            group[0].base_offset,
            OpenFiles(),
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=max(config.segment_index_bytes, 24),
            created_ms=job.now_ms,
            suffix=names.CLEANED,
        )
        out = bytearray()
        for source in group:
            self._transactions.add(source.aborted)
            for data, _, batches in _stretches(job.files, source):
                self._read += batches[-1].end_position - batches[0].position
                for batch in batches:
                    self._clean_batch(data, batch, out)
                    if len(out) >= _WRITE_BYTES:
                        self._flush(target, out)
        self._flush(target, out)
        for entry in sorted(self._transactions.retained, key=lambda aborted: aborted.last_offset):
            target.transaction_index.append(entry)
        target.finish_indexes()
        target.sync()
        size_bytes = target.size_bytes
        target.close()
        for kind in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            self._sync(target.path(kind))
        job.files.set_modified_ms(target.path(names.LOG), group[-1].modified_ms)
        return CleanedGroup([source.base_offset for source in group], group[0].base_offset, size_bytes)

    def _remove_leftovers(self, base_offset: int) -> None:
        """A round that failed half way, in this process, may have left files of the name that this one writes."""
        for kind in names.SEGMENT_SUFFIXES:
            with suppress(FileNotFoundError):
                self._job.files.remove(f"{self._job.directory}/{names.segment_file(base_offset, kind)}{names.CLEANED}")

    def _sync(self, path: str) -> None:
        file = self._job.files.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _flush(self, target: ActiveSegment, out: bytearray) -> None:
        if out:
            target.append(out, scan(out, check_crc=False).batches)
            self._written += len(out)
            out.clear()

    def _clean_batch(self, data: ReadableBuffer, batch: Batch, out: bytearray) -> None:
        """Appends what remains of one batch to `out`: all of it, some of it, an empty shell, or nothing."""
        job = self._job
        horizon = batch.delete_horizon_ms
        if batch.is_control:
            spent = self._transactions.marker_is_spent(batch, data)
            if not (spent and horizon is not None and horizon <= job.now_ms):
                new_horizon = job.now_ms + job.config.delete_retention_ms if spent and horizon is None else None
                if batch.record_count == 0 or new_horizon is None:
                    out += memoryview(data)[batch.position : batch.end_position]
                else:
                    self._rewrite(data, batch, b"\1" * batch.record_count, out, new_horizon)
                return
        elif not self._transactions.data_is_aborted(batch):
            self._select(data, batch, out)
            return
        self._removed += batch.record_count
        self._keep_shell(batch, out)

    def _select(self, data: ReadableBuffer, batch: Batch, out: bytearray) -> None:
        job = self._job
        horizon = batch.delete_horizon_ms
        if batch.base_offset > self._map.latest_offset:
            out += memoryview(data)[batch.position : batch.end_position]
            return
        body, start, end = uncompressed(data, batch)
        found = self._map.select(
            body,
            start,
            end,
            batch.record_count,
            batch.base_offset,
            retain_tombstones=horizon is None or job.now_ms < horizon,
        )
        self._removed += batch.record_count - found.kept_count
        if found.kept_count == 0:
            self._keep_shell(batch, out)
            return
        new_horizon = None
        if found.kept_tombstone_count and horizon is None:
            new_horizon = job.now_ms + job.config.delete_retention_ms
        if found.kept_count == batch.record_count and new_horizon is None:
            out += memoryview(data)[batch.position : batch.end_position]
            return
        max_timestamp = batch.base_timestamp + found.max_timestamp_delta
        if batch.is_log_append_time:
            max_timestamp = batch.max_timestamp
        self._rewrite_body(batch, body, start, end, found.keep, found.kept_count, out, new_horizon, max_timestamp)

    def _rewrite(
        self, data: ReadableBuffer, batch: Batch, keep: bytes, out: bytearray, new_horizon: int | None
    ) -> None:
        body, start, end = uncompressed(data, batch)
        self._rewrite_body(batch, body, start, end, keep, batch.record_count, out, new_horizon, batch.max_timestamp)

    def _rewrite_body(
        self,
        batch: Batch,
        body: ReadableBuffer,
        start: int,
        end: int,
        keep: ReadableBuffer,
        kept_count: int,
        out: bytearray,
        new_horizon: int | None,
        max_timestamp: int,
    ) -> None:
        shift = 0 if new_horizon is None else batch.base_timestamp - new_horizon
        kept = payload.retain(body, start, end, batch.record_count, keep, shift)
        out += rebuild(batch, kept, record_count=kept_count, max_timestamp=max_timestamp, delete_horizon_ms=new_horizon)

    def _keep_shell(self, batch: Batch, out: bytearray) -> None:
        """An emptied batch stays as a header where it carries a producer's last sequence or the round's last offset."""
        last_of_producer = False
        if batch.producer_id >= 0:
            known = self._job.active_producers.get(batch.producer_id)
            if known is not None:
                last_data_offset, epoch = known
                last_of_producer = (
                    batch.last_offset == last_data_offset
                    if last_data_offset >= 0
                    else batch.is_control and batch.producer_epoch == epoch
                )
        if last_of_producer or batch.last_offset + 1 == self._job.end_offset:
            out += rebuild(batch, b"", record_count=0)


def uncompressed(data: ReadableBuffer, batch: Batch) -> tuple[ReadableBuffer, int, int]:
    """A batch's records as they are, and where they begin and end."""
    start, end = records_slice(batch)
    if batch.codec is Codec.NONE:
        return data, start, end
    body = codecs.decompress(batch.codec, memoryview(data)[start:end])
    return body, 0, len(body)


def _stretches(files: Files, source: Source) -> Iterator[Stretch]:
    """A segment's batches. A bad one is an error: nothing may be guessed."""
    file = files.open_read(source.path)
    try:
        found = GoodBatches(file, source.size_bytes)
        yield from found
    finally:
        file.close()
    if found.stop is not Stop.COMPLETE:
        raise CorruptFileError(source.path, f"no good batch at position {found.position} ({found.stop.name})")
