"""A shard of transactional ids whose decisions are carried out at once, and whose markers are written when the test says so."""

from __future__ import annotations

from penstock.base.clock import ManualClock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions.config import TransactionSettings
from penstock.coordinator.transactions.messages import (
    AddPartitions,
    Decision,
    EndTransaction,
    InitProducerId,
    Markers,
    ProducerStamp,
    Transition,
)
from penstock.coordinator.transactions.model import Transaction
from penstock.coordinator.transactions.shard import Shard
from penstock.protocol.transaction_records import TransactionValue

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


class ShardWorld:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.settings = TransactionSettings()
        self.shard = Shard(self.settings, self.clock)
        self.records: list[tuple[str, TransactionValue | None]] = []
        self.markers: list[Markers] = []
        """Not written yet."""
        self.written: list[Markers] = []
        self.failure: PenstockError | None = None
        self._next_id = 100

    def reload(self) -> None:
        """Another coordinator, from the records alone."""
        self.shard = Shard(self.settings, self.clock)
        for key, value in self.records:
            self.shard.replay(key, value)
        self.markers = self.shard.loaded()

    def carry_out(self, transition: Transition) -> None:
        if self.failure is not None:
            self.shard.failed(transition)
            raise self.failure
        self.records.append((transition.transactional_id, transition.value))
        markers = self.shard.committed(transition)
        if markers is not None:
            self.markers.append(markers)

    def write_markers(self) -> None:
        while self.markers:
            markers = self.markers.pop(0)
            self.written.append(markers)
            self.carry_out(self.shard.complete(markers))

    def _run(self, decision: Decision) -> ProducerStamp | None:
        if decision.transition is not None:
            self.carry_out(decision.transition)
        return decision.reply

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def init(
        self, expected: ProducerStamp | None = None, timeout_ms: int = 60_000, transactional_id: str = "x"
    ) -> ProducerStamp | None:
        request = InitProducerId(transactional_id, timeout_ms, expected)
        needed = self.shard.needs_producer_id(transactional_id)
        return self._run(self.shard.init_producer_id(request, self._new_id() if needed else None))

    def add(self, producer: ProducerStamp, *partitions: TopicPartition, client_version: int = 0) -> None:
        self._run(self.shard.add_partitions(AddPartitions("x", producer, partitions or (PLACE,), client_version)))

    def end(self, producer: ProducerStamp, *, commit: bool = True, client_version: int = 0) -> ProducerStamp:
        """Prepares the end and writes the markers."""
        reply = self.prepare(producer, commit=commit, client_version=client_version)
        self.write_markers()
        return reply

    def prepare(self, producer: ProducerStamp, *, commit: bool = True, client_version: int = 0) -> ProducerStamp:
        request = EndTransaction("x", producer, commit, client_version)
        needed = client_version >= 2 and self.shard.needs_producer_id("x")
        reply = self._run(self.shard.end(request, self._new_id() if needed else None))
        assert reply is not None
        return reply

    def started(self, transactional_id: str = "x") -> ProducerStamp:
        producer = self.init(transactional_id=transactional_id)
        assert producer is not None
        return producer

    def run_timeouts(self) -> None:
        for transition in self.shard.timed_out():
            self.carry_out(transition)
        self.write_markers()

    def run_expiry(self) -> None:
        for transition in list(self.shard.expired()):
            self.carry_out(transition)

    @property
    def transaction(self) -> Transaction:
        return self.shard.transactions["x"]
