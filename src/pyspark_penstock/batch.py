"""Batch queries: a plan made once on the driver, ranges read by tasks.

Spark keeps one plan for each `load()`: the first query over it makes the plan, and later ones read the same ranges. With its
push-down on, every query that has conditions makes a new one, which then holds for all that is made of that `load()`:
for the other side of a join as well, and for a later query without conditions (SPARK-51575; nothing tells a source
which of them it reads for). A plan that conditions narrowed would be a wrong one there, so that happens only where the option
pushDown promises that there is no other use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:
        return _PushFilters(self) if self._options.takes_conditions else super().pushFilters

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
