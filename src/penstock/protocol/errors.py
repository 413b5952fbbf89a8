"""What can be wrong with a message's bytes."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class MalformedMessageError(PenstockError):
    """Bytes that are no message of the key and version they claim; the connection is not worth keeping."""
