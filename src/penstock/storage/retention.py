"""Retention (row S18): which segments are too old, too much, or below the log's start. A pure planner."""

from __future__ import annotations

from typing import NamedTuple

from penstock.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    base_offset: int
    size_bytes: int
    newest_ms: int
    """The largest timestamp in the segment; where it has none, when its file was last written."""


class RetentionPlan(NamedTuple):
    bases: list[int]
    """Segments to remove, from the log's head."""
    roll_first: bool
    """The active segment has expired too: it is rolled, and removed with the others."""


def plan_retention(
    segments: list[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    end_offset: int,
    now_ms: int,
) -> RetentionPlan:
    """The longest head of the log that may go. Nothing at or above the high watermark does (KAFKA-5634).

    A topic that is only compacted still loses what lies below its log start (KAFKA-7400).
    """
    counts = [_below_start(segments, log_start_offset)]
    if config.delete:
        counts += [_too_old(segments, config.retention_ms, now_ms), _too_much(segments, config.retention_bytes)]
    count = min(max(counts), _below_watermark(segments, high_watermark, end_offset))
    active_goes = count == len(segments)
    if active_goes and segments[-1].size_bytes == 0:
        count -= 1
        active_goes = False
    return RetentionPlan([segment.base_offset for segment in segments[:count]], active_goes)


def _below_start(segments: list[SegmentFacts], log_start_offset: int) -> int:
    count = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset:
            break
        count += 1
    return count


def _too_old(segments: list[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.newest_ms <= retention_ms:
            break
        count += 1
    return count


def _too_much(segments: list[SegmentFacts], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        if excess < segment.size_bytes or excess <= 0:
            break
        excess -= segment.size_bytes
        count += 1
    return count


def _below_watermark(segments: list[SegmentFacts], high_watermark: int, end_offset: int) -> int:
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return sum(1 for end in ends if end <= high_watermark)
