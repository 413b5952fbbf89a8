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

_PLAIN = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "bytes": "binary",
    "string": "string", "enum": "string", "fixed": "binary",
}  # fmt: skip
_LOGICAL = {
    "date": "date", "timestamp-millis": "timestamp", "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz", "local-timestamp-micros": "timestamp_ntz", "uuid": "string",
}  # fmt: skip


def columns(schema: Schema) -> StructType:
    """PayloadError for what has no place among Spark's types."""
    from pyspark.sql.types import StructType

    found = _type(_parsed(schema), "the schema", ())
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

    try:
        return parse_schema(json.loads(schema.content[0]), expand=True)
    except (ValueError, KeyError, SchemaParseException, UnknownType) as error:
        raise PayloadError(f"no Avro schema: {type(error).__name__}: {error}") from None


def _type(schema: Any, place: str, above: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import (  # fmt: skip
        ArrayType,
        DecimalType,
        MapType,
        StringType,
        StructField,
        StructType,
        _parse_datatype_json_value,
    )

    if isinstance(schema, list):
        others = [one for one in schema if _name(one) != "null"]
        if len(others) != 1:
            raise PayloadError(f"{place} is a union of several types, which one column cannot be")
        return _type(others[0], place, above)
    if isinstance(schema, str):
        if schema not in _PLAIN:
            raise PayloadError(f"{place} is {schema}, which would have no end or is unknown")
        schema = {"type": schema}
    logical, kind = schema.get("logicalType"), schema["type"]
    if logical == "decimal":
        return DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical in _LOGICAL:
        return _parse_datatype_json_value(_LOGICAL[logical])
    if kind in ("record", "error"):
        fields = [
            StructField(one["name"], _type(one["type"], f"{place}, {one['name']}", above)) for one in schema["fields"]
        ]
        return StructType(fields)
    if kind == "array":
        return ArrayType(_type(schema["items"], place, above))
    if kind == "map":
        return MapType(StringType(), _type(schema["values"], place, above))
    if isinstance(kind, dict | list):
        return _type(kind, place, above)
    return _parse_datatype_json_value({"int": "integer", "bigint": "long"}.get(_PLAIN[kind], _PLAIN[kind]))


def _name(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("type"))


def _fixer(schema: Any) -> Callable[[Any], Any]:
    """What Arrow takes otherwise than fastavro gives: maps as pairs, UUIDs as text."""
    if isinstance(schema, list):
        others = [one for one in schema if _name(one) != "null"]
        inner = _fixer(others[0])
        return (lambda value: None if value is None else inner(value)) if inner is not _same else _same
    if isinstance(schema, str):
        return _same
    kind = schema["type"]
    if schema.get("logicalType") == "uuid":
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
