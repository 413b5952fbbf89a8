"""Where schemas come from: a registry that speaks Confluent's protocol, or a directory.

    GET  {url}/schemas/ids/{id}                             {"schema": text, "schemaType": …, "references": […]}
    GET  {url}/subjects/{subject}/versions/{n | latest}     the same, with "id"
    {directory}/{id}.avsc, {id}.desc                        a schema each; the highest id is the latest

Protobuf's are asked for with `format=serialized`: compiled, in base64, so that no compiler is needed here. In a directory
they are what `protoc --include_imports --descriptor_set_out` writes. A worker asks once for each schema and keeps it.
"""

from __future__ import annotations

import base64
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
    """The text of an Avro schema, or a Protobuf file with those it imports, compiled, the imported ones first."""

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
            raise NoSchemaError(f"there is no schema {schema_id} in {self.place}")
        return read_schema(path, self.format)

    def _url(self, path: str) -> str:
        query = "?format=serialized" if self.format == "protobuf" else ""
        return f"{self.place.rstrip('/')}/{path}{query}"

    def _schema(self, answer: Any) -> Schema:
        kind = str(answer.get("schemaType", "AVRO")).lower()
        if kind != self.format:
            raise NoSchemaError(f"the schema is {kind}, not {self.format}")
        if self.format == "avro":
            return Schema((str(answer["schema"]).encode(),))
        files: dict[bytes, None] = {}
        for one in answer.get("references") or ():
            subject = urllib.parse.quote(one["subject"], safe="")
            found = self._schema(_get(self._url(f"subjects/{subject}/versions/{one['version']}")))
            files |= dict.fromkeys(found.content)
        return Schema((*files, base64.b64decode(answer["schema"])))


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
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise NoSchemaError(f"{url}: there is no such schema") from None
        raise RegistryUnreachableError(f"{url}: answered with {error.code}") from None
    except (OSError, ValueError) as error:
        raise RegistryUnreachableError(f"{url}: {getattr(error, 'reason', None) or error}") from None
