"""Appending to many partitions: each succeeds or fails on its own."""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import InvalidRecordError, PenstockError
from penstock.base.files import ReadableBuffer
from penstock.replication.partition import Appended, Partition


class AppendTo(NamedTuple):
    """One partition's records; `refusal` stands for the partition if there is nothing to append to."""

    partition: Partition | None
    records: ReadableBuffer
    refusal: PenstockError | None = None


class AppendOutcome(NamedTuple):
    appended: Appended | None
    error: PenstockError | None


def append_partitions(requests: list[AppendTo], acks: int) -> list[AppendOutcome]:
    outcomes = []
    for partition, records, refusal in requests:
        if partition is None:
            outcomes.append(AppendOutcome(None, refusal))
            continue
        try:
            outcomes.append(AppendOutcome(partition.append(records, acks), None))
        except PenstockError as error:
            if isinstance(error, InvalidRecordError) and error.record_errors:
                error.log_start_offset = partition.log.log_start_offset
            outcomes.append(AppendOutcome(None, error))
    return outcomes
