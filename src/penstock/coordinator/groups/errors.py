"""What a group coordinator may refuse."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class InvalidGroupIdError(PenstockError):
    """No group may have this id (INVALID_GROUP_ID)."""


class InvalidSessionTimeoutError(PenstockError):
    """The session timeout is out of bounds (INVALID_SESSION_TIMEOUT)."""


class InconsistentGroupProtocolError(PenstockError):
    """The member and its group share no protocol (INCONSISTENT_GROUP_PROTOCOL)."""


class MemberIdRequiredError(PenstockError):
    """Join again with the id given here (MEMBER_ID_REQUIRED, KIP-394)."""


class UnknownMemberIdError(PenstockError):
    """No such member (UNKNOWN_MEMBER_ID)."""


class FencedInstanceIdError(PenstockError):
    """Another member took this static member's place (FENCED_INSTANCE_ID, KIP-345)."""


class GroupMaxSizeReachedError(PenstockError):
    """The group is full (GROUP_MAX_SIZE_REACHED)."""


class IllegalGenerationError(PenstockError):
    """The group is in another generation (ILLEGAL_GENERATION)."""


class RebalanceInProgressError(PenstockError):
    """The group rebalances: join again (REBALANCE_IN_PROGRESS)."""


class GroupIdNotFoundError(PenstockError):
    """There is no such group (GROUP_ID_NOT_FOUND)."""


class NonEmptyGroupError(PenstockError):
    """The group has members (NON_EMPTY_GROUP)."""


class GroupSubscribedToTopicError(PenstockError):
    """Members still consume the topic (GROUP_SUBSCRIBED_TO_TOPIC)."""


class OffsetMetadataTooLargeError(PenstockError):
    """The note at an offset is too long (OFFSET_METADATA_TOO_LARGE)."""


class UnstableOffsetCommitError(PenstockError):
    """A transaction on this offset is open (UNSTABLE_OFFSET_COMMIT)."""
