"""Avro values: fastavro reads each with the schema it was written with, into the columns of the reader's."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark_penstock.schema_registry import PayloadError, Schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Decode = Callable[[bytes], dict[str, Any]]

_BASIC = ("boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed")
_TIMES = ("time-millis", "time-micros")


def columns(schema: Schema) -> StructType:
    """PayloadError for what has no place among Spark's types."""
    from pyspark.sql.types import StructType

    found = _type(_parsed(schema), "the schema")
    if not isinstance(found, StructType):
        raise PayloadError("the schema is no record: a row needs fields")
    return found


def decoder(writer: Schema, reader: Schema) -> Decode:
    """ValueError and the like for bytes that are no such value."""
    from fastavro import schemaless_reader

    written, wanted = _parsed(writer), _parsed(reader)
    fix = _fixer(wanted)

    def decode(data: bytes) -> dict[str, Any]:
        stream = io.BytesIO(data)
        value = schemaless_reader(stream, written, wanted)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over behind the value")
        return fix(value)  # type: ignore[no-any-return]

    return decode


@lru_cache(maxsize=1000)
def _parsed(schema: Schema) -> Any:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    try:
        *others, own = (json.loads(content) for content in schema.content)
        for one in others:
            parse_schema(one, named)
        return parse_schema(own, named, expand=True)
    except (ValueError, KeyError, SchemaParseException, UnknownType) as error:
        raise PayloadError(f"no Avro schema: {type(error).__name__}: {error}") from None


def _type(schema: Any, place: str) -> DataType:
    from pyspark.sql import types as T

    if isinstance(schema, list):
        others = [one for one in schema if _name(one) != "null"]
        if len(others) != 1:
            raise PayloadError(f"{place} is a union of several types, which one column cannot be")
        return _type(others[0], place)
    if isinstance(schema, str):
        return _basic(schema, None, place)
    kind = schema["type"]
    if schema.get("logicalType") == "decimal":
        return T.DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if kind in ("record", "error"):
        fields = [(one["name"], _type(one["type"], f"{place}, {one['name']}")) for one in schema["fields"]]
        return T.StructType([T.StructField(name, found) for name, found in fields])
    if kind == "array":
        return T.ArrayType(_type(schema["items"], place))
    if kind == "map":
        return T.MapType(T.StringType(), _type(schema["values"], place))
    if isinstance(kind, dict | list):
        return _type(kind, place)
    return _basic(kind, schema.get("logicalType"), place)


def _basic(kind: str, logical: str | None, place: str) -> DataType:
    from pyspark.sql import types as T

    if kind not in _BASIC:
        raise PayloadError(f"{place} is {kind}, which would have no end or is unknown")
    by_logical = {
        "date": T.DateType(),
        "timestamp-millis": T.TimestampType(),
        "timestamp-micros": T.TimestampType(),
        "local-timestamp-millis": T.TimestampNTZType(),
        "local-timestamp-micros": T.TimestampNTZType(),
        **dict.fromkeys(("uuid", *_TIMES), T.StringType()),
    }
    if logical in by_logical:
        return by_logical[logical]
    basic = (
        T.BooleanType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(), T.BinaryType(), T.StringType(),
        T.StringType(), T.BinaryType(),
    )  # fmt: skip
    return dict(zip(_BASIC, basic, strict=True))[kind]


def _name(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("type"))


def _fixer(schema: Any) -> Callable[[Any], Any]:
    """What Arrow takes otherwise than fastavro gives: maps as pairs, UUIDs and times of day as text."""
    if isinstance(schema, list):
        others = [one for one in schema if _name(one) != "null"]
        inner = _fixer(others[0])
        return (lambda value: None if value is None else inner(value)) if inner is not _same else _same
    if isinstance(schema, str):
        return _same
    kind = schema["type"]
    if schema.get("logicalType") in ("uuid", *_TIMES):
        return str
    if kind in ("record", "error"):
        fixers = {one["name"]: _fixer(one["type"]) for one in schema["fields"]}
        fixers = {name: fix for name, fix in fixers.items() if fix is not _same}
        return (
            (lambda value: {**value, **{name: fix(value[name]) for name, fix in fixers.items()}}) if fixers else _same
        )
    if kind == "array":
        each = _fixer(schema["items"])
        return _same if each is _same else lambda value: [each(one) for one in value]
    if kind == "map":
        fix = _fixer(schema["values"])
        return lambda value: [(name, fix(one)) for name, one in value.items()]
    return _fixer(kind) if isinstance(kind, dict | list) else _same


def _same(value: Any) -> Any:
    return value
