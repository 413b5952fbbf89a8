"""What a controller may refuse."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class TopicExistsError(PenstockError):
    """There is a topic of this name (TOPIC_ALREADY_EXISTS)."""


class InvalidPartitionsError(PenstockError):
    """A number of partitions that cannot be (INVALID_PARTITIONS)."""


class InvalidReplicationFactorError(PenstockError):
    """More replicas than brokers, or none (INVALID_REPLICATION_FACTOR)."""


class InvalidReplicaAssignmentError(PenstockError):
    """Replicas by hand that do not fit together (INVALID_REPLICA_ASSIGNMENT)."""


class InvalidRequestError(PenstockError):
    """A request that contradicts itself (INVALID_REQUEST)."""


class PolicyViolationError(PenstockError):
    """A limit of this cluster (POLICY_VIOLATION)."""


class TopicDeletionDisabledError(PenstockError):
    """`delete.topic.enable` is false (TOPIC_DELETION_DISABLED)."""


class ElectionNotNeededError(PenstockError):
    """The right replica leads already (ELECTION_NOT_NEEDED)."""


class PreferredLeaderNotAvailableError(PenstockError):
    """The first replica is not alive and in sync (PREFERRED_LEADER_NOT_AVAILABLE)."""


class EligibleLeadersNotAvailableError(PenstockError):
    """No replica can lead (ELIGIBLE_LEADERS_NOT_AVAILABLE)."""


class NoReassignmentInProgressError(PenstockError):
    """There is nothing to cancel (NO_REASSIGNMENT_IN_PROGRESS)."""


class NotControllerError(PenstockError):
    """Another broker is the controller, or none is (NOT_CONTROLLER)."""


class StaleControllerEpochError(PenstockError):
    """A controller that was replaced speaks, or of a state older than the one known (STALE_CONTROLLER_EPOCH)."""


class StaleBrokerEpochError(PenstockError):
    """Meant for, or sent by, an earlier life of the broker (STALE_BROKER_EPOCH)."""


class IneligibleReplicaError(PenstockError):
    """A member of the proposed ISR is not alive, or not in the life in which it fetched (INELIGIBLE_REPLICA)."""


class InvalidUpdateVersionError(PenstockError):
    """The partition's state changed since the leader last saw it (INVALID_UPDATE_VERSION)."""


class FencedLeaderEpochError(PenstockError):
    """Somebody knows an older leader epoch than this broker (FENCED_LEADER_EPOCH)."""


class UnknownTopicIdError(PenstockError):
    """No topic has this id (UNKNOWN_TOPIC_ID)."""


class BrokerNotAvailableError(PenstockError):
    """The broker is not registered, or not any more: it cannot tell for which of its lives a request is (BROKER_NOT_AVAILABLE)."""
