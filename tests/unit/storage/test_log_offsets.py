"""The offsets beside a log's end: their order holds whatever is asked for (row S12)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import marker, new_disk, open_log, produced, records

from penstock.storage.log_offsets import LogOffsets
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin


def a_log(count: int = 10) -> PartitionLog:
    log, _ = open_log(new_disk())
    for _ in range(count):
        log.append_as_leader(produced(), leader_epoch=0)
    return log


def offsets_of(log: PartitionLog) -> tuple[int, int, int, int, int]:
    return log.log_start_offset, log.recovery_point, log.last_stable_offset, log.high_watermark, log.end_offset


def test_the_high_watermark_never_falls_and_never_passes_the_end() -> None:
    log = a_log()
    assert log.set_high_watermark(4)
    for offset in (4, 3, 0, -1):
        assert not log.set_high_watermark(offset)
        assert log.high_watermark == 4
    assert log.set_high_watermark(99)
    assert log.high_watermark == log.end_offset == 10


def test_a_raised_start_takes_along_what_must_not_lie_below_it() -> None:
    log = a_log()
    log.set_high_watermark(2)
    assert log.raise_log_start(5)
    assert offsets_of(log) == (5, 5, 5, 5, 10)
    assert not log.raise_log_start(4)
    assert offsets_of(log) == (5, 5, 5, 5, 10)


def test_the_stable_offset_is_the_first_open_transaction_or_the_high_watermark() -> None:
    log = a_log(2)
    log.append_as_leader(produced(records(), producer_id=7, transactional=True), leader_epoch=0)
    log.append_as_leader(produced(records(), producer_id=8, transactional=True), leader_epoch=0)
    log.set_high_watermark(1)
    assert log.last_stable_offset == 1, "what is open lies beyond"
    log.set_high_watermark(4)
    assert log.last_stable_offset == 2
    log.append_as_leader(marker(7, commit=True), leader_epoch=0, origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 2, "its end is not below the high watermark yet"
    log.set_high_watermark(5)
    assert log.last_stable_offset == 3


def test_nothing_above_a_lowered_recovery_point_counts_as_flushed() -> None:
    log = a_log()
    log.flush()
    assert log.recovery_point == 10
    assert log.lower_recovery_point(6)
    assert not log.lower_recovery_point(8)
    assert log.recovery_point == 6
    log.set_high_watermark(10)
    log.raise_log_start(7)
    assert not log.lower_recovery_point(3)
    assert log.recovery_point == 7, "nor does it lie below the start"


@pytest.mark.parametrize(("start", "recovery_point", "high_watermark"), [(3, 2, 5), (0, 11, 5), (6, 6, 5)])
def test_offsets_out_of_order_are_a_programmers_error(start: int, recovery_point: int, high_watermark: int) -> None:
    log = a_log()
    with pytest.raises(AssertionError):
        LogOffsets(log.log, log.producers, start=start, recovery_point=recovery_point, high_watermark=high_watermark)
