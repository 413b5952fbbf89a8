"""A log directory without its brokers, live or a copy: what is in it, and where its logs end."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from penstock.base.errors import ConfigError
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
from penstock.client.errors import UnknownTopicError
from penstock.client.offsets import NOT_FOUND
from penstock.storage.live import partitions as live
from penstock.storage.live.partitions import LivePartition
from pyspark_penstock.options import LOG_END, AtOffset, Bound, CommonOptions
from pyspark_penstock.planning import Extent
from pyspark_penstock.ranges import Origin

FILES = SystemFiles()
NO_TOPIC_ID = bytes(16)
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state")


class PathLogs:
    """The twin of `planning.ClusterLogs`."""

    def __init__(self, options: CommonOptions) -> None:
        self._options = options
        self._ends: dict[TopicPartition, int] = {}

    def partitions(self) -> dict[TopicPartition, bytes]:
        there = sorted(place.partition for place in live.find_partitions(FILES, self._options.path))
        subscription = self._options.subscription
        if subscription.pattern:
            try:
                expression = re.compile(subscription.pattern)
            except re.error as error:
                raise ConfigError(f"the pattern {subscription.pattern!r} is no regular expression: {error}") from None
            named = [one for one in there if expression.fullmatch(one.topic) and one.topic not in _INTERNAL]
        elif subscription.topics:
            missing = set(subscription.topics) - {one.topic for one in there}
            if missing:
                raise UnknownTopicError(f"{self._options.path} has no partition of topic {min(missing)}")
            named = [one for one in there if one.topic in subscription.topics]
        else:
            lost = set(subscription.partitions) - set(there)
            if lost:
                raise UnknownTopicError(
                    f"assign names the partition {min(lost)}, which {self._options.path} does not have"
                )
            named = list(subscription.partitions)
        return dict.fromkeys(named, NO_TOPIC_ID)

    def extents(self, partitions: Collection[TopicPartition], end: Bound) -> dict[TopicPartition, Extent]:
        to_log_end = isinstance(end, AtOffset) and end.which == LOG_END
        found = {}
        for partition in partitions:
            place = self._place(partition)
            start = live.start_offset(FILES, place)
            stop = live.log_end_offset(FILES, place) if to_log_end else live.high_watermark(FILES, place)
            if self._options.read_committed:
                stop = live.stable_offset(FILES, place, stop)
            self._ends[partition] = max(start, stop)
            found[partition] = Extent(start, self._ends[partition])
        return found

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for partition, timestamp in timestamps.items():
            offset = live.offset_at_time(FILES, self._place(partition), timestamp, self._ends[partition])
            found[partition] = NOT_FOUND if offset is None else offset
        return found

    def origins(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Origin]:
        return {partition: Origin(self._options.path, None, None) for partition in partitions}

    def in_order_of_time(self, topics: Collection[str]) -> Collection[str]:
        return ()  # files do not say how the topic is set

    def _place(self, partition: TopicPartition) -> LivePartition:
        return LivePartition(self._options.path, partition)
