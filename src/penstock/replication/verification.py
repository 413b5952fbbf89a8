"""Transactional writes to one partition that wait for their coordinator's word, or have it (KIP-890, part 1).

Before the first write of a transaction the coordinator is asked whether the partition is part of it: a late write can so not
open a transaction that nobody would end (KAFKA-14561). Each question has a guard of its own; a write or a marker
ends what stands open, so an answer that comes after either counts for nothing.
"""

from __future__ import annotations

from penstock.base.errors import InvalidTxnStateError, OutOfOrderSequenceError
from penstock.records.batch import NO_SEQUENCE, Batch
from penstock.storage.producer_state import Producer

_PRODUCERS_MAX, _EPOCHS_MAX = 10_000, 4
"""More questions than these stand open for no honest reason; the oldest go."""


class _Verification:
    __slots__ = ("bumps_epochs", "guard", "is_granted", "lowest_sequence")

    def __init__(self, guard: int, sequence: int, *, bumps_epochs: bool) -> None:
        self.guard = guard
        self.lowest_sequence = sequence
        self.bumps_epochs = bumps_epochs
        self.is_granted = False


class Verifications:
    __slots__ = ("_next_guard", "_standing")

    def __init__(self) -> None:
        self._standing: dict[int, dict[int, _Verification]] = {}
        """By producer id and epoch: a question in an epoch that is not the producer's disturbs nobody's."""
        self._next_guard = 1

    def __len__(self) -> int:
        return sum(map(len, self._standing.values()))

    def begin(self, producer_id: int, epoch: int, sequence: int = NO_SEQUENCE, *, bumps_epochs: bool = False) -> int:
        """The guard under which the coordinator is to be asked; the same one while the question stands."""
        if producer_id not in self._standing and len(self._standing) >= _PRODUCERS_MAX:
            del self._standing[next(iter(self._standing))]
        epochs = self._standing.setdefault(producer_id, {})
        standing = epochs.get(epoch)
        if standing is not None:
            standing.lowest_sequence = min(standing.lowest_sequence, sequence)
            return standing.guard
        if len(epochs) >= _EPOCHS_MAX:
            del epochs[next(iter(epochs))]
        guard = self._next_guard
        self._next_guard += 1
        epochs[epoch] = _Verification(guard, sequence, bumps_epochs=bumps_epochs)
        return guard

    def grant(self, producer_id: int, epoch: int, guard: int) -> None:
        """The coordinator said yes. Raises where the question is no longer open: a write or a marker came between."""
        standing = self._standing.get(producer_id, {}).get(epoch)
        if standing is None or standing.guard != guard:
            raise InvalidTxnStateError(f"the transaction of producer {producer_id} ended while it was being verified")
        standing.is_granted = True

    def check(self, batch: Batch, producer: Producer | None) -> None:
        """Raises unless this first write of a transaction was granted, and is the first that was asked for."""
        standing = self._standing.get(batch.producer_id, {}).get(batch.producer_epoch)
        if standing is None or not standing.is_granted:
            raise InvalidTxnStateError(f"the transaction of producer {batch.producer_id} was not verified")
        first = standing.lowest_sequence
        is_known = producer is not None and producer.epoch == batch.producer_epoch
        # KAFKA-14920: an earlier one is still being verified. Where the log knows the producer it knows what comes next, whatever
        # was asked for: something that was written long ago, perhaps, and came once more.
        if batch.base_sequence > first and not is_known:
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} sent sequence {batch.base_sequence}, and {first} before it"
            )
        if standing.bumps_epochs and batch.base_sequence != 0 and producer is None:
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} begins epoch {batch.producer_epoch} with {batch.base_sequence}, not 0"
            )

    def clear(self) -> None:
        """Another broker leads, and may end what stands open: no answer that is on its way counts any more."""
        self._standing.clear()

    def end(self, producer_id: int) -> None:
        """Something of the producer was written: data, from which on its transaction is open, or a marker."""
        self._standing.pop(producer_id, None)
