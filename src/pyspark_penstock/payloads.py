"""Values to columns: each record either has its columns, or a reason why not; none is lost.

`decode` is for anybody's DataFrame of the source's columns, `decoded` for pipelines. Spark's own `from_avro` and
`from_protobuf` need jars; here fastavro and protobuf do the work, in Arrow UDFs (`pip install 'penstock[payloads]'`).

A value with Confluent's prefix begins with a zero byte and the schema's id, four bytes, big-endian.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import PenstockError
from pyspark_penstock import payload_avro, payload_protobuf
from pyspark_penstock.schema_registry import NoSchemaError, PayloadError, Registry, Schema, read_schema

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from pyspark_penstock.pipelines.model import Payload

RECORD_COLUMNS = {name: f"_{name}" for name in ("key", "topic", "partition", "offset", "timestamp")}
"""The record's own columns, beside those of its value."""
BAD_COLUMNS = (*RECORD_COLUMNS, "value", "reason")
"""Of records that could not be decoded: as they came, and why."""
CORRUPT = "_corrupt_record"
PREFIX = struct.Struct(">bi")

_LIBRARIES = {"avro": "fastavro", "protobuf": "google.protobuf"}
_UNDECODABLE: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    OverflowError,
    struct.error,
    NoSchemaError,
    PayloadError,
)
"""What a value can do to a decoder, or the schema that it names. The rest (a registry that gives no answer) fails the task,
which is tried again."""


def decode(
    frame: DataFrame, format: str, *, schema: str = "", registry: str = "", subject: str = "", message: str = ""
) -> tuple[DataFrame, DataFrame]:
    """The rows that could be decoded, and those that could not, with a column `reason`.

    `schema` is DDL for JSON, else a file: .avsc, or what protoc --descriptor_set_out writes. With `registry`, an address or
    a directory, values have Confluent's prefix; the columns are those of `schema`, or of the subject's latest.
    """
    if format == "json":
        if registry:
            raise PayloadError("json takes no registry: its columns are those of schema")
        return _from_json(frame, schema)
    if format not in _LIBRARIES:
        raise PayloadError(f"{format!r} is none of json, {', '.join(_LIBRARIES)}")
    _need(format)
    found = Registry(registry, format) if registry else None
    if schema:
        reader = read_schema(Path(schema), format)
    elif found is None:
        raise PayloadError(f"{format} needs a schema: a file, or a registry")
    else:
        reader = found.latest(subject)
    return _from_binary(frame, _Codec(format, reader, found, message))


def decoded(frame: DataFrame, payload: Payload, topics: str) -> tuple[DataFrame, DataFrame | None]:
    """The same for a pipeline's source; None where nothing is decoded."""
    if payload.format == "raw":
        return frame, None
    subject = payload.subject or f"{topics}-value"
    return decode(
        frame,
        payload.format,
        schema=payload.schema,
        registry=payload.registry,
        subject=subject,
        message=payload.message,
    )


def _need(format: str) -> None:
    """The library, which is an extra."""
    try:
        is_there = importlib.util.find_spec(_LIBRARIES[format]) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise PayloadError(f"{format} needs the package {_LIBRARIES[format]}: pip install 'penstock[payloads]'")


def _from_json(frame: DataFrame, schema: str) -> tuple[DataFrame, DataFrame]:
    from pyspark.sql import functions as F

    columns = _json_columns(schema)
    _refuse_own_names(columns)
    text = F.col("value").cast("string")
    parsed = F.from_json(text, columns.add(CORRUPT, "string"), {"columnNameOfCorruptRecord": CORRUPT})
    frame = frame.withColumn("@parsed", parsed)
    broken = F.col(f"`@parsed`.{CORRUPT}").isNotNull() | F.col("`@parsed`").isNull()
    reason = F.when(F.col("value").isNull(), "the record has no value").otherwise(f"not JSON, or not like {schema}")
    return _split(frame, broken, reason, drop=(CORRUPT,))


def _json_columns(schema: str) -> StructType:
    from pyspark.sql.types import DataType, StructType

    found = DataType.fromDDL(schema) if schema.strip() else None
    if not isinstance(found, StructType):
        raise PayloadError(f"json needs a schema: columns like 'id STRING, amount DOUBLE', not {schema!r}")
    return found


def _refuse_own_names(columns: StructType) -> None:
    """Two columns of one name could not be told apart in SQL, which takes no notice of case."""
    own = {*RECORD_COLUMNS.values(), CORRUPT}
    taken = [name for name in columns.names if name.lower() in own]
    if taken:
        raise PayloadError(f"the value has a column {taken[0]}, a name that is needed for the record itself")


@dataclass(frozen=True, slots=True)
class _Codec:
    """All a worker needs; hashable, so that a worker makes the decoder of a writer's schema once."""

    format: str
    reader: Schema
    registry: Registry | None
    message: str

    def columns(self) -> StructType:
        if self.format == "avro":
            return payload_avro.columns(self.reader)
        return payload_protobuf.columns(self.reader, self.message)

    def decode(self, value: bytes) -> dict[str, Any]:
        if self.registry is None:
            return _decoder(self, self.reader)(value)
        if len(value) < PREFIX.size or value[0] != 0:
            raise ValueError("the value does not begin with a zero byte and a schema's id")
        schema_id = PREFIX.unpack_from(value)[1]
        if schema_id < 0:
            raise ValueError(f"{schema_id} is no schema's id")
        writer = self.registry.by_id(schema_id)
        value = value[PREFIX.size :]
        if self.format == "protobuf":
            indexes, value = payload_protobuf.split_indexes(value)
            name, wanted = payload_protobuf.message_at(writer, indexes), payload_protobuf.full_name(self.reader, self.message)  # fmt: skip
            if name != wanted:
                raise ValueError(f"the value is a {name}, not a {wanted}")
        return _decoder(self, writer)(value)


@lru_cache(maxsize=1000)
def _decoder(codec: _Codec, writer: Schema) -> Callable[[bytes], dict[str, Any]]:
    if codec.format == "avro":
        return payload_avro.decoder(writer, codec.reader)
    return payload_protobuf.decoder(codec.reader, codec.message)


def decode_column(codec: _Codec, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Of each value a struct of what it says and why it does not."""
    import pyarrow as pa

    found: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    undecodable = _UNDECODABLE + _library_errors(codec.format)
    without_schema: dict[bytes, NoSchemaError] = {}  # by prefix: a registry is asked once, not for each record
    for value in values.to_pylist():
        try:
            if value is None:
                raise ValueError("the record has no value")
            if (known := without_schema.get(value[: PREFIX.size])) is not None:
                raise known
            row, reason = codec.decode(value), None
        except undecodable as error:
            if isinstance(error, NoSchemaError):
                without_schema[value[: PREFIX.size]] = error
            row, reason = None, _reason(error)
        found.append(row)
        reasons.append(reason)
    parsed = _fitted(found, reasons, kind.field("parsed").type)
    return pa.StructArray.from_arrays([parsed, pa.array(reasons, pa.string())], fields=list(kind))


def _reason(error: Exception) -> str:
    """A sentence. What the libraries say where a value ends too soon may be nothing at all."""
    if isinstance(error, ValueError | PenstockError):
        return str(error)
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"the value is not as its schema says ({said})"


def _fitted(found: list[dict[str, Any] | None], reasons: list[str | None], kind: pa.DataType) -> pa.Array:
    """As a column. A value that Spark's type cannot hold (a decimal with too many digits …) is that record's fault alone."""
    import pyarrow as pa

    misfits = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError)
    try:
        return pa.array(found, kind)
    except misfits:
        for number, row in enumerate(found):
            try:
                pa.array([row], kind)
            except misfits as error:
                found[number], reasons[number] = None, f"the value does not fit its column: {error}"
        return pa.array(found, kind)


def _library_errors(format: str) -> tuple[type[Exception], ...]:
    if format == "avro":
        from fastavro.read import SchemaResolutionError

        return (SchemaResolutionError,)
    from google.protobuf.message import DecodeError

    return (DecodeError,)


def _from_binary(frame: DataFrame, codec: _Codec) -> tuple[DataFrame, DataFrame]:
    import pyarrow
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    columns = codec.columns()
    _refuse_own_names(columns)
    kind = StructType([StructField("parsed", columns), StructField("reason", StringType())])
    arrow_kind = to_arrow_type(kind, timezone="UTC")

    def run(values: pa.Array) -> pa.Array:
        return decode_column(codec, values, arrow_kind)

    run.__annotations__ = {"values": pyarrow.Array, "return": pyarrow.Array}  # Spark reads them, and texts it cannot
    # Called what it is not so that the optimizer does not run it twice, once for the filter and once for the columns.
    decoder = arrow_udf(run, kind).asNondeterministic()  # type: ignore[call-overload]
    frame = frame.withColumn("@decoded", decoder(F.col("value")))
    frame = frame.withColumn("@parsed", F.col("`@decoded`.parsed"))
    reason = F.col("`@decoded`.reason")
    return _split(frame, reason.isNotNull(), reason)


def _split(
    frame: DataFrame, broken: Column, reason: Column, *, drop: tuple[str, ...] = ()
) -> tuple[DataFrame, DataFrame]:
    """By whether the column `@parsed` holds what the value says."""
    from pyspark.sql import functions as F

    own = [F.col(name).alias(alias) for name, alias in RECORD_COLUMNS.items()]
    good = frame.where(~broken).select("`@parsed`.*", *own).drop(*drop)
    bad = frame.where(broken).withColumn("reason", reason).select(*BAD_COLUMNS)
    return good, bad


def dead_letters(bad: DataFrame) -> DataFrame:
    """For a topic: key and value as they came, where from and why in headers."""
    from pyspark.sql import functions as F

    names = ("topic", "partition", "offset", "timestamp", "reason")
    headers = [
        F.struct(F.lit(f"penstock.{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
        for name in names
    ]
    return bad.select("key", "value", F.array(*headers).alias("headers"))
