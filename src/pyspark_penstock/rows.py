"""The rows that a topic gives: Spark's own Kafka connector's columns, as Spark and as Arrow name them.

A record batch of 10,000 to 50,000 rows crosses to Spark at full speed; one of 1,000 costs a third of that, and a very
large one holds memory on both sides. So small ones are joined and large ones are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

ROWS_MIN = 10_000
ROWS_MAX = 50_000
BYTES_ENOUGH = 4 * 1024 * 1024
"""Rows this large together are not held back to be joined with others."""

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def spark_schema(columns: Sequence[str]) -> StructType:
    """Made by hand, as no JVM is near to read DDL where a source is asked for its schema."""
    from pyspark.sql import types

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    by_name: dict[str, types.DataType] = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }
    return types.StructType([types.StructField(name, by_name[name]) for name in columns])


def check_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Rows have the columns they have; a schema given by hand may only repeat them."""
    ours = spark_schema(columns)
    if schema != ours:
        raise ConfigError(
            f"the format penstock has a schema of its own, {ours.simpleString()}: it takes no other "
            "(the option columns leaves columns out)"
        )


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """What Spark expects, to the letter: it compares nullability too."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([(name, types[name]) for name in columns])


class RowMaker:
    """Completes the columns of one partition's records."""

    def __init__(self, columns: Sequence[str], topic: str, partition: int) -> None:
        import pyarrow as pa

        self._schema = arrow_schema(columns)
        self._constants = {"topic": pa.scalar(topic, pa.string()), "partition": pa.scalar(partition, pa.int32())}

    def make(self, records: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = []
        for field in self._schema:
            constant = self._constants.get(field.name)
            if constant is not None:
                arrays.append(pa.repeat(constant, records.num_rows))
            elif field.name == "headers":
                arrays.append(_headers(records.column("headers"), field.type))
            else:
                arrays.append(records.column(field.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same buffers under a type whose parts may all be null."""
    import pyarrow as pa

    if column.null_count == len(column):
        return pa.nulls(len(column), wanted)
    assert column.offset == 0
    pairs = column.values
    struct_type = wanted.value_type
    renamed = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(struct_type))
    return pa.Array.from_buffers(wanted, len(column), column.buffers()[:2], column.null_count, children=[renamed])


def rechunk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a good size."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if batch.num_rows > ROWS_MAX:
            if held:
                yield _joined(held)
                held, rows, size = [], 0, 0
            parts = -(-batch.num_rows // ROWS_MAX)
            step = -(-batch.num_rows // parts)
            yield from (batch.slice(at, step) for at in range(0, batch.num_rows, step))
            continue
        if rows + batch.num_rows > ROWS_MAX:
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROWS_MIN or size >= BYTES_ENOUGH:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
