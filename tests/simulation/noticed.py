"""Whether simulated clusters notice what was broken on purpose."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import SimCluster


def assert_noticed(seed: int, *, has_transactions: bool = False) -> None:
    """By a seed that noticed it before, or by another where the code has changed since and another story is told."""
    for tried in (seed, *range(100)):
        try:
            SimCluster(tried, has_transactions=has_transactions).run()
        except AssertionError:
            return
    pytest.fail("a hundred clusters did not notice")
