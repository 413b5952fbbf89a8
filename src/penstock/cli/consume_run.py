"""What `penstock consume` does: ranges of offsets, partition by partition, as lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.base.ids import TopicPartition
from penstock.cli.cluster import open_cluster
from penstock.cli.output import JsonOutput
from penstock.cli.positions import resolve
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.read import read_range
from penstock.storage.inspect.items import HeaderItem
from penstock.storage.inspect.records import RecordView, records_of
from penstock.storage.inspect.walk import Found

OK = 0
_POLL_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    start: str
    until: str | None
    partitions: tuple[int, ...]
    most: int | None
    is_following: bool
    has_keys: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    kind: ClassVar[str] = "record"
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderItem, ...]


def run(servers: str, topic: str, wanted: Wanted, *, as_json: bool, read_committed: bool) -> int:
    level = "read_committed" if read_committed else "read_uncommitted"
    shown = 0
    with open_cluster(servers, isolation_level=level) as cluster:
        for partition, record in _records(cluster, topic, wanted, read_committed):
            _show(topic, partition, record, as_json=as_json, has_keys=wanted.has_keys)
            shown += 1
            if wanted.most is not None and shown >= wanted.most:
                break
    return OK


def _show(topic: str, partition: int, record: RecordView, *, as_json: bool, has_keys: bool) -> None:
    if as_json:
        JsonOutput().emit(
            ConsumedRecord(
                topic=topic,
                partition=partition,
                offset=record.offset,
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        )
        return
    # As the bytes are: what goes in with `produce` comes out alike.
    key = (record.key or b"") + b"\t" if has_keys else b""
    sys.stdout.buffer.write(key + (record.value or b"") + b"\n")


def _records(cluster: Cluster, topic: str, wanted: Wanted, read_committed: bool) -> Iterator[tuple[int, RecordView]]:
    known = cluster.topics((topic,))[topic].partitions
    unknown = [number for number in wanted.partitions if number not in known]
    if unknown:
        raise ClientError(f"topic {topic} has no partition {unknown[0]}")
    places = [TopicPartition(topic, number) for number in wanted.partitions or known]
    at = dict(resolve(cluster, places, wanted.start, "--from", read_committed=read_committed))
    while True:
        limits = resolve(cluster, places, wanted.until or "latest", "--until", read_committed=read_committed)
        for place in places:
            if at[place] < limits[place]:
                yield from _range(cluster, place, at[place], limits[place])
                at[place] = limits[place]
        sys.stdout.flush()
        if not wanted.is_following:
            return
        cluster.time.sleep(_POLL_MS / 1000)


def _range(cluster: Cluster, place: TopicPartition, start: int, end: int) -> Iterator[tuple[int, RecordView]]:
    for stretch in read_range(cluster, place, start, end):
        for batch in stretch.batches:
            data = bytes(stretch.data[batch.position : batch.end_position])
            for record in records_of(Found(batch, data, 0)):
                if start <= record.offset < end:
                    yield place.partition, record
