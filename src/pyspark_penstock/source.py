"""The data source: what Spark calls first. Light: everything else is imported by the methods that need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`format("penstock")` of `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

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

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_penstock.sink import BatchWriter
        from pyspark_penstock.sink_options import read_sink_options

        return BatchWriter(read_sink_options(self.options, schema), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_penstock.sink import StreamWriter
        from pyspark_penstock.sink_options import read_sink_options

        return StreamWriter(read_sink_options(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.base.errors import ConfigError
        from pyspark_penstock.options import read_stream_options
        from pyspark_penstock.rows import check_schema
        from pyspark_penstock.stream import RefusedStream, StreamReader

        try:
            options = read_stream_options(self.options)
            check_schema(schema, options.common.columns)
        except ConfigError as error:
            return RefusedStream(str(error))
        return StreamReader(options)
