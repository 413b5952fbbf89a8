"""Reading the fields of a coordinator's records one after the other, in the plain and in the flexible encoding."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from penstock.protocol import primitives
from penstock.protocol.errors import MalformedMessageError

T = TypeVar("T")

INT8 = struct.Struct(">b")


class Cursor:
    """Reads one field after the other; the primitives see to it that nothing is read beyond the end."""

    def __init__(self, data: bytes, position: int, *, flexible: bool) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def _number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack_from(self._data, self._position)
        self._position += kind.size
        return int(value)

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(primitives.INT16)

    def int32(self) -> int:
        return self._number(primitives.INT32)

    def int64(self) -> int:
        return self._number(primitives.INT64)

    def nullable_string(self) -> str | None:
        read = primitives.read_nullable_compact_string if self._flexible else primitives.read_nullable_string
        value, self._position = read(self._data, self._position)
        return value

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedMessageError("a string that may not be null is null")
        return value

    def _length(self) -> int:
        if not self._flexible:
            return self.int32()
        length, self._position = primitives.read_unsigned_varint(self._data, self._position)
        return length - 1

    def blob(self) -> bytes:
        length = self._length()
        end = primitives.read_span(self._data, self._position, length)
        value = self._data[self._position : end]
        self._position = end
        return value

    def list(self, element: Callable[[Cursor], T]) -> list[T] | None:
        count = self._length()
        if count < 0:
            return None
        primitives.read_count(self._data, self._position, count, 1)
        return [element(self) for _ in range(count)]

    def tags(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        found, self._position = primitives.read_tags(self._data, self._position)
        return found

    def end(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise MalformedMessageError(f"{left} bytes are left")


def version_of(data: bytes) -> int:
    """The version that begins every key and value."""
    if len(data) < 2:
        raise MalformedMessageError(f"{len(data)} bytes have no version")
    return int(primitives.INT16.unpack_from(data)[0])
