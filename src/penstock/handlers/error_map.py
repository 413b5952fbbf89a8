"""Operating errors to Kafka's error codes: one table, total over every error class there is (a test walks them)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from penstock.base import errors as base
from penstock.base import ids
from penstock.controller import errors as controller
from penstock.coordinator import errors as coordinator
from penstock.coordinator.groups import errors as groups
from penstock.coordinator.transactions import errors as transactions
from penstock.handlers.errors import (
    ClusterAuthorisationError,
    GroupAuthorisationError,
    OffsetNotAvailableError,
    ReplicaNotAvailableError,
    TopicAuthorisationError,
    TransactionalIdAuthorisationError,
    UnsupportedVersionError,
)
from penstock.metadata import store
from penstock.peers import errors as peers
from penstock.protocol.errors import MalformedMessageError
from penstock.replication import errors as replication
from penstock.replication import fetch_sessions

CODES: dict[type[base.PenstockError], ErrorCode] = {
    base.PenstockError: ErrorCode.unknown_server_error,
    base.CorruptRecordError: ErrorCode.corrupt_message,
    base.InvalidRecordError: ErrorCode.invalid_record,
    base.InvalidTimestampError: ErrorCode.invalid_timestamp,
    base.MessageTooLargeError: ErrorCode.message_too_large,
    base.RecordListTooLargeError: ErrorCode.record_list_too_large,
    base.UnsupportedCompressionTypeError: ErrorCode.unsupported_compression_type,
    base.UnsupportedForMessageFormatError: ErrorCode.unsupported_for_message_format,
    base.OffsetOutOfRangeError: ErrorCode.offset_out_of_range,
    base.OffsetsOutOfOrderError: ErrorCode.unknown_server_error,
    base.OutOfOrderSequenceError: ErrorCode.out_of_order_sequence_number,
    base.InvalidProducerEpochError: ErrorCode.invalid_producer_epoch,
    base.InvalidTxnStateError: ErrorCode.invalid_txn_state,
    base.TransactionCoordinatorFencedError: ErrorCode.transaction_coordinator_fenced,
    base.StorageError: ErrorCode.kafka_storage_error,
    base.LogDirectoryError: ErrorCode.log_dir_not_found,
    base.DirectoryLockedError: ErrorCode.kafka_storage_error,
    base.CorruptFileError: ErrorCode.kafka_storage_error,
    base.ConfigError: ErrorCode.invalid_config,
    ids.InvalidTopicError: ErrorCode.invalid_topic_exception,
    MalformedMessageError: ErrorCode.invalid_request,
    ClusterAuthorisationError: ErrorCode.cluster_authorization_failed,
    GroupAuthorisationError: ErrorCode.group_authorization_failed,
    TopicAuthorisationError: ErrorCode.topic_authorization_failed,
    OffsetNotAvailableError: ErrorCode.offset_not_available,
    ReplicaNotAvailableError: ErrorCode.replica_not_available,
    TransactionalIdAuthorisationError: ErrorCode.transactional_id_authorization_failed,
    UnsupportedVersionError: ErrorCode.unsupported_version,
    replication.UnknownTopicOrPartitionError: ErrorCode.unknown_topic_or_partition,
    controller.UnknownTopicIdError: ErrorCode.unknown_topic_id,
    replication.InconsistentTopicIdError: ErrorCode.inconsistent_topic_id,
    replication.NotLeaderOrFollowerError: ErrorCode.not_leader_or_follower,
    controller.FencedLeaderEpochError: ErrorCode.fenced_leader_epoch,
    replication.UnknownLeaderEpochError: ErrorCode.unknown_leader_epoch,
    replication.NotEnoughReplicasError: ErrorCode.not_enough_replicas,
    replication.NotEnoughReplicasAfterAppendError: ErrorCode.not_enough_replicas_after_append,
    fetch_sessions.FetchSessionNotFoundError: ErrorCode.fetch_session_id_not_found,
    fetch_sessions.InvalidFetchSessionEpochError: ErrorCode.invalid_fetch_session_epoch,
    fetch_sessions.FetchSessionTopicIdError: ErrorCode.fetch_session_topic_id_error,
    controller.TopicDeletionDisabledError: ErrorCode.topic_deletion_disabled,
    controller.TopicExistsError: ErrorCode.topic_already_exists,
    controller.InvalidPartitionsError: ErrorCode.invalid_partitions,
    controller.InvalidReplicationFactorError: ErrorCode.invalid_replication_factor,
    controller.InvalidReplicaAssignmentError: ErrorCode.invalid_replica_assignment,
    controller.InvalidRequestError: ErrorCode.invalid_request,
    controller.PolicyViolationError: ErrorCode.policy_violation,
    controller.ElectionNotNeededError: ErrorCode.election_not_needed,
    controller.PreferredLeaderNotAvailableError: ErrorCode.preferred_leader_not_available,
    controller.EligibleLeadersNotAvailableError: ErrorCode.eligible_leaders_not_available,
    controller.NoReassignmentInProgressError: ErrorCode.no_reassignment_in_progress,
    controller.NotControllerError: ErrorCode.not_controller,
    controller.StaleControllerEpochError: ErrorCode.stale_controller_epoch,
    controller.StaleBrokerEpochError: ErrorCode.stale_broker_epoch,
    controller.BrokerNotAvailableError: ErrorCode.broker_not_available,
    controller.IneligibleReplicaError: ErrorCode.ineligible_replica,
    controller.InvalidUpdateVersionError: ErrorCode.invalid_update_version,
    coordinator.CoordinatorNotAvailableError: ErrorCode.coordinator_not_available,
    coordinator.NotCoordinatorError: ErrorCode.not_coordinator,
    coordinator.CoordinatorLoadInProgressError: ErrorCode.coordinator_load_in_progress,
    groups.InvalidGroupIdError: ErrorCode.invalid_group_id,
    groups.InvalidSessionTimeoutError: ErrorCode.invalid_session_timeout,
    groups.InconsistentGroupProtocolError: ErrorCode.inconsistent_group_protocol,
    groups.MemberIdRequiredError: ErrorCode.member_id_required,
    groups.UnknownMemberIdError: ErrorCode.unknown_member_id,
    groups.FencedInstanceIdError: ErrorCode.fenced_instance_id,
    groups.GroupMaxSizeReachedError: ErrorCode.group_max_size_reached,
    groups.IllegalGenerationError: ErrorCode.illegal_generation,
    groups.RebalanceInProgressError: ErrorCode.rebalance_in_progress,
    groups.GroupIdNotFoundError: ErrorCode.group_id_not_found,
    groups.NonEmptyGroupError: ErrorCode.non_empty_group,
    groups.GroupSubscribedToTopicError: ErrorCode.group_subscribed_to_topic,
    groups.OffsetMetadataTooLargeError: ErrorCode.offset_metadata_too_large,
    groups.UnstableOffsetCommitError: ErrorCode.unstable_offset_commit,
    transactions.InvalidProducerIdMappingError: ErrorCode.invalid_producer_id_mapping,
    transactions.ProducerFencedError: ErrorCode.producer_fenced,
    transactions.ConcurrentTransactionsError: ErrorCode.concurrent_transactions,
    transactions.InvalidTransactionTimeoutError: ErrorCode.invalid_transaction_timeout,
    transactions.TransactionalIdNotFoundError: ErrorCode.transactional_id_not_found,
    transactions.TransactionAbortableError: ErrorCode.transaction_abortable,
    peers.PeerUnreachableError: ErrorCode.network_exception,
    peers.PeerRefusedError: ErrorCode.unknown_server_error,
    store.StoreError: ErrorCode.unknown_server_error,
    store.NoNodeError: ErrorCode.unknown_topic_or_partition,
    store.NodeExistsError: ErrorCode.topic_already_exists,
    store.BadVersionError: ErrorCode.invalid_update_version,
    store.NotEmptyError: ErrorCode.unknown_server_error,
    store.NoChildrenForEphemeralsError: ErrorCode.unknown_server_error,
    store.BadPathError: ErrorCode.unknown_server_error,
    store.ConnectionLostError: ErrorCode.request_timed_out,
    store.LateError: ErrorCode.request_timed_out,
}


def code_of(error: base.PenstockError) -> ErrorCode:
    """The code of an error; a class of tests or plug-ins falls back to its nearest ancestor."""
    for ancestor in type(error).__mro__:
        code = CODES.get(ancestor)
        if code is not None:
            return code
    raise AssertionError("PenstockError is in the table")
