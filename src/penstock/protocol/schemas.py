"""kio's schemas, each version loaded when it is first used.

All 604 schema modules take more than a second to import; a broker that only just started has seen three. Handlers are
written once for all versions of their API: `Shape.make` leaves out the fields that a version does not have.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from penstock.protocol.errors import MalformedMessageError

ZOOKEEPER_ERA = (4, 5, 6, 7, 56)
"""API keys of `zookeeper_era`."""


class Shape:
    """One version of a message, or of a structure within it, as something to make values of.

    `shape.brokers` is the shape of the elements of the field `brokers`.
    """

    def __init__(self, schema: type) -> None:
        self.schema = schema
        self.names = frozenset(field.name for field in dataclasses.fields(schema))

    def make(self, **values: object) -> Any:
        """An entity; values for fields that this version does not have are left out."""
        names = self.names
        if not names.issuperset(values):
            values = {name: value for name, value in values.items() if name in names}
        return self.schema(**values)

    def has(self, name: str) -> bool:
        return name in self.names

    def __getattr__(self, name: str) -> Shape:
        shape = _nested(self.schema, name)
        setattr(self, name, shape)
        return shape


class _Absent(Shape):
    """The shape of a structure that this version does not have: makes nothing."""

    def __init__(self) -> None:
        self.names = frozenset()

    def make(self, **values: object) -> Any:
        return None

    def __getattr__(self, name: str) -> Shape:
        return self


def _nested(schema: type, name: str) -> Shape:
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field

    for field in dataclasses.fields(schema):
        if field.name == name:
            kind = classify_field(field)
            if isinstance(kind, EntityField | EntityTupleField):
                return Shape(kind.type_)
            raise AttributeError(f"{schema.__name__}.{name} is no structure")
    return _Absent()


class Codec(NamedTuple):
    """One version of one API."""

    decode: Callable[[bytes, int], Any]
    """`(frame, body position) -> request`; MalformedMessageError for everything else."""
    encode: Callable[[Any], bytes]
    response: Shape


def load_schemas(api_key: int, version: int) -> tuple[Any, Any]:
    """The request and the response of a version: kio's, or our own where kio has none."""
    if api_key in ZOOKEEPER_ERA:
        from penstock.protocol import zookeeper_era

        return zookeeper_era.SCHEMAS[api_key]
    from kio.index import load_request_schema, load_response_schema

    return load_request_schema(api_key, version), load_response_schema(api_key, version)


@cache
def codec(api_key: int, version: int) -> Codec:
    """Loads a version. The caller has checked that the registry offers it."""
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError

    from penstock.protocol.guard import guard_for

    request_schema, response_schema = load_schemas(api_key, version)
    read = entity_reader(request_schema)
    write = entity_writer(response_schema)
    guard = guard_for(request_schema)

    def decode(frame: bytes, position: int) -> Any:
        body = guard(frame, position)
        try:
            return read(body, 0)[0]
        except (SerialError, ValueError, LookupError, OverflowError, TypeError) as error:
            raise MalformedMessageError(f"{request_schema.__name__} version {version}: {error}") from error

    def encode(answer: Any) -> bytes:
        buffer = io.BytesIO()
        write(buffer, answer)
        return buffer.getvalue()

    return Codec(decode, encode, Shape(response_schema))
