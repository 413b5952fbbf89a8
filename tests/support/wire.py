"""Requests as plain dictionaries, sent over a socket as raw bytes, and answers as plain dictionaries: for any broker."""

import dataclasses
import datetime
import io
import socket
import struct
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Any, Self

from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

CORRELATION_ID = 7
ANSWER_SECONDS = 40


def build(schema: type, values: Mapping[str, Any]) -> Any:
    """An entity of a schema. Fields that `values` does not have are zero, those the schema does not have are left out."""
    hints = typing.get_type_hints(schema)
    made = {}
    for field in dataclasses.fields(schema):
        kind = classify_field(field)
        if field.name not in values:
            made[field.name] = _zero(hints[field.name], kind)
            continue
        value = values[field.name]
        if isinstance(kind, EntityTupleField) and value is not None:
            value = tuple(build(kind.type_, one) for one in value)
        elif isinstance(kind, EntityField) and value is not None:
            value = build(kind.type_, value)
        elif isinstance(value, list):
            value = tuple(value)
        elif type(value) is int and _is_duration(hints[field.name]):
            value = datetime.timedelta(milliseconds=value)
        made[field.name] = value
    return schema(**made)


def _options(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _is_duration(hint: Any) -> bool:
    return any("Timedelta" in getattr(option, "__name__", "") for option in _options(hint))


def _zero(hint: Any, kind: object) -> Any:
    options = _options(hint)
    if type(None) in options:
        return None
    if isinstance(kind, EntityField):
        return build(kind.type_, {})
    (option,) = options
    if typing.get_origin(option) is tuple:
        return ()
    if _is_duration(option):
        return datetime.timedelta()
    base = next(one for one in (bool, int, str, bytes, float, uuid.UUID) if issubclass(option, one))
    return uuid.UUID(int=0) if base is uuid.UUID else base()


def plain(entity: Any) -> Any:
    """An entity as dictionaries, lists and simple values."""
    if dataclasses.is_dataclass(entity) and not isinstance(entity, type):
        return {field.name: plain(getattr(entity, field.name)) for field in dataclasses.fields(entity)}
    if isinstance(entity, tuple):
        return [plain(one) for one in entity]
    if isinstance(entity, ErrorCode):
        return entity.name
    if isinstance(entity, datetime.timedelta):
        return entity // datetime.timedelta(milliseconds=1)
    return entity


def has_schema(key: int, version: int) -> bool:
    """Whether kio knows this version: Produce is offered from 0, and spoken from 3."""
    try:
        load_request_schema(key, version)
    except UnknownEntity:
        return False
    return True


class NoAnswer(Exception):
    """A broker kept a request to itself."""


class Wire:
    """One connection. `ask` sends a request and returns its answer; None means that the broker closed the connection."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.address = bootstrap_servers
        self._address = (host, int(port))
        self._socket = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
        self._versions: dict[int, range] = {}

    def versions(self, key: int) -> range:
        """What the broker says it serves of an API."""
        if not self._versions:
            answer = self.ask(18, 3, {"client_software_name": "wire", "client_software_version": "1"})
            self._versions = {
                one["api_key"]: range(one["min_version"], one["max_version"] + 1) for one in answer["api_keys"]
            }
        return self._versions.get(key, range(0))

    def ask(self, key: int, version: int, values: Mapping[str, Any]) -> Any:
        request = load_request_schema(key, version)
        body = io.BytesIO()
        entity_writer(request)(body, build(request, values))
        frame = self.exchange(header(key, version, request) + body.getvalue())
        if frame is None:
            return None
        response = load_response_schema(key, version)
        position = 5 if response.__flexible__ and key != 18 else 4
        read: Any = entity_reader(response)
        entity, size = read(frame[position:], 0)
        assert size == len(frame) - position, f"{key} version {version}: {len(frame) - position - size} bytes too many"
        return plain(entity)

    def exchange(self, frame: bytes) -> bytes | None:
        """One frame out, one in; a connection that the broker closed is opened again for the next."""
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._receive(4))
            return self._receive(size)
        except TimeoutError:
            raise NoAnswer(f"no answer within {ANSWER_SECONDS} s to {frame[:40]!r}") from None
        except (ConnectionError, EOFError):
            self._socket.close()
            self._socket = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
            return None

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise EOFError
            received += part
        return bytes(received)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def header(key: int, version: int, request: Any) -> bytes:
    head = struct.pack(">hhih", key, version, CORRELATION_ID, 4) + b"test"
    return head + b"\x00" if request.__flexible__ else head
