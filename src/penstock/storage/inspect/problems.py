"""What is wrong with a file, in one sentence, and what could be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cure(Enum):
    """What `mend` may do about a problem."""

    NONE = "none"
    """Nothing here can tell what would be right."""
    CUT = "cut"
    """The log would have to lose everything from here on: only on request."""
    TAIL = "tail"
    """The log's last write was cut off, and nothing follows it: what a start after a crash cuts."""
    INDEXES = "indexes"
    """Offset and time index are written anew from the log."""
    TRANSACTION_INDEX = "transaction_index"
    REMOVE = "remove"
    """The file is of no use to anyone, and nothing is lost with it."""
    LEFTOVERS = "leftovers"
    """Files of a change that never ended: a start completes or drops them."""
    EPOCHS = "epochs"
    """The epoch history is written anew from the batches."""
    CHECKPOINT = "checkpoint"
    """The checkpoint is set aside or brought back into the log's range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Where (`position` in the file, `offset` of the log), what, and the cure."""

    path: str
    reason: str
    position: int | None = None
    offset: int | None = None
    cure: Cure = Cure.NONE

    def __str__(self) -> str:
        where = self.path
        if self.position is not None:
            where += f", position {self.position}"
        if self.offset is not None:
            where += f", offset {self.offset}"
        return f"{where}: {self.reason}"
