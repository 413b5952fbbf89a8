"""Compaction, the deciding half: how far a round may go, whether it is due, which segments become one (row S19)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import T0

from penstock.storage.compaction import CleanRange, CompactionFacts, group_segments, plan_range
from penstock.storage.config import LogConfig, log_config

ACTIVE = 40
END = 50


def facts(base: int, *, size: int = 100, first: int = T0, largest: int = T0, offset_bytes: int = 8) -> CompactionFacts:
    return CompactionFacts(base, size, first, largest, offset_bytes, 12)


SEALED = [facts(0), facts(10), facts(20), facts(30)]


def config(**settings: object) -> LogConfig:
    values = {"cleanup.policy": "compact", "segment.bytes": "250"}
    values.update({key.replace("_", "."): str(value) for key, value in settings.items()})
    return log_config(values)


def plan(
    clean: int | None = None,
    *,
    sealed: list[CompactionFacts] = SEALED,
    start: int = 0,
    bound: int = END,
    now_ms: int = T0,
    **settings: object,
) -> CleanRange | None:
    return plan_range(
        sealed,
        config(**settings),
        last_clean_offset=clean,
        log_start_offset=start,
        active_base=ACTIVE,
        bound_offset=bound,
        end_offset=END,
        now_ms=now_ms,
    )


def span(found: CleanRange | None) -> tuple[int, int] | None:
    return None if found is None else (found.first_dirty_offset, found.end_offset)


def test_a_round_goes_from_the_last_clean_offset_to_the_active_segment() -> None:
    assert span(plan()) == (0, 40)
    assert span(plan(20)) == (20, 40)


def test_nothing_dirty_means_no_round() -> None:
    assert plan(40) is None
    assert plan(sealed=[]) is None


@pytest.mark.parametrize(("bound", "wanted"), [(0, None), (9, None), (10, (0, 10)), (35, (0, 30)), (40, (0, 40))])
def test_only_segments_wholly_below_the_last_stable_offset_and_the_watermark_are_cleaned(
    bound: int, wanted: tuple[int, int] | None
) -> None:
    # KAFKA-13194: the caller gives the lowest of LSO, high watermark and recovery point.
    assert span(plan(bound=bound)) == wanted


@pytest.mark.parametrize(
    ("clean", "start", "wanted"),
    [
        (5, 15, (15, 40)),  # KAFKA-6266, 1641: below the log start, after DeleteRecords or retention
        (51, 0, (0, 40)),  # KAFKA-3330, 8724: beyond the end, after a truncation
        (10**12, 20, (20, 40)),
        (45, 0, None),  # KAFKA-9826: in the active segment: nothing to do until it rolls
        (50, 0, None),
        (-1, 0, (0, 40)),
    ],
)
def test_a_clean_offset_outside_the_log_leads_to_no_endless_loop(
    clean: int, start: int, wanted: tuple[int, int] | None
) -> None:
    assert span(plan(clean, start=start)) == wanted


def test_an_offset_in_a_gap_between_segments_still_finds_the_segment_after_it() -> None:
    # KAFKA-8764: compaction took the offsets 12 to 29 away.
    sealed = [facts(0), facts(30)]
    assert span(plan(15, sealed=sealed)) == (15, 40)
    assert span(plan(29, sealed=sealed)) == (29, 40)


# Due or not.
def test_a_round_is_due_above_the_dirty_ratio_not_at_it() -> None:
    half = plan(20)
    assert half is not None
    assert half.dirty_ratio == 0.5
    assert not half.is_due(config(min_cleanable_dirty_ratio=0.5))
    assert half.is_due(config(min_cleanable_dirty_ratio=0.49))


def test_sizes_of_2_gigabytes_and_more_give_a_true_ratio() -> None:
    # KAFKA-5584, 6292
    huge = [facts(base, size=2**31 - 1) for base in (0, 10, 20, 30)]
    found = plan(30, sealed=huge)
    assert found is not None
    assert found.dirty_ratio == 0.25


def test_a_log_of_empty_segments_is_never_due() -> None:
    found = plan(sealed=[facts(0, size=0)])
    assert found is not None
    assert not found.is_due(config())


def test_records_younger_than_the_smallest_lag_stay_out_of_the_round() -> None:
    sealed = [facts(0, largest=T0 - 1000), facts(10, largest=T0 - 400), facts(20, largest=T0 - 1000), facts(30)]
    assert span(plan(sealed=sealed, min_compaction_lag_ms=500)) == (0, 10)
    assert span(plan(sealed=sealed, min_compaction_lag_ms=400)) == (0, 30)
    assert plan(sealed=[facts(0)], min_compaction_lag_ms=500) is None


def test_a_record_older_than_the_largest_lag_makes_the_round_due_whatever_the_ratio() -> None:
    found = plan(30, max_compaction_lag_ms=1000, now_ms=T0 + 1000)
    assert found is not None
    assert not found.is_due(config(min_cleanable_dirty_ratio=1))
    found = plan(30, max_compaction_lag_ms=1000, now_ms=T0 + 1001)
    assert found is not None
    assert found.overdue_ms == 1
    assert found.is_due(config(min_cleanable_dirty_ratio=1))


# Groups.
def test_segments_become_one_within_a_segments_size() -> None:
    assert group_segments(SEALED, config(), ACTIVE) == [[0, 10], [20, 30]]
    assert group_segments(SEALED, config(segment_bytes=100), ACTIVE) == [[0], [10], [20], [30]]


def test_a_group_fits_the_indexes_it_will_need() -> None:
    # KAFKA-5413, 2024
    sealed = [facts(0, size=10, offset_bytes=60), facts(10, size=10, offset_bytes=60), facts(20, size=10)]
    assert group_segments(sealed, config(segment_index_bytes=100), 30) == [[0], [10, 20]]


def test_a_group_spans_no_more_offsets_than_its_index_can_name() -> None:
    # KAFKA-5413: relative offsets are int32.
    far = 2**31
    sealed = [facts(0, size=10), facts(5, size=10), facts(far - 10, size=10), facts(far + 5, size=10)]
    assert group_segments(sealed, config(), far + 10) == [[0, 5], [far - 10, far + 5]]


def test_an_empty_segment_joins_its_neighbour_and_is_not_left_behind() -> None:
    # KAFKA-12889
    sealed = [facts(0, size=10), facts(5, size=0), facts(10, size=0), facts(2**31 + 20, size=0)]
    assert group_segments(sealed, config(), 2**31 + 30) == [[0, 5, 10, 2**31 + 20]]
