"""What a handler itself may refuse."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class ClusterAuthorisationError(PenstockError):
    """The principal may not do this to the cluster (CLUSTER_AUTHORIZATION_FAILED)."""


class GroupAuthorisationError(PenstockError):
    """The principal may not use this group (GROUP_AUTHORIZATION_FAILED)."""


class TopicAuthorisationError(PenstockError):
    """The principal may not use this topic (TOPIC_AUTHORIZATION_FAILED)."""


class UnsupportedVersionError(PenstockError):
    """Asked for what this version of the API does not have (UNSUPPORTED_VERSION)."""


class OffsetNotAvailableError(PenstockError):
    """A new leader does not know yet how far its log is committed (OFFSET_NOT_AVAILABLE)."""


class ReplicaNotAvailableError(PenstockError):
    """This broker holds no replica of the partition (REPLICA_NOT_AVAILABLE)."""


class TransactionalIdAuthorisationError(PenstockError):
    """The principal may not use this transactional id (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)."""
