"""The demo's events: orders and clicks of users, some late, some broken, some in transactions that are taken back.

Rounds follow the pipeline: a round is written when the one before the last has been read. So no event is overtaken by more
than two rounds of others, far less than the pipeline waits for, and only those are late that are meant to be. At the end
each partition gets an event far in the future, which closes every window before it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.base.ids import TopicPartition
from penstock.client import admin
from penstock.client import producer as transactions
from penstock.client.cluster import Cluster
from penstock.client.produce import produce
from penstock.records.batch import Codec
from penstock.records.build import Record, build_batch

ORDERS, CLICKS, USERS = "orders", "clicks", "users"
TOTALS, BAD = "totals", "bad-events"
PARTITIONS = 2
ROUNDS = 8
ROUND_SECONDS = 20
LATE_FROM_ROUND = 4
USERS_COUNT = 100
COUNTRIES = ("BR", "IN", "PT", "SE")
START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(seconds=ROUNDS * ROUND_SECONDS)
_SEED = 20260101


@dataclass(slots=True)
class Made:
    """What the generator has written, for the proof."""

    events: int = 0
    """In transactions that were committed, the closing ones among them."""
    late: int = 0
    bad: int = 0
    closing: int = 0
    aborted: int = 0


def make_topics(cluster: Cluster) -> None:
    for topic in (ORDERS, CLICKS, TOTALS, BAD):
        admin.create_topic(cluster, topic, partitions=PARTITIONS)
    admin.create_topic(cluster, USERS, partitions=1, configs={"cleanup.policy": "compact"})
    _write_users(cluster)


def _write_users(cluster: Cluster) -> None:
    """Everybody has moved once: only the latest record of a user counts."""
    records: list[Record] = []
    for move in (1, 0):
        for number in range(USERS_COUNT):
            value = json.dumps({"user": f"u{number}", "country": COUNTRIES[(number + move) % len(COUNTRIES)]}).encode()
            records.append((_ms(START), b"u%d" % number, value, ()))
    produce(cluster, TopicPartition(USERS, 0), build_batch(records))


class Generator:
    """Writes to both topics. `is_read` says whether so many events have been read; `should_stop` ends it early."""

    def __init__(
        self, cluster: Cluster, records: int, is_read: Callable[[int], bool], should_stop: Callable[[], bool]
    ) -> None:
        self.made = Made()
        self._cluster = cluster
        self._per_round = records // ROUNDS
        self._is_read = is_read
        self._should_stop = should_stop
        self._random = random.Random(_SEED)
        self._number = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._producer = transactions.begin(cluster, "penstock-demo", 60_000)

    def run(self) -> None:
        """Until everything is written."""
        read_before = 0
        for number in range(ROUNDS):
            while not self._is_read(read_before):
                if self._should_stop():
                    return
                time.sleep(0.05)
            read_before = self.made.events
            self._round(number)
        self._transaction(
            {
                topic: [self._event(topic, END + timedelta(hours=1)) for _ in range(PARTITIONS)]
                for topic in (ORDERS, CLICKS)
            }
        )
        self.made.closing += 2 * PARTITIONS

    def _round(self, number: int) -> None:
        share = self._per_round // 2
        events: dict[str, list[bytes]] = {topic: [] for topic in (ORDERS, CLICKS)}
        for topic, found in events.items():
            for index in range(share):
                found.append(self._one(topic, number, index))
        if number % 4 == 2:
            again = {topic: found[: share // 10] for topic, found in events.items()}
            self._transaction(again, is_committed=False)
            self.made.aborted += sum(map(len, again.values()))
        self._transaction(events)

    def _one(self, topic: str, number: int, index: int) -> bytes:
        if index % 100 == 7:
            self.made.bad += 1
            return b'{"id": %d, "user": "u' % self._random.randrange(USERS_COUNT)
        if index % 100 == 42 and number >= LATE_FROM_ROUND:
            self.made.late += 1
            return self._event(topic, START - timedelta(hours=1, seconds=index % 600))
        seconds = number * ROUND_SECONDS + self._random.random() * ROUND_SECONDS
        return self._event(topic, START + timedelta(seconds=seconds))

    def _event(self, topic: str, at: datetime) -> bytes:
        self._number += 1
        user = f"u{self._random.randrange(USERS_COUNT)}"
        content: dict[str, object] = {"id": self._number, "user": user, "at": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"}
        if topic == ORDERS:
            content["amount"] = self._random.randrange(100, 10_000)
        else:
            content["page"] = f"/{self._random.randrange(50)}"
        return json.dumps(content).encode()

    def _transaction(self, events: dict[str, list[bytes]], *, is_committed: bool = True) -> None:
        parts = {
            TopicPartition(topic, number): values[number::PARTITIONS]
            for topic, values in events.items()
            for number in range(PARTITIONS)
        }
        transactions.add_partitions(self._cluster, self._producer, list(parts))
        now_ms = time.time_ns() // 1_000_000
        for partition, values in parts.items():
            sequence = self._sequences.get(partition, 0)
            batch = build_batch(
                [(now_ms, None, value, ()) for value in values],
                codec=Codec.LZ4,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            produce(self._cluster, partition, batch, transactional_id=self._producer.transactional_id)
            self._sequences[partition] = sequence + len(values)
        if is_committed:
            transactions.commit(self._cluster, self._producer)
            self.made.events += sum(map(len, events.values()))
        else:
            transactions.abort(self._cluster, self._producer)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
