"""Upkeep of a log: retention and compaction, planned purely, done in jobs, applied by the log's owner.

`retain` is short and runs where it is called. A compaction is planned (`compaction_range`), frozen (`compaction_job`),
run on any thread, and given back to `apply_compaction`, which drops it if segments changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from penstock.base.clock import Clock
from penstock.base.errors import CorruptFileError
from penstock.base.files import Files
from penstock.storage import names
from penstock.storage.cleaner import CompactionJob, CompactionResult, Source
from penstock.storage.compaction import CleanRange, CompactionFacts, group_segments, plan_range
from penstock.storage.partition_log import PartitionLog
from penstock.storage.retention import SegmentFacts, plan_retention
from penstock.storage.segment import Segment
from penstock.storage.time_index import NO_TIMESTAMP


def retain(log: PartitionLog, clock: Clock) -> int:
    """Applies retention; how many segments went."""
    segments = [
        SegmentFacts(segment.base_offset, segment.size_bytes, _newest_ms(segment)) for segment in log.log.segments
    ]
    plan = plan_retention(
        segments,
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        end_offset=log.end_offset,
        now_ms=clock.wall_ms(),
    )
    if plan.roll_first:
        log.roll()
    log.remove_segments(plan.bases)
    return len(plan.bases)


def _newest_ms(segment: Segment) -> int:
    """The age that counts; of a segment without timestamps, or that cannot be read, its file's: it must go one day too."""
    try:
        largest = segment.largest.timestamp
    except CorruptFileError:
        largest = NO_TIMESTAMP
    return largest if largest >= 0 else segment.modified_ms()


def remove_files(files: Files, paths: Iterable[str]) -> None:
    """Unlinks what `Removals.take_due` gave, on any thread; a name that is gone already is no error (KAFKA-7278)."""
    for path in paths:
        with suppress(FileNotFoundError):
            files.remove(path)


def compaction_range(log: PartitionLog, clock: Clock, last_clean_offset: int | None) -> CleanRange | None:
    """What a round of compaction would clean; None where nothing is dirty."""
    return plan_range(
        _facts(log),
        log.config,
        last_clean_offset=last_clean_offset,
        log_start_offset=log.log_start_offset,
        active_base=log.log.active.base_offset,
        bound_offset=min(log.last_stable_offset, log.recovery_point),
        end_offset=log.end_offset,
        now_ms=clock.wall_ms(),
    )


def _facts(log: PartitionLog) -> list[CompactionFacts]:
    facts = []
    for segment in log.log.sealed:
        offset_index, time_index = segment.indexes()
        facts.append(
            CompactionFacts(
                segment.base_offset,
                segment.size_bytes,
                segment.first_timestamp,
                segment.largest.timestamp,
                offset_index.entries * offset_index.entry_bytes,
                time_index.entries * time_index.entry_bytes,
            )
        )
    return facts


def compaction_job(
    log: PartitionLog, files: Files, clock: Clock, wanted: CleanRange, *, map_bytes: int, seed: bytes
) -> CompactionJob:
    """A round over `wanted`. `map_bytes` bounds its memory, beside two buffers of a few megabytes."""
    facts = [fact for fact in _facts(log) if fact.base_offset < wanted.end_offset]
    groups = [
        [_source(log, base_offset, wanted.end_offset) for base_offset in group]
        for group in group_segments(facts, log.config, wanted.end_offset)
    ]
    return CompactionJob(
        files=files,
        directory=log.directory,
        config=log.config,
        groups=groups,
        first_dirty_offset=wanted.first_dirty_offset,
        end_offset=wanted.end_offset,
        active_producers={
            producer.producer_id: (producer.last_offset, producer.epoch) for producer in log.producers.values()
        },
        now_ms=clock.wall_ms(),
        map_bytes=map_bytes,
        seed=seed,
        epoch=log.epoch,
    )


def _source(log: PartitionLog, base_offset: int, end_offset: int) -> Source:
    segment = log.log.floor(base_offset)
    assert segment is not None
    following = log.log.higher(base_offset)
    end = min(end_offset, following.base_offset) if following is not None else end_offset
    return Source(
        base_offset,
        end,
        segment.size_bytes,
        segment.path(names.LOG),
        segment.modified_ms(),
        log.aborted_transactions(base_offset, end),
    )


def apply_compaction(log: PartitionLog, files: Files, result: CompactionResult) -> bool:
    """Swaps a round's segments in; false where the log changed meanwhile: then the result is removed, nothing else."""
    if result.job.epoch != log.epoch:
        for group in result.groups:
            for path in log.log.cleaned_segment(group.base_offset, group.size_bytes).all_paths():
                files.remove(path)
        return False
    if result.missing:
        raise CorruptFileError(result.missing, "is gone, and nothing here removed it")
    log.replace_segments(result.groups)
    return True


def compact(
    log: PartitionLog,
    files: Files,
    clock: Clock,
    *,
    last_clean_offset: int | None = None,
    map_bytes: int = 128 * 1024 * 1024,
    seed: bytes = bytes(16),
) -> int | None:
    """One whole round here and now, whatever the dirty ratio; the new clean offset, None where nothing was dirty."""
    wanted = compaction_range(log, clock, last_clean_offset)
    if wanted is None:
        return None
    result = compaction_job(log, files, clock, wanted, map_bytes=map_bytes, seed=seed).run()
    return result.clean_offset if apply_compaction(log, files, result) else None
