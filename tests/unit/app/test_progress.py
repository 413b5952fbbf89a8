"""A start that recovers tells how far it is, once a second, and what it cut."""

from __future__ import annotations

import logging

import pytest

from penstock.app.progress import RecoveryProgress
from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.storage.harvest import ProducerNotes
from penstock.storage.load import LoadReport
from penstock.storage.recovery import SegmentReport

PARTITION = TopicPartition("t", 0)


def segment(size_bytes: int, cut_bytes: int = 0, reason: str = "") -> SegmentReport:
    return SegmentReport(0, 10, size_bytes, cut_bytes, reason, [], ProducerNotes())


def test_progress_is_told_once_a_second_with_all_that_was_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    for _ in range(40):
        clock.advance(100)
        progress.segment(PARTITION, segment(1 << 20))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4
    assert told[-1] == "recovering: 40 segments, 40 MB checked so far, now t-0"


def test_a_cut_is_told_and_a_clean_partition_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = RecoveryProgress(ManualClock())
    progress.partition(LoadReport(PARTITION, 3, [], [], 10))
    assert caplog.records == []
    progress.partition(LoadReport(PARTITION, 3, [segment(100, 7, "the last batch is cut off")], [], 10))
    told = [record.getMessage() for record in caplog.records]
    assert told[-1] == "t-0 was cut in segment 0: 7 bytes (the last batch is cut off)"
