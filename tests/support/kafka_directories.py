"""Log directories written by a real Kafka broker, of every kind there is, with what its own consumer reads in them.

`make_directory` stops its broker cleanly; `make_killed_directory` kills it with -9 in full load. Both leave
`data_dir/reads.json` (see `kafka_reads`), which `KafkaDirectory.reads` holds. A test that changes a file takes a copy.

| topic | what is in it |
|---|---|
| `codec-none` `-gzip` `-snappy` `-lz4` `-zstd` | two partitions, compressed by librdkafka; nulls, empties, headers |
| `recoded-gzip` `-snappy` `-lz4` `-zstd` | sent uncompressed, compressed by the broker's Java |
| `append-time` | timestamps from the broker |
| `trimmed` | several segments, DeleteRecords in the middle of one |
| `small-segments` | some forty segments |
| `transactions` | two producers at once, committed and aborted, aborted across segments, one left open |
| `compacted` | tombstones and overwritten keys, cleaned |
| `compacted-transactions` | committed and aborted transactions, cleaned; tombstones and markers past their time |
"""

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import kafka_reads
from tests.support.kafka_jvm import KafkaBroker, copy_data_dir
from tests.support.kafka_reads import ReadPartition, client_config
from tests.support.kafka_recovery import kafka_reads_all
from tests.support.processes import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SECONDS = 60

Headers = list[tuple[str, str | bytes | None]]
Sample = tuple[bytes | None, bytes | None, Headers]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaDirectory:
    """What a broker left behind. `acknowledged` counts by `topic-partition` what the producers got an answer for."""

    version: str
    data_dir: Path
    log_dir: Path
    reads: dict[str, ReadPartition]
    acknowledged: dict[str, int]

    def copy(self, target: Path) -> Path:
        """A copy of the whole data directory, to be opened by `KafkaBroker(version, target)`."""
        return copy_data_dir(self.data_dir, target)

    def copy_logs(self, target: Path) -> Path:
        """A copy of the log directory alone, to be opened here."""
        return copy_data_dir(self.log_dir, target)


def samples(count: int, *, seed: int) -> Iterator[Sample]:
    """Keys, values and headers with every edge that a record has."""
    chance = random.Random(seed)
    for number in range(count):
        key = chance.choice([None, b"", b"k%d" % (number % 17), chance.randbytes(9)])
        value = chance.choice([None, b"", b"v%d" % number, chance.randbytes(40), b"abc" * chance.randrange(200)])
        headers: Headers = [
            (chance.choice(["", "h", "kopfzeile-ä"]), chance.choice([None, b"", b"x" * 20]))
            for _ in range(chance.choice([0, 0, 1, 3]))
        ]
        yield key, value, headers


def make_directory(version: str, data_dir: Path) -> KafkaDirectory:
    """Runs a broker through everything in the table above and stops it cleanly."""
    with KafkaBroker(version, data_dir, log_cleaner_backoff_ms=50, log_retention_ms=-1) as broker:
        server = broker.bootstrap_servers
        _create_topics(server)
        for codec in CODECS:
            _produce_samples(server, f"codec-{codec}", codec)
        for codec in CODECS[1:]:
            _produce_samples(server, f"recoded-{codec}", "none")
        _produce_samples(server, "append-time", "none")
        _produce_by_time(server, "small-segments", rolls=40)
        _produce_by_time(server, "trimmed", rolls=8)
        _delete_records(server, "trimmed", before=33)
        _compact(broker)
        _transact(server, "transactions")
        _commit_group_offsets(server)
        reads = kafka_reads.read_all(server)
    kafka_reads.save(reads, data_dir / "reads.json")
    acknowledged = {name: read.end_offset for name, read in reads.items()}
    return KafkaDirectory(
        version=version, data_dir=data_dir, log_dir=broker.log_dir, reads=reads, acknowledged=acknowledged
    )


def make_killed_directory(version: str, data_dir: Path, *, load_bytes: int = 8_000_000) -> KafkaDirectory:
    """Kills the broker under two producers in full flight, one of them transactional.

    The reads are those of a copy that the same Kafka has recovered.
    """
    small: dict[str, Any] = {
        "log_segment_bytes": 1 << 20,
        "log_index_interval_bytes": 1024,
        "log_index_size_max_bytes": 1 << 20,
    }
    broker = KafkaBroker(version, data_dir, **small).start()
    try:
        _create(broker.bootstrap_servers, "load", partitions=3)
        _create(broker.bootstrap_servers, "transactional-load", partitions=2)
        loads = [
            _Load(broker.bootstrap_servers, "load", partitions=3, transactional=False),
            _Load(broker.bootstrap_servers, "transactional-load", partitions=2, transactional=True),
        ]
        try:
            wait_until(
                lambda: (
                    min(load.acknowledged_bytes for load in loads) > 200_000
                    and sum(load.acknowledged_bytes for load in loads) > load_bytes
                ),
                seconds=_SECONDS,
                what="a broker in full load",
            )
            broker.kill9()
        finally:
            for load in loads:
                load.stop()
    finally:
        broker.kill9()
    reader_dir = data_dir.with_name(data_dir.name + "-reader")
    reads = kafka_reads_all(version, broker.log_dir, reader_dir)
    shutil.rmtree(reader_dir)
    kafka_reads.save(reads, data_dir / "reads.json")
    acknowledged = {name: end for load in loads for name, end in load.acknowledged.items()}
    return KafkaDirectory(
        version=version, data_dir=data_dir, log_dir=broker.log_dir, reads=reads, acknowledged=acknowledged
    )


class _Load:
    """A thread that produces until it is told to stop, and counts what was acknowledged."""

    def __init__(self, server: str, topic: str, *, partitions: int, transactional: bool) -> None:
        self.acknowledged: dict[str, int] = {}
        self.acknowledged_bytes = 0
        self._config = {**client_config(server), "enable.idempotence": True, "linger.ms": 1, "batch.size": 16_384}
        if transactional:
            self._config |= {"transactional.id": topic, "transaction.timeout.ms": 600_000}
        self._topic, self._partitions, self._transactional = topic, partitions, transactional
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(self._config)
        if self._transactional:
            producer.init_transactions(_SECONDS)
        chance = random.Random(self._topic)
        value = chance.randbytes(900)
        number = 0
        while not self._stopping.is_set():
            if self._transactional:
                producer.begin_transaction()
            for _ in range(200):
                number += 1
                self._send(producer, number % self._partitions, b"%d" % number, value[: number % 900])
            if not self._transactional:
                producer.poll(0)
                continue
            self._end_transaction(producer.abort_transaction if number % 1000 == 0 else producer.commit_transaction)
        producer.purge()
        producer.poll(0)

    def _end_transaction(self, end: Callable[[float], None]) -> None:
        while not self._stopping.is_set():
            try:
                end(1)
            except KafkaException as error:
                if not error.args[0].retriable():
                    return  # the broker is gone
            else:
                return

    def _send(self, producer: Producer, partition: int, key: bytes, value: bytes) -> None:
        while not self._stopping.is_set():
            try:
                producer.produce(self._topic, value, key, partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.05)
            else:
                return

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            name = f"{message.topic()}-{message.partition()}"
            self.acknowledged[name] = max(self.acknowledged.get(name, 0), message.offset() + 1)
            self.acknowledged_bytes += len(message)


def _create_topics(server: str) -> None:
    for codec in CODECS:
        _create(server, f"codec-{codec}", partitions=2)
    for codec in CODECS[1:]:
        _create(server, f"recoded-{codec}", config={"compression.type": codec})
    _create(server, "append-time", config={"message.timestamp.type": "LogAppendTime"})
    # Kafka 4 refuses segments below 1 MB, so small ones are rolled by the records' own time.
    by_time = {"segment.ms": "1000", "index.interval.bytes": "200"}
    _create(server, "small-segments", config=by_time)
    _create(server, "trimmed", config=by_time)
    _create(server, "transactions", config=by_time)
    cleaned = {**by_time, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
    _create(server, "compacted", config=cleaned)
    _create(server, "compacted-transactions", config={**cleaned, "delete.retention.ms": "0"})


def _create(server: str, topic: str, *, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    admin = AdminClient(client_config(server))
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})]).values():
        future.result(_SECONDS)


def _producer(server: str, **config: str | int) -> Producer:
    """A producer whose batches end where `flush` is called or where they are full, not when a clock says so."""
    names = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({**client_config(server), "linger.ms": 60_000, **names})


def _produce_samples(server: str, topic: str, codec: str) -> None:
    producer = _producer(server, compression_type=codec, enable_idempotence="true", batch_num_messages=50)
    many = 2 if topic.startswith("codec-") else 1
    for number, (key, value, headers) in enumerate(samples(400, seed=len(topic))):
        producer.produce(topic, value, key, number % many, headers=headers)
        if number % 100 == 99:
            producer.flush(_SECONDS)
    producer.flush(_SECONDS)


def _produce_by_time(server: str, topic: str, *, rolls: int) -> None:
    """Batches whose timestamps stand further apart than `segment.ms`: each begins a segment."""
    producer = _producer(server)
    begin_ms = _now_ms()
    for roll in range(rolls):
        for number in range(10):
            producer.produce(topic, b"%d/%d" % (roll, number), b"k%d" % number, 0, timestamp=begin_ms + roll * 2000)
        producer.flush(_SECONDS)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _delete_records(server: str, topic: str, *, before: int) -> None:
    admin = AdminClient(client_config(server))
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(_SECONDS)


def _compact(broker: KafkaBroker) -> None:
    """Two rounds: only a second pass removes the tombstones and markers that the first has given a time to live."""
    plain = _producer(broker.bootstrap_servers, compression_type="lz4")
    transactional = _producer(broker.bootstrap_servers, transactional_id="in-turns", transaction_timeout_ms=600_000)
    transactional.init_transactions(_SECONDS)
    begin_ms = _now_ms()
    for first_turn in (0, 6):
        for turn in range(first_turn, first_turn + 6):
            # Markers carry the broker's time. A segment that began with one would be rolled by no record before it, so
            # the records' times lie ahead.
            at_ms = begin_ms + 5000 + turn * 2000
            _send_keys(plain, "compacted", turn, at_ms)
            transactional.begin_transaction()
            _send_keys(transactional, "compacted-transactions", turn, at_ms)
            (transactional.abort_transaction if turn % 3 == 1 else transactional.commit_transaction)(_SECONDS)
        _wait_for_cleaner(broker, "compacted-0")
        _wait_for_cleaner(broker, "compacted-transactions-0")


def _send_keys(producer: Producer, topic: str, turn: int, at_ms: int) -> None:
    for number in range(30):
        value = None if (turn + number) % 11 == 0 else b"%d " % turn * 20
        key = b"key-%d" % (turn * 7 + number)
        producer.produce(topic, value, key, 0, headers=[("turn", b"%d" % turn)], timestamp=at_ms + number)
    producer.flush(_SECONDS)


def _wait_for_cleaner(broker: KafkaBroker, name: str) -> None:
    # The active segment is never cleaned: what lies before it must be clean.
    active = max(int(path.stem) for path in (broker.log_dir / name).glob("*.log"))
    wait_until(
        lambda: any(each.partition == name and each.end_offset >= active for each in broker.cleanings()),
        seconds=_SECONDS,
        what=f"the cleaner has been through {name}",
    )


def _transact(server: str, topic: str) -> None:
    """Three producers whose transactions overlap; the last one stays open."""
    producers = []
    for name in ("first", "second", "open"):
        producer = _producer(server, transactional_id=name, transaction_timeout_ms=600_000)
        producer.init_transactions(_SECONDS)
        producers.append(producer)
    first, second, left_open = producers
    begin_ms = _now_ms() + 5000  # ahead of the markers, as in _compact

    def send(producer: Producer, text: bytes, at: int) -> None:
        for number in range(10):
            producer.produce(topic, b"%s %d" % (text, number), b"k%d" % number, 0, timestamp=begin_ms + at)
        producer.flush(_SECONDS)

    for turn in range(6):
        first.begin_transaction()
        second.begin_transaction()
        send(first, b"first", turn * 2500)
        send(second, b"second", turn * 2500)
        send(first, b"first again", turn * 2500 + 1500)
        (first.abort_transaction if turn % 2 else first.commit_transaction)(_SECONDS)
        (second.abort_transaction if turn % 3 else second.commit_transaction)(_SECONDS)
    left_open.begin_transaction()
    send(left_open, b"open", 20_000)
    first.begin_transaction()
    send(first, b"after the open one", 20_000)
    first.commit_transaction(_SECONDS)


def _commit_group_offsets(server: str) -> None:
    consumer = Consumer({**client_config(server), "group.id": "readers", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("codec-none", 0, 100, metadata="half way")], asynchronous=False)
    consumer.close()
