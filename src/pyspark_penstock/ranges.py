"""Offset ranges: what a task reads, and how ranges become more tasks. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from penstock.base.ids import TopicPartition


@dataclass(frozen=True)
class Origin:
    """The log directory where a partition's leader keeps it, and whose that must be."""

    log_directory: str
    cluster_id: str | None
    node_id: int | None
    """None: the directory is all there is, nobody says whose."""


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """The offsets [start_offset, end_offset) of one partition. It travels to an executor by pickle."""

    topic: str
    partition: int
    topic_id: bytes
    start_offset: int
    end_offset: int
    origin: Origin | None = None
    time_ms_min: int | None = None
    time_ms_max: int | None = None
    """Records of other times may be left out."""
    is_in_order_of_time: bool = False
    """The broker sets the times: the first record behind time_ms_max ends the reading."""
    view_end_offset: int | None = None
    """Of a view: records at or beyond this offset count, but are not given."""

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def split(ranges: Sequence[TopicRange], partitions_min: int | None, records_max: int | None) -> list[TopicRange]:
    """The ranges that hold something, cut to records_max offsets each, then into at least partitions_min.

    As in Spark's connector: small ranges stay whole, and the others are cut in proportion to their size.
    """
    left = [one for one in ranges if one.size > 0]
    if records_max is not None:
        left = [part for one in left for part in _cut(one, -(-one.size // records_max))]
    if partitions_min is None or len(left) >= partitions_min:
        return left
    total = sum(one.size for one in left)
    large = [one for one in left if _share(one.size, total, partitions_min) > 1]
    large_total = sum(one.size for one in large)
    large_parts = max(1, partitions_min - (len(left) - len(large)))
    parts = {id(one): _share(one.size, large_total, large_parts) for one in large}
    return [part for one in left for part in _cut(one, parts.get(id(one), 1))]


def _share(size: int, total: int, parts: int) -> int:
    return max(1, (2 * size * parts + total) // (2 * total))  # rounded half up


def _cut(whole: TopicRange, parts: int) -> list[TopicRange]:
    parts = min(parts, whole.size)
    edges = [whole.start_offset + whole.size * n // parts for n in range(parts + 1)]
    return [replace(whole, start_offset=start, end_offset=end) for start, end in itertools.pairwise(edges)]


def rate_limited(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> dict[TopicPartition, int]:
    """Ends so that about offsets_max offsets lie between, each partition having its share of what waits."""
    sizes = {partition: max(0, end - starts[partition]) for partition, end in ends.items()}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(ends)
    limited = {}
    for partition, end in ends.items():
        share = offsets_max * sizes[partition] // total
        # A partition with little waiting moves too, or it would starve beside a busy one.
        step = share if share > 0 else min(1, sizes[partition])
        limited[partition] = min(end, starts[partition] + step) if sizes[partition] else end
    return limited
