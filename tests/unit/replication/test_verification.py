"""What stands of questions to coordinators is bounded, whoever asks."""

from __future__ import annotations

import pytest

from penstock.base.errors import InvalidTxnStateError
from penstock.replication.verification import Verifications


def test_questions_of_very_many_producers_do_not_pile_up() -> None:
    # A14
    standing = Verifications()
    for producer_id in range(30_000):
        guard = standing.begin(producer_id, 0)
    assert len(standing) == 10_000
    standing.grant(29_999, 0, guard)
    with pytest.raises(InvalidTxnStateError):
        standing.grant(0, 0, 1)


def test_questions_in_very_many_epochs_do_not_pile_up() -> None:
    # A14
    standing = Verifications()
    for epoch in range(1_000):
        standing.begin(7, epoch)
    assert len(standing) == 4
