"""Where schemas come from: a registry that speaks Confluent's protocol, or a directory.

    GET  {url}/schemas/ids/{id}                             {"schema": text, "schemaType": …, "references": […]}
    GET  {url}/subjects/{subject}/versions/{n | latest}     the same, with "id"
    {directory}/{id}.avsc, {id}.desc                        a schema each; the highest id is the latest

Protobuf's are asked for with `format=serialized`: compiled, in base64, so that no compiler is needed here. In a directory
they are what `protoc --include_imports --descriptor_set_out` writes. A worker asks once for each schema and keeps it.

Only a registry that says that it has no such schema (error_code 404xx) makes a record a bad one. Any other answer is the
registry's fault, or that of its address, and fails the task: else every record would be a bad one.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.base.errors import PenstockError

SECONDS = 30
SUFFIXES = {"avro": ".avsc", "protobuf": ".desc"}


class PayloadError(PenstockError):
    """A schema that cannot be used; whoever wrote the query has to do something."""


class NoSchemaError(PenstockError):
    """There is no schema of this id: the record that names it cannot be read."""


class RegistryUnreachableError(PenstockError):
    """The registry gives no answer; asking again may help."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of an Avro schema, or a compiled Protobuf file; those it refers to stand before it."""

    content: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Registry:
    """Travels to the workers by pickle: it holds a place and no connection."""

    place: str
    format: str

    @property
    def is_remote(self) -> bool:
        return "://" in self.place

    def by_id(self, schema_id: int) -> Schema:
        """NoSchemaError if there is none."""
        return _by_id(self, schema_id)

    def latest(self, subject: str) -> Schema:
        if self.is_remote:
            return self._schema(_get(self._url(f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")))
        suffix = SUFFIXES[self.format]
        ids = [int(path.stem) for path in Path(self.place).glob(f"*{suffix}") if path.stem.isdecimal()]
        if not ids:
            raise PayloadError(f"{self.place} holds no schema: they are files like 1{suffix}")
        return self.by_id(max(ids))

    def find(self, schema_id: int) -> Schema:
        if self.is_remote:
            return self._schema(_get(self._url(f"schemas/ids/{schema_id}")))
        path = Path(self.place, f"{schema_id}{SUFFIXES[self.format]}")
        if not path.exists():
            if not Path(self.place).is_dir():
                raise RegistryUnreachableError(f"{self.place}: there is no such directory on this machine")
            raise NoSchemaError(f"there is no schema {schema_id} in {self.place}")
        return read_schema(path, self.format)

    def _url(self, path: str) -> str:
        query = "?format=serialized" if self.format == "protobuf" else ""
        return f"{self.place.rstrip('/')}/{path}{query}"

    def _schema(self, answer: Any) -> Schema:
        try:
            kind = str(answer.get("schemaType") or "AVRO").lower()
            if kind != self.format:
                raise NoSchemaError(f"the schema is {kind}, not {self.format}")
            links = [(one["subject"], one["version"]) for one in answer.get("references") or ()]
            text = str(answer["schema"])
            content = text.encode() if self.format == "avro" else base64.b64decode(text, validate=True)
        except (AttributeError, KeyError, TypeError, binascii.Error):
            raise RegistryUnreachableError(f"{_shown(self.place)}: this is no schema as we asked for it: {answer!r:.200}") from None  # fmt: skip
        files: dict[bytes, None] = {}
        for subject, version in links:
            found = self._schema(_get(self._url(f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")))
            files |= dict.fromkeys(found.content)
        return Schema((*files, content))


@lru_cache(maxsize=1000)
def _by_id(registry: Registry, schema_id: int) -> Schema:
    return registry.find(schema_id)


def read_schema(path: Path, format: str) -> Schema:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PayloadError(f"{path}: {error.strerror}") from None
    if format == "avro":
        return Schema((data,))
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = tuple(file.SerializeToString() for file in FileDescriptorSet.FromString(data).file)
    except DecodeError:
        files = ()
    if not files:
        raise PayloadError(f"{path} is not what protoc --include_imports --descriptor_set_out writes")
    return Schema(files)


def _get(url: str) -> Any:
    shown = _shown(url)
    try:
        with urllib.request.urlopen(_request(url), timeout=SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if _is_no_schema(error):
            raise NoSchemaError(f"{shown}: there is no such schema") from None
        raise RegistryUnreachableError(f"{shown}: answered with {error.code}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise RegistryUnreachableError(f"{shown}: {getattr(error, 'reason', None) or error}") from None


def _request(url: str) -> urllib.request.Request:
    """A name and a password in the address are for the registry, as Confluent's own clients have it."""
    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    parts = urllib.parse.urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    if at:
        url = urllib.parse.urlunsplit(parts._replace(netloc=host))
        headers["Authorization"] = f"Basic {base64.b64encode(urllib.parse.unquote(credentials).encode()).decode()}"
    return urllib.request.Request(url, headers=headers)


def _shown(url: str) -> str:
    """Without a password: it would stand in logs and dead letters."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _is_no_schema(error: urllib.error.HTTPError) -> bool:
    """Whether a registry says so; a 404 of somebody else only means that the address is wrong."""
    with error:
        try:
            return error.code == 404 and 40400 <= int(json.load(error)["error_code"]) < 40500
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            return False
