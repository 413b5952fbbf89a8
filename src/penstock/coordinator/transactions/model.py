"""A transactional id as it stands in memory."""

from __future__ import annotations

from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions.messages import ProducerStamp, Transition
from penstock.protocol.transaction_records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionState, TransactionValue

EPOCH_MAX = 2**15 - 1
NO_EPOCH = -1
EPOCH_BUMPS_FROM = 2
"""The transactions protocol in which every end raises the epoch (KIP-890, part 2)."""
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()

PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETED = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
IDLE = (TransactionState.EMPTY, *COMPLETED)


class Transaction:
    """Invariants: `pending` is set while a transition's record is on its way, and then no other begins; an id that is
    idle has no partitions; a producer never gets the highest epoch, so that it can always be fenced."""

    __slots__ = (
        "client_version",
        "epoch",
        "last_epoch",
        "last_update_ms",
        "next_producer_id",
        "partitions",
        "pending",
        "previous_producer_id",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.previous_producer_id = NO_PRODUCER_ID
        self.next_producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.last_epoch = NO_EPOCH
        """The epoch before this one, where its producer may ask again; not in the record, so lost with the coordinator."""
        self.timeout_ms = timeout_ms
        self.state = TransactionState.EMPTY
        self.pending: TransactionState | None = None
        self.partitions = NO_PARTITIONS
        self.start_ms = NO_TIMESTAMP
        self.last_update_ms = now_ms
        self.client_version = 0

    @property
    def producer(self) -> ProducerStamp:
        return ProducerStamp(self.producer_id, self.epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.epoch >= EPOCH_MAX - 1

    def was_ended_with(self, epoch: int) -> bool:
        """Whether an end that carried this epoch raised it to the present one."""
        return self.client_version >= EPOCH_BUMPS_FROM and self.epoch == epoch + 1

    # Transitions.
    def begin(
        self,
        state: TransactionState,
        *,
        now_ms: int,
        producer_id: int | None = None,
        next_producer_id: int = NO_PRODUCER_ID,
        epoch: int | None = None,
        last_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[TopicPartition] | None = None,
        start_ms: int | None = None,
        client_version: int | None = None,
    ) -> Transition:
        """What is not given stays. No other transition may be under way."""
        assert self.pending is None, f"{self.transactional_id} is on its way to {self.pending}"
        self.pending = state
        value = TransactionValue(
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            state=state,
            partitions=tuple(sorted(self.partitions if partitions is None else partitions)),
            last_update_ms=now_ms,
            start_ms=self.start_ms if start_ms is None else start_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            client_version=self.client_version if client_version is None else client_version,
        )
        return Transition(self.transactional_id, value, self.last_epoch if last_epoch is None else last_epoch)

    def begin_forgetting(self) -> Transition:
        assert self.pending is None
        self.pending = TransactionState.DEAD
        return Transition(self.transactional_id, None, self.last_epoch)

    def become(self, value: TransactionValue, last_epoch: int = NO_EPOCH) -> None:
        """Takes over what a record says."""
        self.producer_id = value.producer_id
        self.epoch = value.producer_epoch
        self.last_epoch = last_epoch
        self.next_producer_id = value.next_producer_id
        if value.state in IDLE:
            self.previous_producer_id = value.previous_producer_id
        self.timeout_ms = value.timeout_ms
        self.state = value.state
        self.partitions = frozenset(value.partitions) or NO_PARTITIONS
        self.start_ms = value.start_ms
        self.last_update_ms = value.last_update_ms
        self.client_version = value.client_version
        self.pending = None
