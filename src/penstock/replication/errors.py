"""What a replica may refuse."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class UnknownTopicOrPartitionError(PenstockError):
    """No such topic, or no such partition of it (UNKNOWN_TOPIC_OR_PARTITION)."""


class InconsistentTopicIdError(PenstockError):
    """The topic of this name has another id here (INCONSISTENT_TOPIC_ID)."""


class NotLeaderOrFollowerError(PenstockError):
    """This broker does not lead the partition (NOT_LEADER_OR_FOLLOWER)."""


class UnknownLeaderEpochError(PenstockError):
    """The client knows a newer leader epoch than this broker (UNKNOWN_LEADER_EPOCH)."""


class NotEnoughReplicasError(PenstockError):
    """Fewer replicas in sync than `min.insync.replicas`; nothing was written (NOT_ENOUGH_REPLICAS)."""


class NotEnoughReplicasAfterAppendError(PenstockError):
    """Written, but fewer replicas were in sync by then (NOT_ENOUGH_REPLICAS_AFTER_APPEND)."""
