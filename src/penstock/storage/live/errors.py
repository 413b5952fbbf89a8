"""What a reader beside a broker has to expect."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class LiveLogError(PenstockError):
    """A log cannot be read where it was looked for; the text names the path and the reason."""


class LiveLossError(LiveLogError):
    """Offsets that were to be read are no longer there; the range that is left is named."""

    def __init__(self, path: str, offset: int, log_start_offset: int, end_offset: int) -> None:
        super().__init__(
            f"{path}: offset {offset} is no longer in the log, which now holds [{log_start_offset}, {end_offset})"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
