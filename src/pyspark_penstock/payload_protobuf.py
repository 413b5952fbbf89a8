"""Protobuf values, by compiled descriptions: field numbers carry over from the writer's message to the reader's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pyspark_penstock.schema_registry import PayloadError, Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from pyspark.sql.types import DataType, StructType

Decode = Callable[[bytes], dict[str, Any]]

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"))  # fmt: skip


def columns(schema: Schema, message: str) -> StructType:
    return _struct(_message(schema, message), ())


def full_name(schema: Schema, message: str) -> str:
    return _message(schema, message).full_name


def message_at(schema: Schema, indexes: tuple[int, ...]) -> str:
    """The full name of the message that Confluent's indexes lead to, in the schema's own file."""
    try:
        found = list(_file(schema).message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            found = list(found.nested_types)[index]
    except IndexError:
        raise ValueError(f"the schema has no message {indexes}") from None
    return found.full_name


def decoder(schema: Schema, message: str) -> Decode:
    from google.protobuf.message_factory import GetMessageClass

    descriptor = _message(schema, message)
    parse, convert = GetMessageClass(descriptor).FromString, _converter(descriptor)
    return lambda data: convert(parse(data))


def split_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Confluent's message indexes, zigzag numbers behind their count, and the rest; a lone 0 means the first."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= 100:
        raise ValueError(f"{count} is no number of message indexes")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        found.append(index)
    if min(found) < 0:
        raise ValueError("a message index is negative")
    return tuple(found), data[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("the message indexes are cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


@lru_cache(maxsize=1000)
def _file(schema: Schema) -> FileDescriptor:
    """The schema's own file, the last; each schema has a pool of its own, for versions share names."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for content in _known_files().values():
        pool.AddSerializedFile(content)
    name = ""
    try:
        for content in schema.content:
            name = FileDescriptorProto.FromString(content).name or "default"
            if name not in _known_files():
                pool.AddSerializedFile(content)
        return pool.FindFileByName(name)
    except Exception as error:
        raise PayloadError(f"the Protobuf schema {name} cannot be used: {error}") from None


@cache
def _known_files() -> dict[str, bytes]:
    """Those that every schema may import and none brings along, by name."""
    from google.protobuf import (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    known = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    return {one.DESCRIPTOR.name: one.DESCRIPTOR.serialized_pb for one in known}


def _message(schema: Schema, message: str) -> Descriptor:
    file = _file(schema)
    if not message:
        messages = list(file.message_types_by_name.values())
        if not messages:
            raise PayloadError(f"{file.name} describes no message")
        return messages[0]
    try:
        return file.pool.FindMessageTypeByName(message)
    except KeyError:
        known = ", ".join(one.full_name for one in file.message_types_by_name.values())
        raise PayloadError(f"{file.name} has no message {message}; it has {known}") from None


def _struct(descriptor: Descriptor, above: tuple[str, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    if descriptor.full_name in above:
        raise PayloadError(f"{descriptor.full_name} contains itself, which a column cannot")
    inner = (*above, descriptor.full_name)
    return StructType([StructField(field.name, _type(field, inner)) for field in descriptor.fields])


def _type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if (entry := _map_entry(field)) is not None:
        parts = entry.fields_by_name
        return MapType(_single(parts["key"], above), _single(parts["value"], above))
    single = _single(field, above)
    return ArrayType(single) if field.is_repeated else single


def _single(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    from pyspark.sql import types as T

    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return T.TimestampType()
        if name in _WRAPPERS:
            return _single(field.message_type.fields_by_name["value"], above)
        return _struct(field.message_type, above)
    if field.enum_type is not None:
        return T.StringType()
    if field.type == field.TYPE_BYTES:
        return T.BinaryType()
    kinds: dict[int, DataType] = {
        field.CPPTYPE_INT32: T.IntegerType(),
        field.CPPTYPE_INT64: T.LongType(),
        field.CPPTYPE_UINT32: T.LongType(),
        field.CPPTYPE_UINT64: T.DecimalType(20, 0),
        field.CPPTYPE_DOUBLE: T.DoubleType(),
        field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_BOOL: T.BooleanType(),
        field.CPPTYPE_STRING: T.StringType(),
    }
    return kinds[field.cpp_type]


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    """The pair that a map is a list of; None for other fields."""
    kind = field.message_type
    return kind if kind is not None and kind.GetOptions().map_entry else None


def _converter(descriptor: Descriptor) -> Callable[[Any], dict[str, Any]]:
    """A message to what Arrow takes; made once for a type, so that a record costs only its fields."""
    parts = [(field.name, field.has_presence, _value(field)) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: None if may_be_absent and not message.HasField(name) else value(getattr(message, name))
            for name, may_be_absent, value in parts
        }

    return convert


def _value(field: FieldDescriptor) -> Callable[[Any], Any]:
    if (entry := _map_entry(field)) is not None:
        value = _one(entry.fields_by_name["value"])
        return lambda found: [(key, value(one)) for key, one in found.items()]
    one = _one(field)
    return (lambda found: [one(item) for item in found]) if field.is_repeated else one


def _one(field: FieldDescriptor) -> Callable[[Any], Any]:
    from datetime import UTC, datetime, timedelta
    from decimal import Decimal

    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            return lambda found: epoch + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
        if name in _WRAPPERS:
            inner = _one(field.message_type.fields_by_name["value"])
            return lambda found: inner(found.value)
        return _converter(field.message_type)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    return Decimal if field.cpp_type == field.CPPTYPE_UINT64 else lambda found: found
