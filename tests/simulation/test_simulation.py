"""Clusters by seed hold what they must, one seed gives one trace, and what is known to be wrong is caught."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.replication.fetcher import Cut, Fetcher
from penstock.replication.isr import Followers
from penstock.replication.partition import Diverging, Partition
from tests.simulation.checks import Violation
from tests.simulation.cluster import SimCluster

GROUPS, SEEDS_A_GROUP = 10, 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int) -> SimCluster:
    cluster = SimCluster(seed)
    try:
        cluster.run()
    except BaseException as error:
        error.add_note("\n".join((*cluster.events.trace, f"seed {seed}")))
        raise
    return cluster


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_cluster_holds_what_it_must(group: int, full_counts: bool) -> None:
    # KAFKA-1211, 6361, 7128, 15221, 15583
    seeds = SEEDS_A_GROUP * (100 if full_counts else 1)
    for seed in range(group * seeds, (group + 1) * seeds):
        cluster = run(seed)
        assert len(cluster.checks.acked) > 30, "a run in which hardly anything is acknowledged proves little"


def test_one_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    code = (
        "import logging; logging.disable(50); from tests.simulation.cluster import SimCluster; c = SimCluster(5);"
        "c.run(); print(*c.events.trace, c.checks.committed, sep='\\n')"
    )
    root = Path(__file__).parents[2]
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (trace,) = traces
    assert "heal" in trace


# What is known to be wrong.
def _say_nothing_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Fetcher._asked
    monkeypatch.setattr(Fetcher, "_asked", staticmethod(lambda place: asked(place)._replace(last_epoch=-1)))


def by_watermark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower cuts to its high watermark, and believes that the rest is the leader's (before KIP-101)."""
    add = Fetcher.add

    def add_cut(self: Fetcher, partition: Partition) -> Cut | None:
        self._cutter.truncate(partition.topic_partition, partition.log.high_watermark)
        return add(self, partition)

    monkeypatch.setattr(Fetcher, "add", add_cut)
    _say_nothing_of_epochs(monkeypatch)


def without_kip_101(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers say nothing of their epochs, so that no leader tells them where they part."""
    _say_nothing_of_epochs(monkeypatch)


def without_kip_279(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower takes the leader's end of an epoch that it does not have itself for its own."""

    def shared_end(partition: Partition, diverging: Diverging) -> int:
        return min(diverging.end_offset, partition.log.end_offset)

    monkeypatch.setattr(Fetcher, "_shared_end", staticmethod(shared_end))


def without_maximal_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is under way counts as done."""
    propose = Followers._propose

    def propose_and_use(self: Followers, leader_epoch: int, isr: tuple[int, ...]) -> object:
        proposal = propose(self, leader_epoch, isr)
        self.maximal = isr
        return proposal

    monkeypatch.setattr(Followers, "_propose", propose_and_use)


def last_replica_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark moves on while fewer are in sync than min ISR asks for, and others may be elected."""
    monkeypatch.setattr(Partition, "effective_min_isr", property(lambda self: 1))
    eligible_are_forgotten(monkeypatch)


def eligible_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader takes a lower min ISR for its own before the controller has given up those who left."""
    confirm, make = Followers.confirm, Followers.__init__

    def confirm_alone(self: Followers, isr: tuple[int, ...], partition_epoch: int, *, has_eligible: bool) -> bool:
        return confirm(self, isr, partition_epoch)

    def make_alone(self: Followers, *arguments: Any, has_eligible: bool) -> None:
        make(self, *arguments)

    monkeypatch.setattr(Followers, "confirm", confirm_alone)
    monkeypatch.setattr(Followers, "__init__", make_alone)


@pytest.mark.parametrize(
    "breakage", [by_watermark_only, without_kip_101, without_kip_279, without_maximal_isr, last_replica_standing]
)
def test_what_is_known_to_be_wrong_is_caught(breakage: "type[object]", monkeypatch: pytest.MonkeyPatch) -> None:
    # KAFKA-1211, 6361, 15583
    breakage(monkeypatch)  # type: ignore[call-arg]
    for seed in range(60):
        try:
            SimCluster(seed).run()
        except (Violation, AssertionError):
            return
    pytest.fail("60 clusters did not notice")
