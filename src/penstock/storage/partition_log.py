"""One partition's log: the only place that joins segments, producer state and leader epochs.

Invariants: those of `log_offsets`; the producers' state is that of the batches below the end.
Who may call: one thread at a time (the broker's loop). Threads get jobs (`flush_job`, `upkeep`), which hold what they
need and change nothing here until they are handed back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from penstock.base.clock import Clock
from penstock.base.errors import OffsetOutOfRangeError, RecordListTooLargeError, StorageError
from penstock.base.files import Files, ReadableBuffer
from penstock.base.ids import TopicPartition
from penstock.records.batch import CONTROL_BIT, Batch, assigned
from penstock.storage import checkpoints, names
from penstock.storage.answers import AppendResult, Bound, ReadResult
from penstock.storage.append import Prepared, prepare_follower, prepare_leader
from penstock.storage.cleaner import CleanedGroup
from penstock.storage.config import LogConfig
from penstock.storage.directory_health import DirectoryHealth
from penstock.storage.flush import FlushJob
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log import Log, LogRead, Place
from penstock.storage.log_offsets import LogOffsets
from penstock.storage.producer_replay import end_marker, rebuild
from penstock.storage.producer_snapshot import Snapshots
from penstock.storage.producer_state import CompletedTransaction, EndMarker, Origin, ProducerBatch, Producers
from penstock.storage.removals import Removals
from penstock.storage.short_append import ShortAppend
from penstock.storage.transaction_index import AbortedTransaction


class PartitionLog:
    def __init__(
        self,
        *,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        files: Files,
        clock: Clock,
        health: DirectoryHealth,
        log: Log,
        producers: Producers,
        snapshots: Snapshots,
        epochs: LeaderEpochs,
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
        jitter_for: Callable[[LogConfig], int] = lambda _config: 0,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self._files = files
        self._clock = clock
        self._health = health
        self.log = log
        self.producers = producers
        self.snapshots = snapshots
        self.leader_epochs = epochs
        self._offsets = LogOffsets(
            log, producers, start=log_start_offset, recovery_point=recovery_point, high_watermark=high_watermark
        )
        self._jitter_for = jitter_for
        self._jitter_ms = jitter_for(log.config)
        self._last_flush_ms = clock.monotonic_ms()
        self.removals = Removals(clock, snapshots)
        self.epoch = 0
        """Rises when segments are removed, replaced or truncated: a job's result from before is dropped."""
        self.cuts = 0
        """How often records were cut off its end: a copy made before is no copy any more."""
        self._synced_offset: int | None = None
        """The log's end when all of its files were last known to be on disk."""
        self._given_out: FlushJob | None = None
        """A flush that was not handed back, if ever it will be: what it was to write counts as not written."""

    # Offsets (row S12).
    @property
    def config(self) -> LogConfig:
        return self.log.config

    def update_config(self, config: LogConfig) -> None:
        self.log.config = config

    def failed(self, error: OSError) -> StorageError:
        """The disk failed under somebody who reads this log's files: its directory is offline from now on."""
        return self._health.fail(error)

    def check_online(self) -> None:
        """StorageError where the log's directory has failed."""
        self._health.check()

    @property
    def directory(self) -> str:
        return self.log.directory

    @property
    def log_start_offset(self) -> int:
        return self._offsets.start

    @property
    def recovery_point(self) -> int:
        return self._offsets.recovery_point

    @property
    def high_watermark(self) -> int:
        return self._offsets.high_watermark.offset

    @property
    def end_offset(self) -> int:
        return self.log.end.offset

    @property
    def last_stable_offset(self) -> int:
        try:
            return self._offsets.last_stable().offset
        except OSError as error:
            raise self.failed(error) from error

    def set_high_watermark(self, offset: int) -> bool:
        """Moves the high watermark, never back and never past the end; says whether it moved. Where its place cannot be read it
        does not, and the directory is offline."""
        try:
            return self._offsets.raise_high_watermark(offset)
        except OSError as error:
            self.failed(error)
            return False

    # Appending (row S21).
    def append_as_leader(
        self, records: ReadableBuffer, *, leader_epoch: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Appends one produced set of batches. An error from before the write leaves the log as it was."""
        prepared = prepare_leader(records, self.log.config, origin, self._clock.wall_ms())
        return self.append_prepared(prepared, leader_epoch=leader_epoch, origin=origin)

    def append_prepared(self, prepared: Prepared, *, leader_epoch: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        """The rest of a leader's append, for bytes that `prepare_leader` has passed, in order of arrival."""
        self._health.check()
        now_ms = self._clock.wall_ms()
        if prepared.config is not self.log.config and prepared.config != self.log.config:
            # The topic's configuration changed while these bytes waited: they are judged by what holds now.
            prepared = prepare_leader(prepared.data, self.log.config, origin, now_ms)
        append_time_ms = now_ms if self.log.config.log_append_time else -1
        batches = self._assign(prepared, leader_epoch, append_time_ms)
        self._check_set_size(len(prepared.data))
        markers: dict[int, EndMarker | None] = {}
        duplicate = None
        for batch in batches:
            if batch.producer_id >= 0:
                duplicate = self._check_producer(prepared.data, batch, markers, origin)
                if duplicate is not None:
                    break
        if duplicate is not None:
            first_time_ms = duplicate.timestamp if append_time_ms >= 0 else -1
            return AppendResult(
                duplicate.base_offset, duplicate.last_offset, first_time_ms, self._offsets.start, True, False
            )
        self._write(prepared.data, batches, markers, now_ms)
        end_offset = self.log.end.offset
        flush_due = end_offset - self._offsets.recovery_point >= self.log.config.flush_messages
        return AppendResult(
            batches[0].base_offset, end_offset - 1, append_time_ms, self._offsets.start, False, flush_due
        )

    def begin_short(self, leader_epoch: int) -> ShortAppend | None:
        """Takes small batches that need nothing but to be written; None where everything needs more."""
        config = self.log.config
        if config.codec or config.log_append_time or leader_epoch > self.leader_epochs.latest:
            return None
        self._health.check()
        return ShortAppend(
            self.log,
            self.producers,
            self._health,
            leader_epoch=leader_epoch,
            flush_offset=self._offsets.recovery_point + config.flush_messages,
            jitter_ms=self._jitter_ms,
            now_ms=self._clock.wall_ms(),
        )

    def append_as_follower(self, records: ReadableBuffer) -> AppendResult:
        """Appends a leader's bytes as they are; a cut-off or corrupt tail is left out (row S5)."""
        self._health.check()
        prepared = prepare_follower(records, self.log.end.offset)
        batches = prepared.batches
        if not batches:
            end_offset = self.log.end.offset
            return AppendResult(end_offset, end_offset - 1, -1, self._offsets.start, False, False)
        if len(batches) > 1 and len(prepared.data) > self.log.config.segment_bytes:
            # More than one segment takes: batch by batch. A leader's one batch is taken whatever its size (KAFKA-9617).
            results = [self.append_as_follower(prepared.data[batch.position : batch.end_position]) for batch in batches]
            return results[-1]._replace(base_offset=results[0].base_offset)
        markers = {
            batch.base_offset: end_marker(prepared.data, batch)
            for batch in batches
            if batch.producer_id >= 0 and batch.attributes & CONTROL_BIT
        }
        self._write(prepared.data, batches, markers, self._clock.wall_ms())
        return AppendResult(
            batches[0].base_offset, batches[-1].last_offset, -1, self._offsets.start, False, self.flush_due
        )

    def _assign(self, prepared: Prepared, leader_epoch: int, append_time_ms: int) -> list[Batch]:
        """Sets offsets, leader epoch and timestamps in the bytes; the batches as they will stand in the log."""
        data, batches, max_timestamps, _ = prepared
        offset = self.log.end.offset
        stamped = append_time_ms >= 0
        result = []
        for batch, max_timestamp in zip(batches, max_timestamps, strict=True):
            newest = append_time_ms if stamped else max_timestamp
            placed = assigned(data, batch.position, offset, leader_epoch, stamped, newest)
            result.append(placed)
            offset = placed.last_offset + 1
        return result

    def _check_set_size(self, size_bytes: int) -> None:
        if size_bytes > self.log.config.segment_bytes:
            raise RecordListTooLargeError(
                f"{size_bytes} bytes of batches are more than segment.bytes={self.log.config.segment_bytes}"
            )

    def _check_producer(
        self, data: ReadableBuffer, batch: Batch, markers: dict[int, EndMarker | None], origin: Origin
    ) -> ProducerBatch | None:
        """Raises if the producer may not append this; notes what a control batch says; gives a duplicate's first answer."""
        if batch.attributes & CONTROL_BIT:
            marker = markers[batch.base_offset] = end_marker(data, batch)
            if marker is not None:
                self.producers.check_marker(batch, marker)
        return self.producers.check(batch, origin)

    def _write(
        self, data: ReadableBuffer, batches: list[Batch], markers: dict[int, EndMarker | None], now_ms: int
    ) -> None:
        """Epochs, roll, bytes, end, producers, transaction index. An I/O error takes the directory offline."""
        log, epochs = self.log, self.leader_epochs
        max_timestamp = -1
        for batch in batches:
            if batch.leader_epoch > epochs.latest:
                epochs.assign(batch.leader_epoch, batch.base_offset)
            if batch.max_timestamp > max_timestamp:
                max_timestamp = batch.max_timestamp
        try:
            if log.should_roll(len(data), max_timestamp, batches[-1].last_offset, self._jitter_ms, now_ms):
                self._roll(max(batches[0].base_offset, log.end.offset), now_ms)
            log.append(data, batches)
            for batch in batches:
                if batch.producer_id >= 0:
                    completed = self.producers.update(batch, markers.get(batch.base_offset))
                    if completed is not None:
                        self._complete(completed)
        except OSError as error:
            raise self.failed(error) from error

    def _roll(self, base_offset: int, now_ms: int) -> None:
        if self.log.roll(base_offset, now_ms) is not None:
            self.snapshots.write(base_offset, self.producers.values())
        self._jitter_ms = self._jitter_for(self.log.config)

    def roll(self) -> bool:
        """Begins a new segment now, where the active one holds anything; says whether it did."""
        if self.log.active.size_bytes == 0:
            return False
        try:
            self._roll(self.log.end.offset, self._clock.wall_ms())
        except OSError as error:
            raise self.failed(error) from error
        return True

    def _complete(self, completed: CompletedTransaction) -> None:
        if completed.aborted:
            self.log.active.transaction_index.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    self.producers.last_stable_offset_after(completed),
                )
            )
        self.producers.complete(completed)

    @property
    def flush_due(self) -> bool:
        """Whether `flush.messages` asks for a flush."""
        return self.log.end.offset - self._offsets.recovery_point >= self.log.config.flush_messages

    def assign_epoch(self, epoch: int) -> None:
        """A new leader writes (epoch, end offset) at once, before any record (KAFKA-7415)."""
        if epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(epoch, self.log.end.offset)

    # Reading (row S13).
    def read(
        self, offset: int, *, bytes_max: int, bound: Bound = Bound.HIGH_WATERMARK, minimum_one: bool = True
    ) -> ReadResult:
        """A slice of the log from the batch that holds `offset`. OffsetOutOfRangeError names the valid range."""
        self._health.check()
        end = self.log.end
        if offset > end.offset or offset < self._offsets.start:
            raise OffsetOutOfRangeError(offset, self._offsets.start, end.offset)
        if bound is Bound.LOG_END:
            limit = end
        elif bound is Bound.HIGH_WATERMARK:
            limit = self._offsets.high_watermark
        else:
            limit = self._offsets.last_stable()
        committed = bound is Bound.LAST_STABLE
        found = None
        try:
            if offset < limit.offset:
                found = self.log.read(offset, bytes_max, limit, 2**31 - 1 if minimum_one else 0)
            aborted = self._aborted(offset, limit, found) if committed else None
            last_stable = self._offsets.last_stable()
        except OSError as error:
            raise self.failed(error) from error
        return ReadResult(
            None if found is None else found.slice,
            self._offsets.high_watermark.offset,
            last_stable.offset,
            self._offsets.start,
            aborted,
        )

    def _aborted(self, offset: int, limit: Place, found: LogRead | None) -> list[AbortedTransaction]:
        if found is None:
            return []
        upper = found.segment.upper_offset(found.slice.position + found.slice.length)
        if upper is None:
            following = self.log.higher(found.segment.base_offset)
            upper = following.base_offset if following is not None else self.log.end.offset
        return self.aborted_transactions(offset, min(upper, limit.offset))

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [first_offset, end_offset)."""
        collected: list[AbortedTransaction] = []
        for segment in self.log.from_offset(first_offset):
            entries, done = segment.transaction_index.collect(first_offset, end_offset)
            collected += entries
            if done:
                break
        return collected

    # Trimming and cutting (rows S18, S20).
    def delete_records(self, before_offset: int) -> int:
        """Raises the log start to `before_offset` (at most the HW); segments wholly below it go with retention."""
        self._health.check()
        if before_offset > self._offsets.high_watermark.offset:
            raise OffsetOutOfRangeError(before_offset, self._offsets.start, self._offsets.high_watermark.offset)
        self.raise_log_start(before_offset)
        return self._offsets.start

    def raise_log_start(self, offset: int) -> bool:
        try:
            is_news = self._offsets.raise_start(offset)
        except OSError as error:
            raise self.failed(error) from error
        if is_news:
            self.leader_epochs.truncate_from_start(offset)
        return is_news

    def remove_segments(self, bases: list[int]) -> None:
        """Takes whole segments off the log's head: renamed now, removed after `file.delete.delay.ms`."""
        if not bases:
            return
        self.epoch += 1
        following = self.log.higher(bases[-1])
        assert following is not None, "the active segment stays"
        self.raise_log_start(following.base_offset)
        try:
            self.removals.add(self.log.detach(bases), self.log)
        except OSError as error:
            raise self.failed(error) from error

    def replace_segments(self, groups: Sequence[CleanedGroup]) -> None:
        """Swaps compacted segments in, group by group, each in steps that `load` can complete."""
        self.epoch += 1
        try:
            for group in groups:
                cleaned = self.log.cleaned_segment(group.base_offset, group.size_bytes)
                cleaned.rename(names.SWAP)
                replaced = self.log.replace(group.old_bases, [cleaned])
                self.removals.add(replaced, self.log, keep_snapshot=group.base_offset)
            self._offsets.segments_changed()
        except OSError as error:
            raise self.failed(error) from error

    def lower_recovery_point(self, offset: int) -> bool:
        """Nothing at or above `offset` counts as flushed any more; says whether that was news."""
        return self._offsets.lower_recovery_point(offset)

    def truncate(self, offset: int) -> None:
        """Cuts the log to end at `offset` at the latest. The caller has lowered the recovery point, on disk too."""
        self._health.check()
        if offset >= self.log.end.offset:
            # An epoch that began here and wrote nothing may contradict the leader's (KAFKA-10706).
            self.leader_epochs.truncate_from_end(self.log.end.offset)
            return
        self.epoch += 1
        self.cuts += 1
        now_ms = self._clock.wall_ms()
        try:
            if offset < self.log.segments[0].base_offset:
                self._restart_at(offset, now_ms)
                return
            self.log.truncate(offset, now_ms)
            end_offset = self.log.end.offset
            self.leader_epochs.truncate_from_end(end_offset)
            for known in [found for found in self.snapshots.offsets if found > end_offset]:
                self.snapshots.remove(known)
            rebuild(self.producers, self.snapshots, self.log, self._offsets.start)
            self.producers.passed_high_watermark(self._offsets.high_watermark.offset)
            self._offsets.cut_to_end()
        except OSError as error:
            raise self.failed(error) from error

    def truncate_fully(self, offset: int) -> None:
        """Drops everything; the log is empty and starts and continues at `offset`."""
        self._health.check()
        self.epoch += 1
        self.cuts += 1
        try:
            self._restart_at(offset, self._clock.wall_ms())
        except OSError as error:
            raise self.failed(error) from error

    def _restart_at(self, offset: int, now_ms: int) -> None:
        # On disk too, and first: an empty log cannot tell that they are another history's.
        checkpoints.write_epochs(self._files, f"{self.directory}/{names.LEADER_EPOCHS}", self.leader_epochs.restart())
        for known in list(self.snapshots.offsets):
            self.snapshots.remove(known)
        self.producers.clear()
        self.log.restart_at(offset, now_ms)
        self._offsets.restart()

    def expire_producers(self, expiration_ms: int) -> int:
        return self.producers.expire(self._clock.wall_ms(), expiration_ms)

    # Durability (row S14).
    def flush_job(self) -> FlushJob:
        """Everything from the recovery point to the end, to be synced on any thread and given back to `flushed`.

        The segment before the recovery point too: sealing it trimmed its files.
        """
        end_offset = self.log.end.offset
        self._put_back(self._given_out)
        self._given_out = FlushJob(
            self._files,
            self.directory,
            [segment.base_offset for segment in self.log.from_offset(self._offsets.recovery_point - 1)],
            self.log.take_names_to_sync(),
            [offset for offset in self.snapshots.offsets if offset >= self._offsets.recovery_point],
            self.leader_epochs.take_dirty(),
            end_offset,
            self.epoch,
        )
        return self._given_out

    def _put_back(self, job: FlushJob | None) -> None:
        """What this job was to write is to be written still."""
        if job is not None:
            self.log.names_to_sync = self.log.names_to_sync or job.sync_names
            if job.leader_epochs is not None:
                self.leader_epochs.distrust_file()

    def flushed(self, job: FlushJob) -> bool:
        """Takes a finished job's result; false where the log was cut meanwhile, and the result counts for nothing."""
        if job is self._given_out:
            self._given_out = None
        if job.epoch != self.epoch:
            self._put_back(job)
            return False
        self._last_flush_ms = self._clock.monotonic_ms()
        self._synced_offset = job.end_offset
        self._offsets.recovery_point = max(self._offsets.recovery_point, job.end_offset)
        return True

    def flush_interval_passed(self) -> bool:
        """Whether `flush.ms` asks for a flush behind the writes."""
        waited_ms = self._clock.monotonic_ms() - self._last_flush_ms
        return self.log.end.offset > self._offsets.recovery_point and waited_ms >= self.log.config.flush_ms

    def flush(self) -> None:
        """Syncs everything here and now. For tools and shutdown; a broker runs `flush_job` on a thread."""
        job = self.flush_job()
        try:
            job.run()
        except OSError as error:
            raise self.failed(error) from error
        self.flushed(job)

    def found_synced(self) -> None:
        """Whoever opened the log knows that every file and name of it is on disk, as the log has it now."""
        self.log.names_to_sync = False
        self._synced_offset = self.log.end.offset

    def _is_synced(self) -> bool:
        """Whether closing the log changes none of its segments, and all of them are on disk. A recovery point at the end is not
        enough: a raised start raises it over what no flush has seen, a cut or a roll changes what one has, and names with it."""
        return (
            self._given_out is None
            and not self.log.names_to_sync
            and self._synced_offset == self.log.end.offset
            and self.log.active.is_finished
        )

    def close(self) -> None:
        """A clean end: indexes finished and trimmed, a snapshot of the producers, everything on disk. What is there is left alone:
        a log to which nothing happened since its last flush, or since it was opened after a clean end, waits for no disk.

        On any thread, where nobody else touches the log any more.
        """
        self._health.check_failure()
        try:
            end_offset = self.log.end.offset
            is_synced = self._is_synced()
            has_snapshot = is_synced and self.snapshots.says(end_offset, self.producers.values())
            if not has_snapshot:
                self.snapshots.write(end_offset, self.producers.values())
            has_epochs = is_synced and self.leader_epochs.is_written_below(end_offset)
            self.log.close()
            job = self.flush_job()
            if is_synced:
                job = job._replace(bases=[], snapshots=[] if has_snapshot else [end_offset])
            if has_epochs:
                job = job._replace(leader_epochs=None)
            job.run()
        except OSError as error:
            raise self.failed(error) from error
        self._offsets.recovery_point = end_offset

    def abandon(self) -> None:
        """Lets every descriptor go without a clean end, also where the disk fails at that."""
        for segment in self.log.segments:
            try:
                segment.close()
            except OSError as error:
                self.failed(error)
