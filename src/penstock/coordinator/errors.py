"""What any coordinator may refuse, of groups or of transactions."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class CoordinatorNotAvailableError(PenstockError):
    """There is no coordinator yet; ask again (COORDINATOR_NOT_AVAILABLE)."""


class NotCoordinatorError(PenstockError):
    """Another broker coordinates this group or transactional id (NOT_COORDINATOR)."""


class CoordinatorLoadInProgressError(PenstockError):
    """The coordinator's records are still being read (COORDINATOR_LOAD_IN_PROGRESS)."""
