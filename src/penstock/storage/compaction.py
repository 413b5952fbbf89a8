"""Compaction, the deciding half (row S19): whether a log is worth cleaning, how far, in which groups. Pure.

The doing half is `cleaner`; retention is a planner of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.storage.config import LogConfig
from penstock.storage.segment import RELATIVE_OFFSET_MAX


class CompactionFacts(NamedTuple):
    """A sealed segment as the planner sees it."""

    base_offset: int
    size_bytes: int
    first_timestamp: int
    largest_timestamp: int
    offset_index_bytes: int
    time_index_bytes: int


class CleanRange(NamedTuple):
    """What a round may clean: dirty offsets from `first_dirty_offset`, segments wholly below `end_offset`."""

    first_dirty_offset: int
    end_offset: int
    dirty_ratio: float
    overdue_ms: int
    """How long `max.compaction.lag.ms` has been passed; 0: it has not."""

    def is_due(self, config: LogConfig) -> bool:
        return self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_range(
    sealed: list[CompactionFacts],
    config: LogConfig,
    *,
    last_clean_offset: int | None,
    log_start_offset: int,
    active_base: int,
    bound_offset: int,
    end_offset: int,
    now_ms: int,
) -> CleanRange | None:
    """The range a round would clean; None where there is nothing dirty below the bound.

    `bound_offset` is the lowest of LSO, HW and recovery point (KAFKA-13194). A checkpoint outside the log, as after a
    truncation, means: from the start (KAFKA-8764, 6266).
    """
    first_dirty = log_start_offset if last_clean_offset is None else last_clean_offset
    if not log_start_offset <= first_dirty <= end_offset:
        first_dirty = log_start_offset
    limit = min(active_base, bound_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in _dirty(sealed, first_dirty, active_base):
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                limit = min(limit, segment.base_offset)
                break
    whole = [segment for segment, end in _with_ends(sealed, active_base) if end <= limit]
    if not whole:
        return None
    clean_end = sealed[len(whole)].base_offset if len(whole) < len(sealed) else active_base
    if first_dirty >= clean_end:
        return None
    dirty_bytes = sum(segment.size_bytes for segment in _dirty(whole, first_dirty, clean_end))
    total_bytes = sum(segment.size_bytes for segment in whole)
    stamps = [s.first_timestamp for s in _dirty(whole, first_dirty, clean_end) if s.first_timestamp > 0]
    overdue_ms = max(0, now_ms - config.max_compaction_lag_ms - min(stamps)) if stamps else 0
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    return CleanRange(first_dirty, clean_end, ratio, overdue_ms)


def _dirty(segments: list[CompactionFacts], first_dirty: int, end_offset: int) -> list[CompactionFacts]:
    """Segments that hold offsets at or above `first_dirty`."""
    return [segment for segment, end in _with_ends(segments, end_offset) if end > first_dirty]


def _with_ends(segments: list[CompactionFacts], end_offset: int) -> list[tuple[CompactionFacts, int]]:
    """Each segment and the offset before which it ends; the last one ends at `end_offset`."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return list(zip(segments, ends, strict=False))


def group_segments(sealed: list[CompactionFacts], config: LogConfig, end_offset: int) -> list[list[int]]:
    """Base offsets of segments that become one: within a segment's size, its indexes' size and an int32 of offsets."""
    groups: list[list[int]] = []
    size = offset_bytes = time_bytes = 0
    for segment, end in _with_ends(sealed, end_offset):
        fits = (
            bool(groups)
            and size + segment.size_bytes <= config.segment_bytes
            and offset_bytes + segment.offset_index_bytes <= config.segment_index_bytes
            and time_bytes + segment.time_index_bytes <= config.segment_index_bytes
            and (segment.size_bytes == 0 or end - 1 - groups[-1][0] <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            groups[-1].append(segment.base_offset)
        else:
            groups.append([segment.base_offset])
            size = offset_bytes = time_bytes = 0
        size += segment.size_bytes
        offset_bytes += segment.offset_index_bytes
        time_bytes += segment.time_index_bytes
    return groups
