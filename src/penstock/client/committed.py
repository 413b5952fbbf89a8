"""Which batches of a fetched stretch a reader may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.protocol.fetch import AbortedTransaction
from penstock.records.batch import Batch, records_slice
from penstock.records.build import ControlType, read_control

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def data_batches(batches: Iterable[Batch]) -> list[Batch]:
    """All but the control batches: what a reader of uncommitted records sees."""
    return [batch for batch in batches if not batch.is_control]


def committed_batches(
    data: ReadableBuffer, batches: Iterable[Batch], aborted: Iterable[AbortedTransaction]
) -> list[Batch]:
    """Without control batches and without those of aborted transactions.

    An answer lists each aborted transaction that overlaps its own batches: from its first offset on, what its producer
    wrote is left out, up to the abort marker. So nothing is carried over from one answer to the next (KIP-98).
    """
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    if not pending:
        return data_batches(batches)
    open_aborted: set[int] = set()
    kept = []
    for batch in batches:
        while pending and pending[-1].first_offset <= batch.last_offset:
            open_aborted.add(pending.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in open_aborted and _is_abort(data, batch):
                open_aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_aborted):
            kept.append(batch)
    return kept


def _is_abort(data: ReadableBuffer, batch: Batch) -> bool:
    if batch.record_count == 0:
        return False  # the cleaner took the marker and left the batch, for its producer's sake
    start, end = records_slice(batch)
    _, control_type = read_control(data, start, end)
    return control_type == ControlType.ABORT
