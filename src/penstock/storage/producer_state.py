"""Producer state (row S10): what a partition remembers of each idempotent or transactional producer.

Invariants:
- a producer keeps its newest epoch and at most its last five batches, oldest first;
- a refusal changes nothing: `check` only looks, `update` is called after the bytes are written (KAFKA-6683);
- an open transaction begins at its first batch; a completed one holds the last stable offset back until the high
  watermark has passed its marker;
- replaying the log's batches gives the same state, except for what has expired.
Who may call: `partition_log`. The bytes on disk: `producer_snapshot`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from penstock.base.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from penstock.records.batch import Batch

BATCHES_KEPT = 5
_SEQUENCE_MAX = 2**31 - 1


class Origin(Enum):
    """Who appends, which decides how much is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class ProducerBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MAX if self.last_sequence >= 0 else -1

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndMarker(NamedTuple):
    """What a control batch says: how a transaction ended."""

    commit: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producer:
    """One producer's state."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_first_offset")

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = -1
        self.batches: deque[ProducerBatch] = deque(maxlen=BATCHES_KEPT)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def state(self) -> tuple[object, ...]:
        """Everything that a snapshot keeps, for comparing."""
        last = self.batches[-1][:3] if self.batches else None
        return (
            self.producer_id,
            self.epoch,
            last,
            self.last_timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )


class Producers:
    """All producers of one partition, and its open transactions."""

    __slots__ = ("_open", "_producers", "_unreplicated")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, in offset order
        self._unreplicated: dict[int, CompletedTransaction] = {}  # first offset -> completed, marker not below the HW

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def values(self) -> list[Producer]:
        return list(self._producers.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open or whose marker is not yet below the high watermark."""
        firsts = [next(iter(found)) for found in (self._open, self._unreplicated) if found]
        return min(firsts) if firsts else None

    @property
    def open_transactions(self) -> dict[int, int]:
        return dict(self._open)

    def check(self, batch: Batch, origin: Origin) -> ProducerBatch | None:
        """Raises if the batch may not be appended; gives the first answer's batch if it is a duplicate. Changes nothing."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch < producer.epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}; the newest seen is {producer.epoch}"
            )
        if origin is not Origin.CLIENT or batch.is_control:
            return None
        if batch.producer_epoch == producer.epoch:
            for known in producer.batches:
                if known.last_sequence == batch.last_sequence and known.base_sequence == batch.base_sequence:
                    return known
        self._check_sequence(producer, batch)
        if producer.transaction_first_offset >= 0 and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"producer {batch.producer_id} has a transaction open and sent a batch that is not part of it"
            )
        return None

    def _check_sequence(self, producer: Producer, batch: Batch) -> None:
        sequence = batch.base_sequence
        if batch.producer_epoch != producer.epoch:
            if sequence != 0 and producer.epoch >= 0:
                raise OutOfOrderSequenceError(
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} with sequence {sequence}, not 0"
                )
            return
        last = producer.last_sequence
        if producer.epoch < 0 or sequence == last + 1 or (sequence == 0 and last == _SEQUENCE_MAX):
            return
        raise OutOfOrderSequenceError(
            f"producer {batch.producer_id} sent sequence {sequence}; its last batch ended at {last}"
        )

    def check_marker(self, batch: Batch, marker: EndMarker) -> None:
        """Raises if a marker comes from an older coordinator."""
        producer = self._producers.get(batch.producer_id)
        if producer is not None and producer.coordinator_epoch > marker.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a marker for producer {batch.producer_id} has coordinator epoch {marker.coordinator_epoch}; "
                f"the newest seen is {producer.coordinator_epoch}"
            )

    def update(self, batch: Batch, marker: EndMarker | None = None) -> CompletedTransaction | None:
        """Takes in a batch that is in the log. A control batch with no marker left (compacted away) changes nothing."""
        if batch.is_control:
            return None if marker is None else self._end_transaction(batch, marker)
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = Producer(batch.producer_id)
        if producer.epoch != batch.producer_epoch:
            producer.batches.clear()
            producer.epoch = batch.producer_epoch
        producer.batches.append(
            ProducerBatch(
                batch.last_sequence, batch.last_offset, batch.last_offset - batch.base_offset, batch.max_timestamp
            )
        )
        producer.last_timestamp = batch.max_timestamp
        if batch.is_transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = batch.base_offset
            self._open[batch.base_offset] = batch.producer_id
        return None

    def _end_transaction(self, batch: Batch, marker: EndMarker) -> CompletedTransaction | None:
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._producers[batch.producer_id] = Producer(batch.producer_id)
        completed = None
        if producer.transaction_first_offset >= 0:  # an empty transaction leaves no trace (KAFKA-10702)
            completed = CompletedTransaction(
                batch.producer_id, producer.transaction_first_offset, batch.base_offset, not marker.commit
            )
        if producer.epoch != batch.producer_epoch:
            producer.batches.clear()
            producer.epoch = batch.producer_epoch
        producer.transaction_first_offset = -1
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = batch.max_timestamp
        return completed

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """What the last stable offset is once `completed` counts as ended: for its transaction index entry."""
        for first_offset in self._open:
            if first_offset != completed.first_offset:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is over; it holds the last stable offset back until the high watermark passes its marker."""
        self._open.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed

    def passed_high_watermark(self, high_watermark: int) -> None:
        if self._unreplicated:
            done = [first for first, txn in self._unreplicated.items() if txn.last_offset < high_watermark]
            for first_offset in done:
                del self._unreplicated[first_offset]

    def restore(self, producers: Iterable[Producer]) -> None:
        """Takes the producers of a snapshot in place of everything known."""
        self.clear()
        for producer in producers:
            self._producers[producer.producer_id] = producer
        open_now = [
            (p.transaction_first_offset, p.producer_id) for p in self.values() if p.transaction_first_offset >= 0
        ]
        self._open = dict(sorted(open_now))

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forgets producers without an open transaction that were silent too long; one pass (KAFKA-16229)."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.transaction_first_offset < 0 and wall_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def forget_below(self, log_start_offset: int) -> None:
        """The log lost its head: transactions that ended there hold nothing back, open ones still do: their other records
        are undecided. Producers stay until they expire."""
        for first_offset in [first for first, txn in self._unreplicated.items() if txn.last_offset < log_start_offset]:
            del self._unreplicated[first_offset]

    def clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()
