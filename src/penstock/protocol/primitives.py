"""The smallest pieces of the wire, each bounded by the bytes that are really there.

Readers take `(buffer, position)` and return `(value, next position)`. A length or count from the wire is compared with
the bytes that remain before anything is made of it, so a small frame can never ask for much memory.
"""

from __future__ import annotations

import struct

from penstock.protocol.errors import MalformedMessageError

Buffer = bytes | bytearray

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

VARINT_BYTES_MAX = 5


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A 32-bit unsigned varint of at most five bytes."""
    value = buffer[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * VARINT_BYTES_MAX:
            raise MalformedMessageError("a varint is longer than five bytes")
    if value > 0xFFFFFFFF:
        raise MalformedMessageError("a varint does not fit 32 bits")
    return value, position


def unsigned_varint(value: int) -> bytes:
    """The shortest encoding of a number below 2^32."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_span(buffer: Buffer, position: int, length: int) -> int:
    """The end of `length` bytes from `position`, if that many are there."""
    end = position + length
    if length < 0 or end > len(buffer):
        raise MalformedMessageError(f"a length of {length} is claimed where {len(buffer) - position} bytes remain")
    return end


def read_count(buffer: Buffer, position: int, count: int, element_bytes_min: int) -> int:
    """A count of elements, if so many could be in the bytes that remain. A null array (-1) is refused."""
    if count < 0 or count * element_bytes_min > len(buffer) - position:
        raise MalformedMessageError(f"{count} elements are claimed where {len(buffer) - position} bytes remain")
    return count


def read_string(buffer: Buffer, position: int) -> tuple[str, int]:
    value, position = read_nullable_string(buffer, position)
    if value is None:
        raise MalformedMessageError("a string that may not be null is null")
    return value, position


def read_nullable_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    (length,) = INT16.unpack_from(buffer, position)
    position += 2
    if length == -1:
        return None, position
    end = read_span(buffer, position, length)
    return buffer[position:end].decode(), end


def read_compact_string(buffer: Buffer, position: int) -> tuple[str, int]:
    value, position = read_nullable_compact_string(buffer, position)
    if value is None:
        raise MalformedMessageError("a string that may not be null is null")
    return value, position


def read_nullable_compact_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    length, position = read_unsigned_varint(buffer, position)
    if length == 0:
        return None, position
    end = read_span(buffer, position, length - 1)
    return buffer[position:end].decode(), end


def skip_tags(buffer: Buffer, position: int) -> int:
    """Past a section of tagged fields of which none is wanted."""
    count = buffer[position]
    if count == 0:
        return position + 1
    count, position = read_unsigned_varint(buffer, position)
    read_count(buffer, position, count, 2)
    for _ in range(count):
        _tag, position = read_unsigned_varint(buffer, position)
        length, position = read_unsigned_varint(buffer, position)
        position = read_span(buffer, position, length)
    return position


def read_tags(buffer: Buffer, position: int) -> tuple[dict[int, bytes], int]:
    """The tagged fields of a section, by tag, undecoded."""
    count, position = read_unsigned_varint(buffer, position)
    read_count(buffer, position, count, 2)
    found: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = read_unsigned_varint(buffer, position)
        length, position = read_unsigned_varint(buffer, position)
        end = read_span(buffer, position, length)
        if tag in found:
            raise MalformedMessageError(f"tag {tag} stands twice in one section")
        found[tag] = bytes(buffer[position:end])
        position = end
    return found, position


def string(value: str) -> bytes:
    encoded = value.encode()
    return INT16.pack(len(encoded)) + encoded


def nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else string(value)


def compact_string(value: str) -> bytes:
    encoded = value.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def nullable_compact_string(value: str | None) -> bytes:
    return b"\x00" if value is None else compact_string(value)


def tag_section(fields: dict[int, bytes]) -> bytes:
    """A section of tagged fields in rising order of tags."""
    parts = [unsigned_varint(len(fields))]
    for tag in sorted(fields):
        parts += (unsigned_varint(tag), unsigned_varint(len(fields[tag])), fields[tag])
    return b"".join(parts)
