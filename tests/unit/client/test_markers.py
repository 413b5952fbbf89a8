"""Waiting for the markers of a transaction: as long as its end is being written, and no longer than patience lasts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.client.scripted_broker import ScriptedBroker, still_time

from penstock.client import transactions
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, UnsupportedByBrokerError
from penstock.client.transactions import DescribedTransaction, wait_for_markers


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ScriptedBroker() as broker, Cluster(broker.config(), still_time()) as opened:
        yield opened


def script(monkeypatch: pytest.MonkeyPatch, *answers: str | ClientError) -> list[str]:
    """What the coordinator says, one answer after another, the last for ever; the list tells who was asked about."""
    asked: list[str] = []

    def describe(_cluster: Cluster, transactional_id: str) -> DescribedTransaction:
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(transactional_id)
        if isinstance(answer, ClientError):
            raise answer
        return DescribedTransaction(transactional_id, 0, 1, 0, answer, 60_000, 0, ())

    monkeypatch.setattr(transactions, "describe_transaction", describe)
    return asked


def test_a_transaction_is_asked_about_until_its_end_is_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = script(monkeypatch, "PrepareCommit", "PrepareCommit", "CompleteCommit")
    assert wait_for_markers(cluster, "t", 1_000)
    assert asked == ["t"] * 3


def test_patience_ends_and_a_broker_that_cannot_tell_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = script(monkeypatch, "PrepareAbort")
    assert not wait_for_markers(cluster, "t", 20)
    assert len(asked) == 11
    script(monkeypatch, UnsupportedByBrokerError("no DescribeTransactions here"))
    assert not wait_for_markers(cluster, "t", 20)
