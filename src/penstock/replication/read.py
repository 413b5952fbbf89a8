"""Reading many partitions within one budget of bytes.

Partitions are read in the order of the request, which the client or its session rotates. A first batch larger than the
budget is given only until some partition gave bytes: progress for the client, no more.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.replication.partition import Diverging, Partition
from penstock.storage.answers import Bound, ReadResult


class ReadFrom(NamedTuple):
    """Where one partition is read; `refusal` stands for the partition if there is nothing to read from."""

    partition: Partition | None
    offset: int
    bytes_max: int
    client_epoch: int
    refusal: PenstockError | None = None
    last_fetched_epoch: int = -1
    preferred: int = -1
    """A replica that is nearer: nothing is read here then."""


class ReadOutcome(NamedTuple):
    result: ReadResult | None
    error: PenstockError | None
    bytes_read: int
    diverging: Diverging | None = None
    preferred: int = -1


def read_partitions(requests: list[ReadFrom], bytes_max: int, bound: Bound) -> list[ReadOutcome]:
    outcomes = []
    remaining = bytes_max
    nothing_yet = True
    for request in requests:
        if request.partition is None:
            outcomes.append(ReadOutcome(None, request.refusal, 0))
            continue
        try:
            if request.last_fetched_epoch >= 0:
                request.partition.check_reader(request.client_epoch)
                diverging = request.partition.diverging(request.offset, request.last_fetched_epoch)
                if diverging is not None:
                    outcomes.append(ReadOutcome(request.partition.read_nothing(), None, 0, diverging))
                    continue
            if request.preferred >= 0:
                request.partition.check_reader(request.client_epoch)
                outcomes.append(ReadOutcome(request.partition.read_nothing(), None, 0, preferred=request.preferred))
                continue
            result = request.partition.read(
                request.offset,
                min(request.bytes_max, remaining),
                bound,
                request.client_epoch,
                minimum_one=nothing_yet,
            )
        except PenstockError as error:
            outcomes.append(ReadOutcome(None, error, 0))
            continue
        size = 0 if result.slice is None else result.slice.length
        if size:
            nothing_yet = False
            remaining = max(remaining - size, 0)
        outcomes.append(ReadOutcome(result, None, size))
    return outcomes
