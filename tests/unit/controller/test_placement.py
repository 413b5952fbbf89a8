"""Replicas lie on different brokers and spread evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.errors import InvalidReplicationFactorError
from penstock.controller.placement import place


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 20), st.data())
def test_replicas_differ_and_leaders_are_spread(brokers: int, partitions: int, first: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place(range(10, 10 + brokers), partitions, factor, first)
    assert list(placed) == list(range(first, first + partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(range(10, 10 + brokers))
    led = Counter(replicas[0] for replicas in placed.values())
    assert max(led.values()) - min(led[broker] for broker in range(10, 10 + brokers)) <= 1


@pytest.mark.parametrize("factor", [0, -1, 3])
def test_a_factor_that_cannot_be_is_refused(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactorError):
        place([1, 2], 1, factor)


@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 30), st.data())
def test_a_rack_has_a_second_replica_only_when_each_has_one(
    racks: int, per_rack: int, partitions: int, data: st.DataObject
) -> None:
    names = {broker: f"rack-{broker % racks}" for broker in range(racks * per_rack)}
    factor = data.draw(st.integers(1, len(names)))
    for replicas in place(sorted(names), partitions, factor, racks=names).values():
        assert len(set(replicas)) == factor
        used = Counter(names[replica] for replica in replicas)
        assert len(used) == min(racks, factor)


def test_racks_count_only_where_every_broker_has_one() -> None:
    assert place([1, 2, 3], 3, 2, racks={1: "a", 2: "a"}) == place([1, 2, 3], 3, 2)
