"""Errors that other brokers answer with, as the classes that name them here."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from penstock.base import errors as base
from penstock.base.errors import CorruptRecordError, OffsetOutOfRangeError, PenstockError, StorageError
from penstock.controller import errors as controller
from penstock.coordinator import errors as coordinator
from penstock.coordinator.transactions import errors as transactions
from penstock.replication import errors as replication


class PeerUnreachableError(PenstockError):
    """Another broker could not be asked, or whether it did what it was asked is not known (NETWORK_EXCEPTION)."""


class PeerRefusedError(PenstockError):
    """Another broker refused, for a reason that has no class of its own (UNKNOWN_SERVER_ERROR)."""


_CLASSES: dict[ErrorCode, type[PenstockError]] = {
    ErrorCode.not_leader_or_follower: replication.NotLeaderOrFollowerError,
    ErrorCode.unknown_topic_or_partition: replication.UnknownTopicOrPartitionError,
    ErrorCode.unknown_topic_id: controller.UnknownTopicIdError,
    ErrorCode.inconsistent_topic_id: replication.InconsistentTopicIdError,
    ErrorCode.fenced_leader_epoch: controller.FencedLeaderEpochError,
    ErrorCode.unknown_leader_epoch: replication.UnknownLeaderEpochError,
    ErrorCode.kafka_storage_error: StorageError,
    ErrorCode.corrupt_message: CorruptRecordError,
    ErrorCode.not_controller: controller.NotControllerError,
    ErrorCode.stale_controller_epoch: controller.StaleControllerEpochError,
    ErrorCode.stale_broker_epoch: controller.StaleBrokerEpochError,
    ErrorCode.ineligible_replica: controller.IneligibleReplicaError,
    ErrorCode.invalid_update_version: controller.InvalidUpdateVersionError,
    ErrorCode.invalid_producer_epoch: base.InvalidProducerEpochError,
    ErrorCode.invalid_txn_state: base.InvalidTxnStateError,
    ErrorCode.transaction_coordinator_fenced: base.TransactionCoordinatorFencedError,
    ErrorCode.not_coordinator: coordinator.NotCoordinatorError,
    ErrorCode.coordinator_not_available: coordinator.CoordinatorNotAvailableError,
    ErrorCode.operation_not_attempted: coordinator.CoordinatorNotAvailableError,  # for another partition's sake: ask again
    ErrorCode.coordinator_load_in_progress: coordinator.CoordinatorLoadInProgressError,
    ErrorCode.concurrent_transactions: transactions.ConcurrentTransactionsError,
    ErrorCode.invalid_producer_id_mapping: transactions.InvalidProducerIdMappingError,
    ErrorCode.producer_fenced: transactions.ProducerFencedError,
    ErrorCode.transaction_abortable: transactions.TransactionAbortableError,
    ErrorCode.not_enough_replicas: replication.NotEnoughReplicasError,
    ErrorCode.not_enough_replicas_after_append: replication.NotEnoughReplicasAfterAppendError,
}


def error_of(code: int, what: str) -> PenstockError | None:
    """The error of a code; None for success."""
    if code == 0:
        return None
    if code == ErrorCode.offset_out_of_range:
        return OffsetOutOfRangeError(-1, -1, -1)
    try:
        known = ErrorCode(code)
    except ValueError:
        return PeerRefusedError(f"{what} was refused with error {code}")
    return _CLASSES.get(known, PeerRefusedError)(f"{what} was refused: {known.name}")
