"""What a log answers to an append and to a read, and how far a reader may see."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from penstock.storage.segment import FileSlice
from penstock.storage.transaction_index import AbortedTransaction


class Bound(Enum):
    """How far a reader may see."""

    HIGH_WATERMARK = "high_watermark"
    LAST_STABLE = "last_stable"
    LOG_END = "log_end"


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 where the producer's timestamps stand."""
    log_start_offset: int
    duplicate: bool
    flush_due: bool
    """`flush.messages` is reached: the answer and the high watermark wait for the partition's flush."""


class ReadResult(NamedTuple):
    slice: FileSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None
    """For a reader bounded by LAST_STABLE: aborted transactions in what was read; None for the others."""
