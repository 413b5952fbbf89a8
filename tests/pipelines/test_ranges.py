"""Ranges become tasks, positions become JSON, record batches become rows of a good size."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import TopicPartition
from penstock.records.arrow import to_arrow
from penstock.records.batch import scan
from penstock.records.build import build_batch
from pyspark_penstock import stream_offsets
from pyspark_penstock.ranges import TopicRange, rate_limited, split
from pyspark_penstock.rows import ROWS_MAX, ROWS_MIN, RowMaker, arrow_schema, check_schema, rechunk, spark_schema
from pyspark_penstock.stream_offsets import CheckpointError

A, B, C = (TopicPartition("t", number) for number in range(3))


def topic_range(partition: int, start: int, end: int) -> TopicRange:
    return TopicRange("t", partition, bytes(16), start, end)


ranges = st.lists(
    st.builds(lambda n, start, size: topic_range(n, start, start + size), st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 10**5)),
    max_size=8,
)  # fmt: skip


@given(ranges=ranges, partitions_min=st.none() | st.integers(1, 50), records_max=st.none() | st.integers(1, 10**5))
def test_splitting_neither_loses_nor_doubles_an_offset(
    ranges: list[TopicRange], partitions_min: int | None, records_max: int | None
) -> None:
    records_max = None if records_max is None else max(records_max, 1 + sum(one.size for one in ranges) // 200)
    parts = split(ranges, partitions_min, records_max)
    assert all(part.size > 0 for part in parts)
    rest = list(parts)
    for whole in (one for one in ranges if one.size > 0):
        at = whole.start_offset
        while at < whole.end_offset:
            part = rest.pop(0)
            assert (part.partition, part.start_offset) == (whole.partition, at)
            at = part.end_offset
        assert at == whole.end_offset
    assert rest == []
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)


def test_large_ranges_are_cut_in_proportion_and_small_ones_stay_whole() -> None:
    parts = split([topic_range(0, 0, 1000), topic_range(1, 0, 10), topic_range(2, 0, 3000)], 9, None)
    assert [part.partition for part in parts].count(0) == 2
    assert [part.partition for part in parts].count(1) == 1
    assert [part.partition for part in parts].count(2) == 6


def test_a_limit_is_shared_in_proportion_and_starves_nobody() -> None:
    starts, ends = {A: 0, B: 100, C: 5}, {A: 10_000, B: 110, C: 5}
    assert rate_limited(starts, ends, 100_000) == ends
    limited = rate_limited(starts, ends, 100)
    assert limited == {A: 99, B: 101, C: 5}


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 1000), st.integers(0, 1000))),
    st.integers(1, 500),
)
def test_a_limited_end_lies_between_start_and_end_and_moves(
    lags: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    starts = {partition: start for partition, (start, _) in lags.items()}
    ends = {partition: start + size for partition, (start, size) in lags.items()}
    limited = rate_limited(starts, ends, limit)
    assert all(starts[one] <= limited[one] <= ends[one] for one in lags)
    assert sum(limited[one] - starts[one] for one in lags) <= limit + len(lags)
    if starts != ends:
        assert limited != starts


def test_positions_are_the_connectors_json() -> None:
    position = stream_offsets.to_json(
        {TopicPartition("b", 0): 5, TopicPartition("a", 10): 7, TopicPartition("a", 9): 6}
    )
    assert position == {"a": {"9": 6, "10": 7}, "b": {"0": 5}}
    assert list(position["a"]) == ["9", "10"]
    assert stream_offsets.from_json(position)[TopicPartition("a", 10)] == 7


def test_the_first_batch_carries_where_it_began() -> None:
    begun = stream_offsets.initial({A: 5})
    end = stream_offsets.first_end({A: 9}, {A: 5})
    assert stream_offsets.is_initial(begun)
    assert not stream_offsets.is_initial(end)
    later = stream_offsets.initial({A: 8})
    assert stream_offsets.start_of(later, end) == {A: 5}
    assert stream_offsets.from_json(end) == {A: 9}


@pytest.mark.parametrize("position", [{"t": 5}, {"t": {"x": 5}}, {"t": {"0": None}}])
def test_another_sources_checkpoint_is_refused(position: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="no position of a Kafka stream"):
        stream_offsets.from_json(position)


def records(count: int, first: int = 0, *, headers: bool = False) -> pa.RecordBatch:
    given = [
        (1000 + n, b"k", b"v%d" % n, [("h", None), ("g", b"x")] if headers and n % 2 else []) for n in range(count)
    ]
    data = build_batch(given, base_offset=first)
    (found,) = to_arrow(data, scan(data).batches)
    return found


def test_rows_have_the_schema_that_spark_compares_with() -> None:
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    made = RowMaker(columns, "t", 3).make(records(4, headers=True))
    assert made.schema.equals(arrow_schema(columns))
    made.validate(full=True)
    assert made.column("headers").to_pylist()[:2] == [None, [{"key": "h", "value": None}, {"key": "g", "value": b"x"}]]
    assert made.column("topic").to_pylist() == ["t"] * 4
    assert made.column("partition").to_pylist() == [3] * 4
    without = RowMaker(columns, "t", 3).make(records(4))
    assert without.schema.equals(arrow_schema(columns))
    assert without.column("headers").to_pylist() == [None] * 4
    check_schema(spark_schema(columns), columns)


@pytest.mark.parametrize("counts", [[1] * 30, [4000] * 9, [120_000], [9_000, 49_000, 10, 60_000, 3], [0, 5, 0], []])
def test_batches_are_joined_and_cut_to_a_good_size(counts: list[int]) -> None:
    given, first = [], 0
    for count in counts:
        given.append(pa.record_batch({"offset": pa.array(range(first, first + count), pa.int64())}))
        first += count
    made = list(rechunk(given))
    assert [number for batch in made for number in batch.column("offset").to_pylist()] == list(range(first))
    assert all(0 < batch.num_rows <= ROWS_MAX for batch in made)
    assert sum(batch.num_rows < ROWS_MIN for batch in made) <= 1 + sum(count > ROWS_MIN for count in counts)
