"""Calls in kio's schemas, seen from the client: the request is written, the answer read.

The server's twin is `protocol.schemas`. Each version is loaded when it is first used.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.schemas import Shape, load_schemas


class CallCodec(NamedTuple):
    """One version of one API."""

    request: Shape
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    """The body of an answer; MalformedMessageError for everything else."""
    is_flexible: bool


@cache
def call_codec(api_key: int, version: int) -> CallCodec:
    from kio.serial import entity_reader, entity_writer
    from kio.serial.errors import SerialError

    from penstock.protocol.guard import guard_for

    request_schema, response_schema = load_schemas(api_key, version)
    read = entity_reader(response_schema)
    write = entity_writer(request_schema)
    guard = guard_for(response_schema)

    def encode(request: Any) -> bytes:
        buffer = io.BytesIO()
        write(buffer, request)
        return buffer.getvalue()

    def decode(body: bytes) -> Any:
        checked = guard(body, 0)
        try:
            return read(checked, 0)[0]
        except (SerialError, ValueError, LookupError, OverflowError, TypeError) as error:
            raise MalformedMessageError(f"{response_schema.__name__} version {version}: {error}") from error

    return CallCodec(Shape(request_schema), encode, decode, bool(request_schema.__flexible__))
