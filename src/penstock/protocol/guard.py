"""A walk over a request's bytes before kio's reader sees them.

kio's native reader reserves memory for the count an array claims (2^31 elements end the process: the allocator aborts)
and refuses tagged fields it does not know, which the protocol says must be skipped. So every body is first walked by
its schema: counts are compared with the bytes that remain, null where an array must be is refused, unknown tags are
cut out. A body without unknown tags is
passed on as it is.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.primitives import INT16, INT32, read_span, read_unsigned_varint, unsigned_varint

ELEMENTS_MAX = 1_000_000
"""Array elements in one request, all its arrays together. A request that honestly has more is split by its client."""

_FIXED_BYTES = {
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


class _Kind(IntEnum):
    FIXED = 0
    STRING = 1
    COMPACT = 2
    BYTES = 3
    ARRAY = 4
    COMPACT_ARRAY = 5
    NULLABLE_ENTITY = 6
    TAGS = 7


class _Step(NamedTuple):
    kind: _Kind
    size: int
    inner: tuple[_Step, ...] = ()
    tags: dict[int, tuple[_Step, ...]] = {}
    nullable: bool = False


class _Edit(NamedTuple):
    start: int
    end: int
    replacement: bytes


class _Walk:
    __slots__ = ("buffer", "edits", "elements")

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.elements = 0
        self.edits: list[_Edit] = []

    def steps(self, program: tuple[_Step, ...], position: int) -> int:
        for step in program:
            if step.kind is _Kind.FIXED:
                position += step.size
                if position > len(self.buffer):
                    raise MalformedMessageError("the message ends within a field")
            else:
                position = _WALKERS[step.kind](self, step, position)
        return position

    def string(self, _step: _Step, position: int) -> int:
        (length,) = INT16.unpack_from(self.buffer, position)
        return position + 2 if length == -1 else read_span(self.buffer, position + 2, length)

    def compact(self, _step: _Step, position: int) -> int:
        length, position = read_unsigned_varint(self.buffer, position)
        return position if length == 0 else read_span(self.buffer, position, length - 1)

    def bytes_field(self, _step: _Step, position: int) -> int:
        (length,) = INT32.unpack_from(self.buffer, position)
        return position + 4 if length == -1 else read_span(self.buffer, position + 4, length)

    def array(self, step: _Step, position: int) -> int:
        (count,) = INT32.unpack_from(self.buffer, position)
        return self._elements(step, position + 4, count)

    def compact_array(self, step: _Step, position: int) -> int:
        count, position = read_unsigned_varint(self.buffer, position)
        return self._elements(step, position, count - 1)

    def _elements(self, step: _Step, position: int, count: int) -> int:
        if count == -1:
            if not step.nullable:
                raise MalformedMessageError("an array that may not be null is null")
            return position
        self.elements += count
        if count < 0 or count > len(self.buffer) - position or self.elements > ELEMENTS_MAX:
            raise MalformedMessageError(
                f"{count} elements are claimed where {len(self.buffer) - position} bytes remain"
            )
        if step.size:
            return read_span(self.buffer, position, step.size * count)
        for _ in range(count):
            position = self.steps(step.inner, position)
        return position

    def nullable_entity(self, step: _Step, position: int) -> int:
        marker = self.buffer[position]
        return position + 1 if marker == 0xFF else self.steps(step.inner, position + 1)

    def tags(self, step: _Step, position: int) -> int:
        start = position
        count, position = read_unsigned_varint(self.buffer, position)
        count_end = position
        if count > len(self.buffer) - position:
            raise MalformedMessageError(f"{count} tagged fields are claimed in {len(self.buffer) - position} bytes")
        unknown: list[_Edit] = []
        for _ in range(count):
            field_start = position
            tag, position = read_unsigned_varint(self.buffer, position)
            length, position = read_unsigned_varint(self.buffer, position)
            end = read_span(self.buffer, position, length)
            program = step.tags.get(tag)
            if program is None:
                unknown.append(_Edit(field_start, end, b""))
            elif self.steps(program, position) != end:
                raise MalformedMessageError(f"tagged field {tag} is not as long as it says")
            position = end
        if unknown:
            self.edits.append(_Edit(start, count_end, unsigned_varint(count - len(unknown))))
            self.edits.extend(unknown)
        return position


_WALKERS: dict[_Kind, Callable[[_Walk, _Step, int], int]] = {
    _Kind.STRING: _Walk.string,
    _Kind.COMPACT: _Walk.compact,
    _Kind.BYTES: _Walk.bytes_field,
    _Kind.ARRAY: _Walk.array,
    _Kind.COMPACT_ARRAY: _Walk.compact_array,
    _Kind.NULLABLE_ENTITY: _Walk.nullable_entity,
    _Kind.TAGS: _Walk.tags,
}


def _primitive(kafka_type: str, *, flexible: bool) -> _Step:
    size = _FIXED_BYTES.get(kafka_type)
    if size is not None:
        return _Step(_Kind.FIXED, size)
    if flexible:
        return _Step(_Kind.COMPACT, 0)
    return _Step(_Kind.STRING if kafka_type == "string" else _Kind.BYTES, 0)


def _array(inner: tuple[_Step, ...], *, flexible: bool, nullable: bool) -> _Step:
    fixed = inner[0].size if len(inner) == 1 and inner[0].kind is _Kind.FIXED else 0
    return _Step(_Kind.COMPACT_ARRAY if flexible else _Kind.ARRAY, fixed, inner, {}, nullable)


def _field(field: dataclasses.Field[Any], *, flexible: bool, tagged: bool) -> tuple[_Step, ...]:
    kind = classify_field(field)
    if isinstance(kind, PrimitiveField):
        return (_primitive(get_schema_field_type(field), flexible=flexible),)
    nullable = is_optional(field)
    if isinstance(kind, PrimitiveTupleField):
        element = (_primitive(get_schema_field_type(field), flexible=flexible),)
        return (_array(element, flexible=flexible, nullable=nullable),)
    if isinstance(kind, EntityTupleField):
        return (_array(_program(kind.type_), flexible=flexible, nullable=nullable),)
    assert isinstance(kind, EntityField)
    inner = _program(kind.type_)
    return (_Step(_Kind.NULLABLE_ENTITY, 0, inner),) if nullable and not tagged else inner


def _program(schema: type) -> tuple[_Step, ...]:
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    steps: list[_Step] = []
    tags: dict[int, tuple[_Step, ...]] = {}
    for field in dataclasses.fields(schema):
        tag = get_field_tag(field)
        field_steps = _field(field, flexible=flexible, tagged=tag is not None)
        if tag is not None:
            tags[tag] = field_steps
            continue
        for step in field_steps:
            if step.kind is _Kind.FIXED and steps and steps[-1].kind is _Kind.FIXED:
                steps[-1] = _Step(_Kind.FIXED, steps[-1].size + step.size)
            else:
                steps.append(step)
    if flexible:
        steps.append(_Step(_Kind.TAGS, 0, (), tags))
    return tuple(steps)


def guard_for(schema: type) -> Callable[[bytes, int], bytes]:
    """A function `(frame, body position) -> body` that checks a body of this schema; the body holds no unknown tags."""
    program = _program(schema)

    def guard(frame: bytes, position: int) -> bytes:
        walk = _Walk(frame)
        try:
            walk.steps(program, position)
        except (IndexError, struct.error) as error:
            raise MalformedMessageError(f"{schema.__name__} ends too early: {error}") from error
        if not walk.edits:
            return frame[position:]
        parts: list[bytes] = []
        for edit in sorted(walk.edits):
            parts += (frame[position : edit.start], edit.replacement)
            position = edit.end
        parts.append(frame[position:])
        return b"".join(parts)

    return guard
