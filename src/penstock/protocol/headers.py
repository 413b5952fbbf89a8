"""Request and response headers.

A request header is key, version, correlation id and client id (versions 1 and 2; 2 adds tagged fields, but keeps the
client id in the old encoding). A response header is the correlation id (version 0), or that and tagged fields
(version 1). ApiVersions answers with version 0 always, because its client cannot know better yet (KIP-511).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.primitives import INT32, Buffer, skip_tags

API_VERSIONS_KEY = 18

_FIXED = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Where the body begins if the header has no tagged fields; otherwise where those begin."""


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header as far as it stands alike in every version."""
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    except struct.error:
        raise MalformedMessageError(f"a frame of {len(frame)} bytes is too short for a request header") from None
    if length < 0:
        if length != -1:
            raise MalformedMessageError(f"a client id of length {length}")
        return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, None, 10))
    end = 10 + length
    if end > len(frame):
        raise MalformedMessageError("the client id is longer than the frame")
    try:
        client_id = frame[10:end].decode()
    except UnicodeDecodeError:
        raise MalformedMessageError("the client id is not UTF-8") from None
    # The constructor of a named tuple is interpreted; this is not.
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, end))


def skip_header_tags(frame: Buffer, position: int) -> int:
    """Past the tagged fields of a version 2 header."""
    try:
        return skip_tags(frame, position)
    except IndexError:
        raise MalformedMessageError("the frame ends within its header") from None


def response_header(correlation_id: int, api_key: int, *, flexible: bool) -> bytes:
    if flexible and api_key != API_VERSIONS_KEY:
        return INT32.pack(correlation_id) + b"\x00"
    return INT32.pack(correlation_id)
