"""From options to offsets, on the driver: which partitions there are, where they begin, where the reading ends."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from penstock.base.errors import ConfigError, PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.admin import ResourceKind, describe_configs
from penstock.client.cluster import Cluster, TopicMetadata
from penstock.client.errors import ClientError, UnknownTopicError
from penstock.client.offsets import EARLIEST, LATEST, NOT_FOUND, list_offsets
from pyspark_penstock.filters import EVERYTHING, Wanted
from pyspark_penstock.options import (
    LOG_END,
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    BatchOptions,
    Bound,
    CommonOptions,
    Subscription,
)
from pyspark_penstock.origins import Origins
from pyspark_penstock.ranges import Origin, TopicRange, split

log = logging.getLogger(__name__)


class DataLossError(PenstockError):
    """Records are gone before they could be read; the option failOnDataLoss decides whether that is an error."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; with failOnDataLoss=false the reading goes on with what is there")


class Extent(NamedTuple):
    """Where a partition begins and where it ends for this reader."""

    start_offset: int
    end_offset: int


def find_partitions(cluster: Cluster, subscription: Subscription) -> dict[TopicPartition, bytes]:
    """The partitions subscribed to as they are now, each with its topic's id."""
    if subscription.pattern:
        return _all_partitions(cluster.topics_like(subscription.pattern))
    if subscription.topics:
        return _all_partitions(cluster.topics(subscription.topics))
    assigned = subscription.partitions
    found = _all_partitions(cluster.topics(tuple({partition.topic for partition in assigned})))
    missing = [partition for partition in assigned if partition not in found]
    if missing:
        raise UnknownTopicError(
            f"assign names the partition {missing[0]}, which topic {missing[0].topic} does not have"
        )
    return {partition: found[partition] for partition in assigned}


def _all_partitions(topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, bytes]:
    return {
        TopicPartition(name, number): topic.topic_id for name, topic in topics.items() for number in topic.partitions
    }


def earliest(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return _listed(cluster, dict.fromkeys(partitions, EARLIEST))


def latest(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Where a reader of this isolation level has to stop: the high watermark, or the last stable offset."""
    return _listed(cluster, dict.fromkeys(partitions, LATEST))


def _listed(cluster: Cluster, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not timestamps:
        return {}
    found = list_offsets(cluster, timestamps, read_committed=cluster.config.read_committed)
    return {partition: listed.offset for partition, listed in found.items()}


class Logs(Protocol):
    """Where logs are looked up: a cluster, or a directory."""

    def partitions(self) -> dict[TopicPartition, bytes]:
        """Those subscribed to, each with its topic's id."""

    def extents(self, partitions: Collection[TopicPartition], end: Bound) -> dict[TopicPartition, Extent]: ...

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each time; NOT_FOUND where no record is that late."""

    def origins(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Origin]: ...

    def in_order_of_time(self, topics: Collection[str]) -> Collection[str]:
        """Those of them whose records get their times from the broker. A batch may have got its own so, and a later one not."""


class ClusterLogs:
    def __init__(self, cluster: Cluster, options: CommonOptions) -> None:
        self._cluster = cluster
        self._options = options

    def partitions(self) -> dict[TopicPartition, bytes]:
        return find_partitions(self._cluster, self._options.subscription)

    def extents(self, partitions: Collection[TopicPartition], end: Bound) -> dict[TopicPartition, Extent]:
        starts, ends = earliest(self._cluster, partitions), latest(self._cluster, partitions)
        return {one: Extent(starts[one], max(starts[one], ends[one])) for one in partitions}

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return _listed(self._cluster, timestamps)

    def origins(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Origin]:
        return Origins(self._options).find(self._cluster, partitions)

    def in_order_of_time(self, topics: Collection[str]) -> Collection[str]:
        return [topic for topic in topics if self._sets_times(topic)]

    def _sets_times(self, topic: str) -> bool:
        try:
            entries = describe_configs(self._cluster, ResourceKind.TOPIC, topic)
        except ClientError as error:  # it may not be allowed: then more is read
            log.debug("%s is read to its end: %s", topic, error)
            return False
        return any(one.name == "message.timestamp.type" and one.value == "LogAppendTime" for one in entries)


def plan_batch(logs: Logs, options: BatchOptions, wanted: Wanted = EVERYTHING) -> list[TopicRange]:
    """The tasks of a batch query; every end is fixed here, once."""
    partitions = logs.partitions()
    there = logs.extents(partitions, options.end)
    must_hold = options.common.fail_on_data_loss
    starts = resolve(logs, options.start, there, "startingOffsets", must_hold=must_hold)
    ends = resolve(logs, options.end, there, "endingOffsets", must_hold=must_hold)
    for partition in partitions:
        is_named = isinstance(options.start, AtOffsets) and isinstance(options.end, AtOffsets)
        if is_named and must_hold and starts[partition] > ends[partition]:
            raise ConfigError(
                f"startingOffsets has {starts[partition]} for {partition}, behind the {ends[partition]} of endingOffsets"
            )
    spans = {
        partition: Extent(starts[partition], ends[partition])
        for partition in partitions
        if (wanted.topics is None or partition.topic in wanted.topics)
        and (wanted.partitions is None or partition.partition in wanted.partitions)
    }
    if options.is_view:
        # Later records decide over earlier ones, so whatever limits the offsets or the times comes after the view.
        found = {one: span._replace(end_offset=there[one].end_offset) for one, span in spans.items()}
        ranges = _ranges(logs, partitions, found, EVERYTHING)
        return [replace(one, view_end_offset=ends[one.topic_partition]) for one in ranges]
    ranges = _ranges(logs, partitions, _narrowed(logs, spans, wanted), wanted)
    if wanted.time_ms_max is not None:
        in_order = logs.in_order_of_time({one.topic for one in ranges})
        ranges = [replace(one, is_in_order_of_time=one.topic in in_order) for one in ranges]
    return split(ranges, options.common.partitions_min, options.common.records_per_partition_max)


def _ranges(
    logs: Logs, topic_ids: Mapping[TopicPartition, bytes], spans: Mapping[TopicPartition, Extent], wanted: Wanted
) -> list[TopicRange]:
    spans = {partition: span for partition, span in spans.items() if span.start_offset < span.end_offset}
    origins = logs.origins(spans.keys())
    return [
        TopicRange(
            *partition, topic_ids[partition], *span, origins.get(partition), wanted.time_ms_min, wanted.time_ms_max
        )
        for partition, span in spans.items()
    ]


def _narrowed(logs: Logs, spans: Mapping[TopicPartition, Extent], wanted: Wanted) -> dict[TopicPartition, Extent]:
    """Without the offsets that the conditions rule out, and those before the first record that is young enough."""
    found = {}
    for partition, (start, end) in spans.items():
        start = start if wanted.offset_min is None else max(start, wanted.offset_min)
        end = end if wanted.offset_max is None else min(end, wanted.offset_max + 1)
        if start < end:
            found[partition] = Extent(start, end)
    if wanted.time_ms_min is None or wanted.time_ms_min <= 0 or not found:
        return found
    first = logs.at_times(dict.fromkeys(found, min(wanted.time_ms_min, 2**63 - 1)))
    return {
        partition: Extent(max(start, first[partition]), end)
        for partition, (start, end) in found.items()
        if first[partition] != NOT_FOUND
    }


def resolve(
    logs: Logs, bound: Bound, there: Mapping[TopicPartition, Extent], name: str, *, must_hold: bool
) -> dict[TopicPartition, int]:
    """The offset of each partition that a bound means; an offset that is not there is refused, or moved to one that is."""
    if isinstance(bound, AtOffset):
        return {partition: _special(bound.which, extent) for partition, extent in there.items()}
    if isinstance(bound, AtOffsets):
        _check_named(name, bound.offsets, there)
        return {
            partition: _held(name, partition, bound.offsets[partition], extent, must_hold=must_hold)
            for partition, extent in there.items()
        }
    if isinstance(bound, AtTimes):
        _check_named(f"{name}ByTimestamp", bound.timestamps_ms, there)
        timestamps = {partition: bound.timestamps_ms[partition] for partition in there}
    else:
        timestamps = dict.fromkeys(there, bound.timestamp_ms)
    return _at_times(logs, timestamps, there, bound, name)


def _at_times(
    logs: Logs,
    timestamps: Mapping[TopicPartition, int],
    there: Mapping[TopicPartition, Extent],
    bound: AtTime | AtTimes,
    name: str,
) -> dict[TopicPartition, int]:
    offsets = {}
    for partition, offset in logs.at_times(timestamps).items():
        if offset == NOT_FOUND and not bound.else_latest:
            raise ConfigError(
                f"{name}: {partition} has no record of the time {timestamps[partition]} ms or later "
                "(startingOffsetsByTimestampStrategy=latest would begin at its end)"
            )
        end_offset = there[partition].end_offset
        offsets[partition] = end_offset if offset == NOT_FOUND else min(offset, end_offset)
    return offsets


def _special(offset: int, extent: Extent) -> int:
    if offset == EARLIEST:
        return extent.start_offset
    return extent.end_offset if offset in (LATEST, LOG_END) else offset


def _check_named(name: str, values: Mapping[TopicPartition, int], there: Mapping[TopicPartition, Extent]) -> None:
    missing = [partition for partition in there if partition not in values]
    if missing:
        raise ConfigError(f"{name} must name every partition that is read: {missing[0]} is missing")
    unknown = [partition for partition in values if partition not in there]
    if unknown:
        raise ConfigError(f"{name} names {unknown[0]}, which is not among the partitions that are read")


def _held(name: str, partition: TopicPartition, offset: int, extent: Extent, *, must_hold: bool) -> int:
    wanted = _special(offset, extent)
    if extent.start_offset <= wanted <= extent.end_offset:
        return wanted
    if must_hold:
        raise DataLossError(
            f"{name} has {wanted} for {partition}, whose log holds [{extent.start_offset}, {extent.end_offset})"
        )
    return min(max(wanted, extent.start_offset), extent.end_offset)
