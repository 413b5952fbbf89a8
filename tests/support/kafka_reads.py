"""What a Kafka consumer reads from a running broker, record for record, and its form on disk."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_SILENT = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class ReadFailed(Exception):
    """The consumer met an error, or reached no end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """`timestamp_type` is 1 for the producer's clock and 2 for the broker's."""

    offset: int
    timestamp_type: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPartition:
    """`position` is, by isolation level, where a reader stands that has read everything: high watermark or LSO."""

    start_offset: int
    end_offset: int
    position: dict[str, int]
    records: dict[str, list[ReadRecord]]


def client_config(bootstrap_servers: str) -> dict[str, Any]:
    return {**_SILENT, "bootstrap.servers": bootstrap_servers}


def partitions(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Every partition of every topic, internal ones included."""
    admin = AdminClient(client_config(bootstrap_servers))
    topics = admin.list_topics(timeout=30).topics
    return sorted((name, number) for name, topic in topics.items() for number in topic.partitions)


def read_all(bootstrap_servers: str) -> dict[str, ReadPartition]:
    """Everything a broker's consumers can see, by `topic-partition`, except in Kafka's internal topics."""
    wanted = [(topic, number) for topic, number in partitions(bootstrap_servers) if not topic.startswith("__")]
    reads = {level: _read(bootstrap_servers, wanted, level) for level in ISOLATION_LEVELS}
    found = {}
    for topic, number in wanted:
        name = f"{topic}-{number}"
        parts = {level: reads[level][name] for level in ISOLATION_LEVELS}
        start_offset, end_offset, _, _ = parts["read_uncommitted"]
        found[name] = ReadPartition(
            start_offset=start_offset,
            end_offset=end_offset,
            position={level: part[2] for level, part in parts.items()},
            records={level: part[3] for level, part in parts.items()},
        )
    return found


def _read(
    bootstrap_servers: str, wanted: list[tuple[str, int]], isolation_level: str
) -> dict[str, tuple[int, int, int, list[ReadRecord]]]:
    consumer = Consumer(
        {
            **client_config(bootstrap_servers),
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation_level,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        found = {}
        starts = []
        for topic, number in wanted:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            found[f"{topic}-{number}"] = (low, high, low, list[ReadRecord]())
            starts.append(TopicPartition(topic, number, low))
        consumer.assign(starts)
        unfinished = set(found)
        while unfinished:
            messages = consumer.consume(10_000, timeout=0.2) or consumer.consume(1, timeout=30)
            if not messages:
                raise ReadFailed(f"no end reached in {sorted(unfinished)}")
            for message in messages:
                name = f"{message.topic()}-{message.partition()}"
                error = message.error()
                if error is None:
                    found[name][3].append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    low, high, _, records = found[name]
                    position = message.offset()
                    assert position is not None
                    found[name] = (low, high, position, records)
                    unfinished.discard(name)
                else:
                    raise ReadFailed(f"{name}: {error}")
        return found
    finally:
        consumer.close()


def _record(message: Any) -> ReadRecord:
    timestamp_type, timestamp = message.timestamp()
    return ReadRecord(
        offset=message.offset(),
        timestamp_type=timestamp_type,
        timestamp=timestamp,
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def save(reads: dict[str, ReadPartition], path: Path) -> None:
    """Writes what was read as JSON; bytes are base64."""
    path.write_text(
        json.dumps(
            {
                name: {
                    "start_offset": read.start_offset,
                    "end_offset": read.end_offset,
                    "position": read.position,
                    "records": {
                        level: [
                            [
                                *(r.offset, r.timestamp_type, r.timestamp, _text(r.key), _text(r.value)),
                                [[key, _text(value)] for key, value in r.headers],
                            ]
                            for r in records
                        ]
                        for level, records in read.records.items()
                    },
                }
                for name, read in reads.items()
            }
        )
    )


def load(path: Path) -> dict[str, ReadPartition]:
    """What `save` wrote."""
    return {
        name: ReadPartition(
            start_offset=read["start_offset"],
            end_offset=read["end_offset"],
            position=read["position"],
            records={
                level: [
                    ReadRecord(
                        offset=offset,
                        timestamp_type=timestamp_type,
                        timestamp=timestamp,
                        key=_bytes(key),
                        value=_bytes(value),
                        headers=tuple((name, _bytes(value)) for name, value in headers),
                    )
                    for offset, timestamp_type, timestamp, key, value, headers in records
                ]
                for level, records in read["records"].items()
            },
        )
        for name, read in json.loads(path.read_text()).items()
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
