"""The data source: what Spark calls first. Light: everything else is imported by the methods that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

    Options and rows are those of Spark's own Kafka connector; see `options` and `rows`.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        from pyspark_penstock.options import read_common
        from pyspark_penstock.rows import spark_schema

        return spark_schema(read_common(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_penstock.batch import BatchReader
        from pyspark_penstock.options import read_batch_options
        from pyspark_penstock.rows import check_schema

        options = read_batch_options(self.options)
        check_schema(schema, options.common.columns)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_penstock.options import read_stream_options
        from pyspark_penstock.rows import check_schema
        from pyspark_penstock.stream import StreamReader

        options = read_stream_options(self.options)
        check_schema(schema, options.common.columns)
        return StreamReader(options)
