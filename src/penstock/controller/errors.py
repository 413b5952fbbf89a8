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
