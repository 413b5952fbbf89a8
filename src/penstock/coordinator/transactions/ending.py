"""How transactions end: by their producer, in the older protocol or the newer one, or by the coordinator's fence.

In the newer protocol (KIP-890, part 2) every end raises the epoch, so that nothing of one transaction, however late it
comes, can be taken for a part of the next (KAFKA-17754). There an end that comes twice is known by its epoch, in the older
one only by the state.
"""

from __future__ import annotations

from penstock.base.errors import InvalidTxnStateError
from penstock.coordinator.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
)
from penstock.coordinator.transactions.messages import Decision, EndTransaction, ProducerStamp, Transition
from penstock.coordinator.transactions.model import COMPLETED, EPOCH_BUMPS_FROM, EPOCH_MAX, PREPARED, Transaction
from penstock.protocol.transaction_records import NO_PRODUCER_ID, TransactionState

SERVER_VERSION = 2
"""The transactions protocol of this broker: what it decides by itself is decided in this one."""


def decide_fence(transaction: Transaction, now_ms: int) -> Transition:
    """Aborts the open transaction and shuts its producer out.

    One that another broker left open in the highest epoch ends in it, as in the older protocol.
    """
    epoch = min(transaction.epoch + 1, EPOCH_MAX)
    return transaction.begin(
        TransactionState.PREPARE_ABORT,
        now_ms=now_ms,
        epoch=epoch,
        last_epoch=transaction.epoch,
        client_version=SERVER_VERSION if epoch > transaction.epoch else 0,
    )


def decide_end(transaction: Transaction, request: EndTransaction, new_producer_id: int | None, now_ms: int) -> Decision:
    if request.client_version >= EPOCH_BUMPS_FROM:
        return _end_and_bump(transaction, request, new_producer_id, now_ms)
    return _end(transaction, request, now_ms)


def _end(transaction: Transaction, request: EndTransaction, now_ms: int) -> Decision:
    if transaction.producer_id != request.producer.producer_id:
        raise _other_producer(transaction, request)
    if transaction.epoch != request.producer.epoch:
        raise _fenced(transaction, request)
    if transaction.pending is not None:
        raise ConcurrentTransactionsError(f"{transaction.transactional_id} is in another step")
    state = transaction.state
    if state is TransactionState.ONGOING:
        transition = transaction.begin(_prepared(request.commit), now_ms=now_ms, client_version=request.client_version)
        return Decision(transition=transition, reply=transaction.producer)
    if state is _completed(request.commit):
        return Decision(reply=transaction.producer)
    raise _wrong_state(transaction, request)


def _end_and_bump(
    transaction: Transaction, request: EndTransaction, new_producer_id: int | None, now_ms: int
) -> Decision:
    producer = request.producer
    state = transaction.state
    rotated = (
        producer.producer_id == transaction.previous_producer_id
        and producer.epoch == EPOCH_MAX - 1
        and transaction.epoch == 0
    )
    again = transaction.was_ended_with(producer.epoch) or rotated
    if transaction.producer_id != producer.producer_id and not rotated:
        raise _other_producer(transaction, request)
    is_current = transaction.epoch == producer.epoch < EPOCH_MAX
    if not (again if state in PREPARED else is_current or (again and state in COMPLETED)):
        raise _fenced(transaction, request)
    if transaction.pending is not None:
        raise ConcurrentTransactionsError(f"{transaction.transactional_id} is in another step")
    if state in COMPLETED and again:
        if state is _completed(request.commit):
            return Decision(reply=transaction.producer)
        raise _wrong_state(transaction, request)
    if state is not TransactionState.ONGOING and request.commit:
        # Only what nothing was added to may end without having begun, and only by an abort.
        raise _wrong_state(transaction, request)
    return _prepare_and_bump(transaction, request, new_producer_id, now_ms)


def _prepare_and_bump(
    transaction: Transaction, request: EndTransaction, new_producer_id: int | None, now_ms: int
) -> Decision:
    epoch = transaction.epoch
    next_producer_id = NO_PRODUCER_ID
    reply = ProducerStamp(transaction.producer_id, epoch + 1)
    if transaction.is_epoch_exhausted:
        assert new_producer_id is not None
        next_producer_id = new_producer_id
        reply = ProducerStamp(new_producer_id, 0)
    transition = transaction.begin(
        _prepared(request.commit),
        now_ms=now_ms,
        epoch=epoch + 1,
        last_epoch=epoch,
        next_producer_id=next_producer_id,
        start_ms=transaction.start_ms if transaction.state is TransactionState.ONGOING else now_ms,
        client_version=request.client_version,
    )
    return Decision(transition=transition, reply=reply)


def _prepared(commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _completed(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _other_producer(transaction: Transaction, request: EndTransaction) -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError(
        f"{transaction.transactional_id} belongs to producer {transaction.producer_id}, "
        f"not {request.producer.producer_id}"
    )


def _fenced(transaction: Transaction, request: EndTransaction) -> ProducerFencedError:
    return ProducerFencedError(
        f"{transaction.transactional_id} has epoch {transaction.epoch}, not {request.producer.epoch}"
    )


def _wrong_state(transaction: Transaction, request: EndTransaction) -> InvalidTxnStateError:
    wish = "commit" if request.commit else "abort"
    return InvalidTxnStateError(f"{transaction.transactional_id} is {transaction.state.label}: nothing to {wish}")
