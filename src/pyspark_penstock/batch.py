"""Batch queries: a plan made once on the driver, ranges read by tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_penstock.clusters import cluster_for
from pyspark_penstock.options import BatchOptions
from pyspark_penstock.path_logs import PathLogs
from pyspark_penstock.planning import ClusterLogs, plan_batch
from pyspark_penstock.ranges import TopicRange
from pyspark_penstock.ways import read_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


class BatchReader(DataSourceReader):
    """Travels to the tasks by pickle: it holds options, never connections."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Never empty, for Spark would make a partition of its own of that."""
        ranges: list[InputPartition] = list(self._plan())
        return ranges or [TopicRange("", 0, b"", 0, 0)]

    def _plan(self) -> list[TopicRange]:
        if self._options.common.client is None:
            return plan_batch(PathLogs(self._options.common), self._options)
        return plan_batch(ClusterLogs(cluster_for(self._options.common), self._options.common), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return read_rows(partition, self._options.common)
