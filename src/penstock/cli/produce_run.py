"""What `penstock produce` does: lines into batches, a batch a partition at a time."""

from __future__ import annotations

import base64
import json
import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase, UnsupportedOperation
from typing import Any, NamedTuple, TypeVar, cast

from penstock.base.clock import SystemClock
from penstock.base.errors import InvalidRecordError
from penstock.base.ids import TopicPartition
from penstock.cli.cluster import open_cluster
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.partitioner import partition_of
from penstock.client.produce import produce
from penstock.records.batch import Codec
from penstock.records.build import Header, Record, build_batch

OK = 0
_BATCH_RECORDS = 1000
_BATCH_BYTES = 500_000
_READ_BYTES = 1 << 16
_QUIET_SECONDS = 0.1
_FIELDS = {"key", "value", "headers", "partition", "timestamp"}
_CONSUMED_FIELDS = {"kind", "topic", "offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line becomes a record."""

    is_json: bool
    key_separator: str | None
    partition: int | None
    headers: tuple[Header, ...]


class Parsed(NamedTuple):
    record: Record
    partition: int | None


def parse_line(line: bytes, number: int, form: LineFormat, now_ms: int) -> Parsed:
    if form.is_json:
        return _parse_json(line, number, form, now_ms)
    key: bytes | None = None
    value = line
    if form.key_separator is not None:
        separator = form.key_separator.encode()
        if separator not in line:
            raise InvalidRecordError(f"line {number} has no {form.key_separator!r} between key and value")
        key, value = line.split(separator, 1)
    return Parsed((now_ms, key, value, form.headers), form.partition)


def _parse_json(line: bytes, number: int, form: LineFormat, now_ms: int) -> Parsed:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"line {number} is no JSON: {error}") from None
    if isinstance(found, dict) and found.get("kind") == "record":  # as `consume --json` prints it
        found = {name: value for name, value in found.items() if name not in _CONSUMED_FIELDS}
    if not isinstance(found, dict) or not found.keys() <= _FIELDS:
        raise InvalidRecordError(f"line {number}: an object with {', '.join(sorted(_FIELDS))} was expected")
    headers = found.get("headers", [])
    if isinstance(headers, dict):
        headers = [{"key": key, "value": value} for key, value in headers.items()]
    if not isinstance(headers, list) or not all(isinstance(one, dict) and "key" in one for one in headers):
        raise InvalidRecordError(f'line {number}: headers are {{"name": value}} or [{{"key": name, "value": value}}]')
    try:
        made = tuple((_text(one["key"]), _bytes(one.get("value"))) for one in headers)
        timestamp = _integer(found, "timestamp", 64, now_ms)
        partition = _integer(found, "partition", 32, form.partition)
        record = (timestamp, _bytes(found.get("key")), _bytes(found.get("value")), (*form.headers, *made))
        return Parsed(record, partition)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InvalidRecordError(f"line {number}: {error}") from None


T = TypeVar("T", int, int | None)


def _integer(found: dict[str, Any], name: str, bits: int, default: T) -> T | int:
    """A number that the wire has room for; null counts as not given."""
    value = found.get(name)
    if value is None:
        return default
    if type(value) is not int or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(f"{name} is {json.dumps(value)}, and must be an integer of {bits} bits")
    return value


def _text(value: Any) -> str:
    text = str(value)
    text.encode()  # half a character cannot be sent
    return text


def _bytes(value: Any) -> bytes | None:
    """Text as it is, {"base64": …} decoded, anything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return json.dumps(value).encode()


class Writer:
    """Collects records by partition and sends what is full."""

    def __init__(self, cluster: Cluster, topic: str, codec: Codec) -> None:
        self._cluster = cluster
        self._topic = topic
        self._codec = codec
        self._partitions = len(cluster.topics((topic,))[topic].partitions)
        self._waiting: dict[int, list[Record]] = {}
        self._bytes: dict[int, int] = {}
        self._keyless = 0
        self.written = 0

    def add(self, parsed: Parsed, number: int) -> None:
        partition = self._choose(parsed)
        if not 0 <= partition < self._partitions:
            raise InvalidRecordError(
                f"line {number}: topic {self._topic} has partitions 0 to {self._partitions - 1}, not {partition}"
            )
        _, key, value, headers = parsed.record
        size_bytes = len(key or b"") + len(value or b"") + sum(len(name) + len(one or b"") for name, one in headers)
        waiting = self._waiting.get(partition)
        if waiting is not None and (
            len(waiting) >= _BATCH_RECORDS or self._bytes[partition] + size_bytes > _BATCH_BYTES
        ):
            self._send(partition)  # alone the next one may be as large as the topic allows
        self._waiting.setdefault(partition, []).append(parsed.record)
        self._bytes[partition] = self._bytes.get(partition, 0) + size_bytes

    def _choose(self, parsed: Parsed) -> int:
        if parsed.partition is not None:
            return parsed.partition
        key = parsed.record[1]
        return self._keyless % self._partitions if key is None else partition_of(key, self._partitions)

    def _send(self, partition: int) -> None:
        records = self._waiting.pop(partition)
        self._bytes.pop(partition)
        self._keyless += 1
        produce(self._cluster, TopicPartition(self._topic, partition), build_batch(records, codec=self._codec))
        self.written += len(records)

    def flush(self) -> None:
        for partition in list(self._waiting):
            self._send(partition)


def run(servers: str, topic: str, form: LineFormat, codec: str) -> int:
    clock = SystemClock()
    with open_cluster(servers) as cluster:
        writer = Writer(cluster, topic, Codec[codec.upper()])
        try:
            for number, line in enumerate(_lines(cast(BufferedIOBase, sys.stdin.buffer), writer), start=1):
                writer.add(parse_line(line, number, form, clock.wall_ms()), number)
            writer.flush()
        except InvalidRecordError as error:
            writer.flush()  # what stood before the bad line was good
            raise InvalidRecordError(f"{error} ({writer.written} records before it were written)") from None
        except ClientError as error:
            raise ClientError(f"{error} ({writer.written} records had been written)") from None
    print(f"{writer.written} record{'' if writer.written == 1 else 's'} written to {topic}", file=sys.stderr)
    return OK


def _lines(source: BufferedIOBase, writer: Writer) -> Iterator[bytes]:
    """Lines as they come; while none comes, what was read before is sent, so that it arrives also where lines are rare."""
    rest = b""
    while True:
        if _is_quiet(source):
            writer.flush()
        data = source.read1(_READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


def _is_quiet(source: BufferedIOBase) -> bool:
    """Whether nothing can be read for a while. `read1` leaves nothing in the buffer that the system would not know of."""
    try:
        return not select.select([source], [], [], _QUIET_SECONDS)[0]
    except UnsupportedOperation:  # no file
        return False
