"""Transactional writes are verified before they are appended (KIP-890): the coordinator is asked whether the partition is
part of the transaction, or, in transactions V2, makes it one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.base.errors import InvalidProducerEpochError, InvalidTxnStateError, PenstockError
from penstock.base.files import ReadableBuffer
from penstock.base.ids import TopicPartition
from penstock.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from penstock.coordinator.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
    TransactionAbortableError,
)
from penstock.coordinator.transactions.messages import AddPartitions, ProducerStamp
from penstock.drivers.transactions import TOPIC
from penstock.handlers.services import Services
from penstock.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, read_header
from penstock.replication.append import AppendTo
from penstock.replication.errors import NotEnoughReplicasError
from penstock.replication.partition import Partition

ABORTABLE_FROM, ADDS_FROM = 11, 12
"""Versions of Produce that know TRANSACTION_ABORTABLE, and that add their partitions by writing to them."""

_ASK_AGAIN = (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)

Outcomes = dict[TopicPartition, PenstockError | None]


def is_transactional(records: ReadableBuffer) -> bool:
    return len(records) >= HEADER_BYTES and bool(records[22] & TRANSACTIONAL_BIT)


def ask(
    services: Services,
    transactional_id: str,
    producer: ProducerStamp,
    partitions: Iterable[TopicPartition],
    then: Callable[[Outcomes], object],
    *,
    add: bool,
) -> None:
    """Asks the coordinator about partitions; `then` gets an error for each, or None where it may be written to."""
    asked = tuple(partitions)
    transactions = services.transactions
    if services.cluster is not None:
        try:
            state = services.image.partition(TOPIC, transactions.partition_of(transactional_id))
        except PenstockError as error:
            then(dict.fromkeys(asked, error))
            return
        coordinator_id = -1 if state is None else state.leader
        if coordinator_id != services.node_id and (add or transactions.settings.verifies_partitions()):
            services.cluster.questions.ask(coordinator_id, transactional_id, producer, asked, then, add=add)
            return
    if add:
        request = AddPartitions(transactional_id, producer, asked, 2)
        transactions.add_partitions(request, lambda error: then(dict.fromkeys(asked, error)))
        return
    outcomes: Outcomes
    try:
        if transactions.settings.verifies_partitions():
            outcomes = transactions.find(transactional_id).shard.verify(transactional_id, producer, asked)
        else:
            outcomes = dict.fromkeys(asked)
    except PenstockError as error:
        outcomes = dict.fromkeys(asked, error)
    then(outcomes)


def verify_appends(
    services: Services,
    transactional_id: str,
    wanted: list[AppendTo],
    version: int,
    then: Callable[[list[AppendTo]], object],
) -> None:
    """`then` gets the same appends, with a refusal in place of each that may not be written. Version is that of Produce."""
    guards: dict[int, int] = {}
    producers: set[ProducerStamp] = set()
    for number, append in enumerate(wanted):
        if append.partition is None or not is_transactional(append.records):
            continue
        if not append.partition.is_leader:
            continue  # it refuses the write anyway, and must not remember it
        header = read_header(append.records)
        producers.add(ProducerStamp(header.producer_id, header.producer_epoch))
        if not append.partition.is_in_transaction(header.producer_id, header.producer_epoch):
            guards[number] = append.partition.verifications.begin(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                bumps_epochs=version >= ADDS_FROM,
            )
    if len(producers) > 1:
        refusal = InvalidProducerIdMappingError("the batches of a transactional request come from one producer")
        then([append if append.partition is None else AppendTo(None, b"", refusal) for append in wanted])
        return
    if not guards:
        then(wanted)
        return
    (producer,) = producers
    numbers = {_partition(wanted[number]): number for number in guards}

    def answered(outcomes: Outcomes) -> None:
        checked = list(wanted)
        for topic_partition, error in outcomes.items():
            number = numbers[topic_partition]
            partition = wanted[number].partition
            assert partition is not None
            refusal = why_refused(partition, producer, guards[number], error)
            if refusal is not None:
                checked[number] = AppendTo(None, b"", _for_producers(refusal, version))
        then(checked)

    ask(services, transactional_id, producer, numbers, answered, add=version >= ADDS_FROM)


def why_refused(
    partition: Partition, producer: ProducerStamp, guard: int, error: PenstockError | None
) -> PenstockError | None:
    """With the coordinator's word, an error or none: why the write that was asked about may not go on. None where it may."""
    if partition.is_in_transaction(*producer):
        return None  # the write before this one has opened it meanwhile
    if not partition.is_leader:
        return None  # it refuses the write itself, in words that send the client elsewhere
    if error is None:
        try:
            partition.verifications.grant(*producer, guard)
        except PenstockError as refusal:
            return refusal
    return error


def _partition(append: AppendTo) -> TopicPartition:
    assert append.partition is not None
    return append.partition.topic_partition


def _for_producers(error: PenstockError, version: int) -> PenstockError:
    """In terms that a producer's client expects of Produce: try again, abort, or give up."""
    if isinstance(error, _ASK_AGAIN):
        return NotEnoughReplicasError(f"the transaction could not be verified: {error}")
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    if isinstance(error, TransactionAbortableError) and version < ABORTABLE_FROM:
        return InvalidTxnStateError(str(error))
    return error
