"""What a start tells while it recovers logs: a line every second, and one for each log that was cut."""

from __future__ import annotations

import logging
import threading

from penstock.base.clock import Clock
from penstock.base.ids import TopicPartition
from penstock.storage.load import LoadReport
from penstock.storage.recovery import SegmentReport

logger = logging.getLogger(__name__)

INTERVAL_MS = 1_000


class RecoveryProgress:
    """`segment` may be called by every thread that recovers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_ms = clock.monotonic_ms()
        self._segments = 0
        self._bytes = 0

    def segment(self, partition: TopicPartition, report: SegmentReport) -> None:
        with self._lock:
            self._segments += 1
            self._bytes += report.size_bytes + report.cut_bytes
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._told_ms < INTERVAL_MS:
                return
            self._told_ms = now_ms
            segments, size = self._segments, self._bytes
        logger.info("recovering: %d segments, %d MB checked so far, now %s", segments, size >> 20, partition)

    def partition(self, report: LoadReport) -> None:
        """What opening a partition did; nothing is said of one that was clean."""
        if not report.recovered:
            logger.debug("opened %s: %d segments, end %d", report.partition, report.segments, report.end_offset)
            return
        cut = [found for found in report.recovered if found.cut_bytes]
        logger.info(
            "recovered %s: %d segments checked, ends at offset %d",
            report.partition,
            len(report.recovered),
            report.end_offset,
        )
        for found in cut:
            logger.warning(
                "%s was cut in segment %d: %d bytes (%s)",
                report.partition,
                found.base_offset,
                found.cut_bytes,
                found.reason,
            )
        if report.cut_segments:
            logger.warning("%s lost whole segments behind a gap: %s", report.partition, report.cut_segments)
