"""The transactional ids of one partition of `__transaction_state`.

`replay` fills it from the log; then requests are decided. A request that is refused raises; the others give a `Decision`.
An id takes one step at a time: from the moment a transition is decided until `committed` or `failed` everybody else is told
to ask again. After a transition to a prepared state the caller writes the markers and then asks to `complete`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions.config import TransactionSettings
from penstock.coordinator.transactions.ending import decide_end, decide_fence
from penstock.coordinator.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from penstock.coordinator.transactions.messages import (
    AddPartitions,
    Decision,
    EndTransaction,
    InitProducerId,
    Markers,
    ProducerStamp,
    Transition,
)
from penstock.coordinator.transactions.model import (
    EPOCH_MAX,
    IDLE,
    NO_EPOCH,
    NO_PARTITIONS,
    PREPARED,
    Transaction,
)
from penstock.protocol.transaction_records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionState, TransactionValue


class Shard:
    def __init__(self, settings: TransactionSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: dict[str, Transaction] = {}
        """The open ones, in the order in which they began."""

    # State from records.
    def replay(self, transactional_id: str, value: TransactionValue | None) -> None:
        """One record of the log, in order."""
        if value is None:
            self.transactions.pop(transactional_id, None)
            self.ongoing.pop(transactional_id, None)
            return
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, value.producer_id, value.timeout_ms, value.last_update_ms)
            transaction.previous_producer_id = value.previous_producer_id
            self.transactions[transactional_id] = transaction
        self._become(transaction, value, NO_EPOCH)

    def loaded(self) -> list[Markers]:
        """The log is read to its end: what was prepared and not completed is to be finished."""
        return [self._markers(one) for one in self.transactions.values() if one.state in PREPARED]

    def committed(self, transition: Transition) -> Markers | None:
        """The transition's record is below the high watermark. Gives the markers to write, if a transaction ended."""
        transaction = self.transactions[transition.transactional_id]
        if transition.value is None:
            del self.transactions[transition.transactional_id]
            return None
        self._become(transaction, transition.value, transition.last_epoch)
        return self._markers(transaction) if transaction.state in PREPARED else None

    def failed(self, transition: Transition) -> None:
        """The record was not written, or nobody knows: the id stays what it was, and may try again (KAFKA-7519)."""
        transaction = self.transactions[transition.transactional_id]
        transaction.pending = None
        if transaction.epoch == NO_EPOCH:
            del self.transactions[transition.transactional_id]

    def _become(self, transaction: Transaction, value: TransactionValue, last_epoch: int) -> None:
        transaction.become(value, last_epoch)
        if value.state is TransactionState.ONGOING:
            self.ongoing.setdefault(transaction.transactional_id, transaction)
        else:
            self.ongoing.pop(transaction.transactional_id, None)

    def _markers(self, transaction: Transaction) -> Markers:
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        transaction.pending = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        return Markers(
            transactional_id=transaction.transactional_id,
            producer=transaction.producer,
            commit=commit,
            client_version=transaction.client_version,
            partitions=transaction.partitions,
        )

    def complete(self, markers: Markers) -> Transition:
        """Every marker is written."""
        transaction = self.transactions[markers.transactional_id]
        state = TransactionState.COMPLETE_COMMIT if markers.commit else TransactionState.COMPLETE_ABORT
        assert transaction.state in PREPARED
        assert transaction.pending is state
        transaction.pending = None
        producer_id, epoch = transaction.producer
        if transaction.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = transaction.next_producer_id, 0
        return transaction.begin(
            state, now_ms=self._clock.wall_ms(), producer_id=producer_id, epoch=epoch, partitions=NO_PARTITIONS
        )

    def completion_failed(self, transition: Transition) -> None:
        """The transaction is still to be completed: nothing else may begin."""
        assert transition.value is not None
        self.transactions[transition.transactional_id].pending = transition.value.state

    # Producer ids.
    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether an InitProducerId, or an end that raises the epoch, may need a new producer id."""
        transaction = self.transactions.get(transactional_id)
        return transaction is None or transaction.is_epoch_exhausted

    def init_producer_id(self, request: InitProducerId, new_producer_id: int | None) -> Decision:
        """A decision without a reply: the open transaction is aborted, and the producer is to ask again."""
        transactional_id, timeout_ms, expected = request
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            raise InvalidTransactionTimeoutError(
                f"a transaction's timeout is between 1 and {self._settings.timeout_max_ms} ms"
            )
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            assert new_producer_id is not None
            now_ms = self._clock.wall_ms()
            transaction = Transaction(transactional_id, new_producer_id, timeout_ms, now_ms)
            self.transactions[transactional_id] = transaction
        if transaction.pending is not None:
            raise ConcurrentTransactionsError(f"{transactional_id} is in another step")
        if expected is not None and not _may_continue(transaction, expected):
            raise ProducerFencedError(f"{transactional_id} belongs to producer {transaction.producer_id}")
        if transaction.state is TransactionState.ONGOING:
            return Decision(transition=decide_fence(transaction, self._clock.wall_ms()))
        assert transaction.state in IDLE
        transition = self._next_producer(transaction, timeout_ms, expected, new_producer_id)
        assert transition.value is not None
        return Decision(
            transition=transition, reply=ProducerStamp(transition.value.producer_id, transition.value.producer_epoch)
        )

    def _next_producer(
        self,
        transaction: Transaction,
        timeout_ms: int,
        expected: ProducerStamp | None,
        new_producer_id: int | None,
    ) -> Transition:
        producer_id, epoch = transaction.producer
        if transaction.is_epoch_exhausted and (expected is None or expected.epoch == epoch):
            assert new_producer_id is not None
            producer_id, next_epoch = new_producer_id, 0
            last_epoch = NO_EPOCH if expected is None else epoch
        elif expected is None:
            next_epoch, last_epoch = epoch + 1, NO_EPOCH
        elif epoch in (NO_EPOCH, expected.epoch):
            next_epoch, last_epoch = epoch + 1, epoch
        elif expected.epoch == transaction.last_epoch:
            next_epoch, last_epoch = epoch, transaction.last_epoch  # asked again: its answer was lost
        else:
            raise ProducerFencedError(f"epoch {expected.epoch} of {transaction.transactional_id} is over")
        return transaction.begin(
            TransactionState.EMPTY,
            now_ms=self._clock.wall_ms(),
            producer_id=producer_id,
            epoch=next_epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
        )

    # Transactions.
    def add_partitions(self, request: AddPartitions) -> Decision:
        transactional_id, producer, partitions, client_version = request
        transaction = self._of(transactional_id)
        if transaction.pending is not None:
            # First of all: the producer may know an id that is only on its way.
            raise ConcurrentTransactionsError(f"{transactional_id} is in another step")
        _check_producer(transaction, producer)
        added = frozenset(partitions)
        now_ms = self._clock.wall_ms()
        if transaction.state is TransactionState.ONGOING:
            if added <= transaction.partitions:
                return Decision()
            start_ms = transaction.start_ms
        else:
            start_ms = now_ms
        transition = transaction.begin(
            TransactionState.ONGOING,
            now_ms=now_ms,
            partitions=transaction.partitions | added,
            start_ms=start_ms,
            client_version=client_version,
        )
        return Decision(transition=transition)

    def verify(
        self, transactional_id: str, producer: ProducerStamp, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PenstockError | None]:
        """Whether partitions are part of the open transaction (KIP-890): an error for each that is not."""
        transaction = self._of(transactional_id)
        _check_producer(transaction, producer)
        if transaction.state in PREPARED:
            raise ConcurrentTransactionsError(f"{transactional_id} is about to end")
        return {
            partition: None
            if partition in transaction.partitions
            else TransactionAbortableError(f"{partition} is not part of the transaction of {transactional_id}")
            for partition in partitions
        }

    def end(self, request: EndTransaction, new_producer_id: int | None) -> Decision:
        """Prepares the end, or says that it was prepared before."""
        return decide_end(self._of(request.transactional_id), request, new_producer_id, self._clock.wall_ms())

    def _of(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise InvalidProducerIdMappingError(f"there is no transactional id {transactional_id}")
        return transaction

    # What time does.
    def timed_out(self) -> Iterator[Transition]:
        """Ends the transactions that stayed open too long; their producers are fenced."""
        now_ms = self._clock.wall_ms()
        for transaction in list(self.ongoing.values()):
            is_open = transaction.state is TransactionState.ONGOING and transaction.pending is None
            if is_open and transaction.start_ms + transaction.timeout_ms < now_ms:
                yield decide_fence(transaction, now_ms)

    def expired(self) -> Iterator[Transition]:
        """Forgets the ids that nobody used for long; also one that never got its first epoch (KAFKA-14880)."""
        oldest_ms = self._clock.wall_ms() - self._settings.expiration_ms
        for transaction in list(self.transactions.values()):
            if transaction.pending is None and transaction.state in IDLE and transaction.last_update_ms <= oldest_ms:
                yield transaction.begin_forgetting()

    # Looking.
    def describe(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.pending is TransactionState.DEAD or transaction.epoch == NO_EPOCH:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id}")
        return transaction


def _may_continue(transaction: Transaction, expected: ProducerStamp) -> bool:
    """A producer goes on as the one it was, or as what followed its last epoch (KIP-360)."""
    if transaction.epoch == NO_EPOCH or expected.producer_id == transaction.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and expected.epoch >= EPOCH_MAX - 1


def _check_producer(transaction: Transaction, producer: ProducerStamp) -> None:
    if transaction.producer_id != producer.producer_id:
        raise InvalidProducerIdMappingError(
            f"{transaction.transactional_id} belongs to producer {transaction.producer_id}, not {producer.producer_id}"
        )
    if transaction.epoch != producer.epoch or producer.epoch == EPOCH_MAX:  # the highest is nobody's
        raise ProducerFencedError(f"{transaction.transactional_id} has epoch {transaction.epoch}, not {producer.epoch}")
