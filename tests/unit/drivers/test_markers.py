"""Markers on partitions with replicas: one counts as written when no change of leaders can lose it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.drivers.replicated import GROUPS, Replicated
from tests.unit.handlers.test_transaction_apis import T0, opened, produce

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.drivers.markers import Marker
from penstock.replication.errors import NotLeaderOrFollowerError


@pytest.fixture
def world(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def write(world: Replicated, marker: Marker) -> list[PenstockError | None]:
    heard: list[PenstockError | None] = []
    world.services.markers.write(TopicPartition(*T0), marker, heard.append)
    world.loop.turn()
    return heard


def written(world: Replicated) -> Marker:
    """A marker of the newer protocol, whose first try ended without an answer of the follower."""
    stamp = opened(world)
    assert produce(world, stamp) == "none"
    world.lead(T0)
    marker = Marker(stamp.producer_id, stamp.epoch + 1, True, 0, 2)
    heard = write(world, marker)
    assert heard == []
    world.loop.advance(6_000)
    assert len(heard) == 1
    assert heard[0] is not None
    assert (world.log(T0).end_offset, world.log(T0).high_watermark) == (2, 1)
    return marker


def test_a_marker_that_stands_is_called_written_only_when_it_cannot_be_lost(world: Replicated) -> None:
    marker = written(world)
    heard = write(world, marker)
    assert heard == [], "the follower may be elected without it"
    world.fetch_all(T0)
    assert heard == [None]
    assert write(world, marker) == [None]
    assert world.log(T0).end_offset == 2, "one marker"


def test_a_marker_that_stands_and_is_not_replicated_in_time_is_not_written(world: Replicated) -> None:
    heard = write(world, written(world))
    world.loop.advance(6_000)
    assert len(heard) == 1
    assert heard[0] is not None


def test_only_the_leader_says_that_a_marker_stands(world: Replicated) -> None:
    marker = written(world)
    world.fetch_all(T0)
    world.lead(T0, leader=2)
    (said,) = write(world, marker)
    assert isinstance(said, NotLeaderOrFollowerError)


@pytest.mark.parametrize("place", [TopicPartition(*T0), GROUPS])
def test_a_transaction_is_not_complete_while_a_marker_may_be_lost(world: Replicated, place: TopicPartition) -> None:
    stamp = world.requests.init("x")
    if place == GROUPS:
        assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=5) == "none"
    else:
        assert produce(world, stamp, version=12) == "none"
    world.lead(place)
    assert world.requests.end("x", stamp, commit=True, version=5).error == "none"
    assert world.log(place).end_offset == 2
    world.loop.advance(20_000)
    assert world.state() == "PrepareCommit"
    world.fetch_all(place)
    world.loop.advance(200)
    assert world.state() == "CompleteCommit"
    assert world.log(place).end_offset == 2, "one marker"
