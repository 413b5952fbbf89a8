"""Clusters with transactions by seed hold what they must, and what is known to be wrong with coordinators is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.coordinator.transactions import shard
from penstock.coordinator.transactions.messages import Transition
from penstock.coordinator.transactions.model import Transaction
from penstock.coordinator.transactions.shard import Shard
from penstock.drivers.markers import LocalMarkers
from penstock.drivers.shards import Led, Shards, ShardsSurroundings, Then
from penstock.drivers.transactions import TransactionDriver
from penstock.protocol.transaction_records import TransactionState
from tests.simulation.cluster import SimCluster
from tests.simulation.noticed import assert_noticed


def test_there_is_something_to_hold() -> None:
    cluster = SimCluster(1, has_transactions=True)
    cluster.run()
    assert cluster.transactors is not None
    ended = cluster.transactors.transactions
    assert sum(one.is_committed for one in ended) > 10
    assert any(one.written and not one.may_be_committed for one in ended)
    assert any(one.has_offset for one in ended)
    assert cluster.transactors.acknowledged_offset > 5


def acts_on_what_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator answers, and writes markers, when its record is written."""

    def at_once(self: Shards[Led[object]], led: Led[object], then: Then) -> None:
        then(None)

    monkeypatch.setattr(Shards, "when_committed", at_once)


def markers_count_when_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when they are committed."""
    make = LocalMarkers.__init__

    class Hasty:
        def __init__(self, surroundings: ShardsSurroundings) -> None:
            self._surroundings = surroundings

        def __getattr__(self, name: str) -> object:
            return getattr(self._surroundings, name)

        def when_committed(self, _partition: object, _epoch: int, _end_offset: int, then: Then) -> None:
            then(None)

    def make_hasty(self: LocalMarkers, surroundings: ShardsSurroundings, *others: object) -> None:
        make(self, Hasty(surroundings), *others)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalMarkers, "__init__", make_hasty)


def markers_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionDriver, "_is_worth_retrying", lambda *_: False)


def what_was_prepared_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not finish what the one before began."""
    monkeypatch.setattr(Shard, "loaded", lambda _self: [])


def nobody_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction whose producer is gone stays open."""
    monkeypatch.setattr(Shard, "timed_out", lambda _self: iter(()))


def fences_in_the_same_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is aborted for its producer leaves that one as it was."""

    def fence(transaction: Transaction, now_ms: int) -> Transition:
        return transaction.begin(TransactionState.PREPARE_ABORT, now_ms=now_ms, client_version=0)

    monkeypatch.setattr(shard, "decide_fence", fence)


BREAKAGES = [
    (acts_on_what_may_be_lost, 15),
    (markers_count_when_they_are_written, 15),
    (markers_are_tried_once, 13),
    (what_was_prepared_is_left, 1),
    (nobody_looks_at_the_clock, 1),
    (fences_in_the_same_epoch, 1),
]
"""Each with a seed that noticed it."""


@pytest.mark.parametrize(("breakage", "seed"), BREAKAGES)
def test_what_is_known_to_be_wrong_is_caught(
    breakage: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakage(monkeypatch)
    assert_noticed(seed, has_transactions=True)
