"""Batch queries: a plan made once on the driver, ranges read by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_penstock.clusters import cluster_for
from pyspark_penstock.filters import EVERYTHING, wanted_by
from pyspark_penstock.options import BatchOptions
from pyspark_penstock.path_logs import PathLogs
from pyspark_penstock.planning import ClusterLogs, plan_batch
from pyspark_penstock.ranges import TopicRange
from pyspark_penstock.ways import read_rows

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


class _PushFilters:
    """The method pushFilters of a reader: Spark refuses readers that have one of their own where its setting is off.

    There it looks which function the method is, and does not call it; this says it is nobody's own.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """All of them go back to Spark, which evaluates them on the rows."""
        self._reader.narrow(filters)
        return filters


class BatchReader(DataSourceReader):
    """Travels to the tasks by pickle: it holds options, never connections."""

    def __init__(self, options: BatchOptions) -> None:
        self._options = options
        self._wanted = EVERYTHING

    @property
    def pushFilters(self) -> _PushFilters:
        return _PushFilters(self)

    def narrow(self, filters: Sequence[Filter]) -> None:
        self._wanted = wanted_by(filters)

    def partitions(self) -> list[InputPartition]:
        """Never empty, for Spark would make a partition of its own of that."""
        ranges: list[InputPartition] = list(self._plan())
        return ranges or [TopicRange("", 0, b"", 0, 0)]

    def _plan(self) -> list[TopicRange]:
        if self._options.common.client is None:
            return plan_batch(PathLogs(self._options.common), self._options, self._wanted)
        return plan_batch(
            ClusterLogs(cluster_for(self._options.common), self._options.common), self._options, self._wanted
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return read_rows(partition, self._options.common)
