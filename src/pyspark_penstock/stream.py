"""Streams: positions are decided by one long-lived process, ranges are read by tasks.

Spark runs one instance for positions and plans, in a process that lives as long as the query; what it remembers (the target
of an available-now run, the time of the last batch) stands here. Another instance travels to the tasks by pickle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.base.errors import ConfigError
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, UnknownTopicError
from penstock.client.groups import set_offsets
from penstock.client.offsets import LATEST
from pyspark_penstock import stream_offsets
from pyspark_penstock.clusters import cluster_for
from pyspark_penstock.options import AtOffset, AtOffsets, StreamOptions
from pyspark_penstock.origins import Origins
from pyspark_penstock.planning import ClusterLogs, DataLossError, earliest, find_partitions, latest, resolve
from pyspark_penstock.ranges import TopicRange, rate_limited, split
from pyspark_penstock.stream_offsets import CheckpointError
from pyspark_penstock.ways import read_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

WAIT_MS = 100
"""Spark asks every 10 ms for new offsets. Longer would hold up the other sources of a query."""
POLL_MS = 20

Offsets = dict[TopicPartition, int]
log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._batch_ms: int | None = None
        self._origins = Origins(options.common)
        self._group_offsets: Offsets = {}

    @property
    def _cluster(self) -> Cluster:
        return cluster_for(self._options.common)

    def initialOffset(self) -> dict[str, Any]:
        logs = ClusterLogs(self._cluster, self._options.common)
        there = logs.extents(logs.partitions(), AtOffset(which=LATEST))
        must_hold = self._options.common.fail_on_data_loss
        starts = resolve(logs, self._options.start, there, "startingOffsets", must_hold=must_hold)
        return stream_offsets.initial(starts)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find_latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = stream_offsets.from_json(start)
        if not stream_offsets.is_initial(start):
            self._commit_to_group(begun)
        ends = self._wait_for_news(begun, is_initial=stream_offsets.is_initial(start))
        self._check_partitions(begun, ends)
        begins = begun | self._starts_of_new(begun, ends)
        if isinstance(limit, ReadMaxRows):
            ends = rate_limited(begins, ends, limit.max_rows)
        if stream_offsets.is_initial(start):
            return self._batch(stream_offsets.first_end(ends, begun))
        if ends == begun or self._is_too_little(begins, ends):
            return start
        return self._batch(stream_offsets.to_json(ends))

    def reportLatestOffset(self) -> dict[str, Any]:
        return stream_offsets.to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ends = stream_offsets.start_of(start, end), stream_offsets.from_json(end)
        if stream_offsets.is_foreign_first(start, end):
            self._refuse_unknown_start()
        begins = begun | self._starts_of_new(begun, ends)
        topic_ids = find_partitions(self._cluster, self._options.common.subscription)
        origins = self._origins.find(self._cluster, [one for one in ends if one in topic_ids])
        begins |= self._moved_starts(begins, ends, [one for one in ends if one in topic_ids and one in origins])
        ranges = []
        for partition, end_offset in ends.items():
            if end_offset < begins[partition]:
                self._lose(f"{partition} was read up to {begins[partition]}, but now its log ends at {end_offset}")
            if partition not in topic_ids:
                self._lose(f"{partition} is no longer there")
                continue
            wanted = TopicRange(*partition, topic_ids[partition], begins[partition], end_offset, origins.get(partition))
            ranges.append(wanted)
        common = self._options.common
        return list(split(ranges, common.partitions_min, common.records_per_partition_max))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return read_rows(partition, self._options.common)

    def _refuse_unknown_start(self) -> None:
        """Spark's own connector writes that down where nobody else can read it."""
        start = self._options.start
        offsets = [start.which] if isinstance(start, AtOffset) else [*start.offsets.values()] if isinstance(start, AtOffsets) else []  # fmt: skip
        if LATEST in offsets:
            raise CheckpointError(
                "the checkpoint's first batch is not finished and does not say where it began, and the latest offset is another "
                "one now: let the connector that made it finish that batch, or say by startingOffsets where to begin"
            )

    def _commit_to_group(self, finished: Offsets) -> None:
        """Here, not in `commit`, which comes a batch late and never after the last one of an available-now run."""
        group_id = self._options.group_id
        if group_id is None or finished == self._group_offsets:
            return
        try:
            set_offsets(self._cluster, group_id, finished)
        except ClientError as error:
            log.warning("the offsets of group %s stay behind: %s", group_id, error)
        self._group_offsets = finished

    def _find_latest(self) -> Offsets:
        return latest(self._cluster, find_partitions(self._cluster, self._options.common.subscription))

    def _wait_for_news(self, begun: Mapping[TopicPartition, int], *, is_initial: bool) -> Offsets:
        if self._target is not None:
            self._latest = self._target
            return self._target
        clock = self._cluster.time.clock
        deadline_ms = clock.monotonic_ms() + WAIT_MS
        self._latest = self._find_latest()
        while not is_initial and self._latest == begun and clock.monotonic_ms() < deadline_ms:
            self._cluster.time.sleep(POLL_MS / 1000)
            try:
                self._latest = latest(self._cluster, self._latest)
            except UnknownTopicError:  # deleted meanwhile: what is there now decides whether that is a loss
                self._latest = self._find_latest()
        return self._latest

    def _check_partitions(self, begun: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        gone = [str(partition) for partition in begun if partition not in ends]
        if gone:
            self._lose(f"{', '.join(gone)} can no longer be found")

    def _starts_of_new(self, begun: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
        """Partitions that came after the stream began are read from their beginning."""
        starts = earliest(self._cluster, [partition for partition in ends if partition not in begun])
        for partition, offset in starts.items():
            if offset > 0:
                self._lose(f"{partition} is new to this stream and begins at offset {offset}")
        return starts

    def _moved_starts(
        self,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        in_files: Sequence[TopicPartition],
    ) -> Offsets:
        """Records that were deleted may stand in the files for a while; a broker would not give them."""
        moved = {}
        for partition, offset in earliest(self._cluster, [one for one in in_files if begins[one] < ends[one]]).items():
            if offset > begins[partition]:
                self._lose(f"{partition} was read up to {begins[partition]}, but now its log begins at {offset}")
                moved[partition] = min(offset, ends[partition])
        return moved

    def _is_too_little(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        least = self._options.offsets_per_trigger_min
        if least is None or self._target is not None or self._batch_ms is None:
            return False
        waiting = sum(end - begins[partition] for partition, end in ends.items())
        waited_ms = self._cluster.time.clock.monotonic_ms() - self._batch_ms
        return 0 <= waiting < least and waited_ms < self._options.trigger_delay_ms_max

    def _batch(self, position: dict[str, Any]) -> dict[str, Any]:
        self._batch_ms = self._cluster.time.clock.monotonic_ms()
        return position

    def _lose(self, what: str) -> None:
        if self._options.common.fail_on_data_loss:
            raise DataLossError(what)
        log.warning("%s", what)


class RefusedStream(DataSourceStreamReader):
    """A stream whose options are wrong. It says so when it is first asked: Spark covers an error in its making with one of its own."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:
        raise ConfigError(self._reason)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise ConfigError(self._reason)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise ConfigError(self._reason)
