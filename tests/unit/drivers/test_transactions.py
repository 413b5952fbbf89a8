"""What a transaction coordinator takes up when its shard is loaded, and what it leaves to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.drivers.replicated import TRANSACTIONS, Replicated
from tests.unit.handlers.test_transaction_apis import T0, opened

from penstock.drivers.shards import RECORDS_A_TURN
from penstock.drivers.transactions import NEWS_MS
from penstock.metadata import layout
from penstock.metadata.image import TopicImage
from penstock.peers.transactions import ClusterMarkers

LATE = ("late", 0)


@pytest.fixture
def world(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def test_a_coordinator_that_resigned_completes_nothing_more(world: Replicated) -> None:
    """It completes in several turns; in the epoch after it the producer may have begun its next transaction."""
    ids = [f"x{number}" for number in range(RECORDS_A_TURN + 5)]
    stamps = [world.requests.init(one) for one in ids]
    world.lead(TRANSACTIONS)
    for one, stamp in zip(ids, stamps, strict=True):
        world.end_transaction(
            one, stamp.producer_id, stamp.epoch, commit=False
        )  # nothing was added: no marker to wait for
    world.lead(TRANSACTIONS)
    partition = world.at(TRANSACTIONS)
    before = partition.log.end_offset
    partition.fetched_by(2, 1, before, 0, world.clock.monotonic_ms())
    world.services.produce_waits.changed(TRANSACTIONS)
    world.services.produce_waits.check()
    assert partition.log.end_offset == before + RECORDS_A_TURN
    world.lead(TRANSACTIONS)
    assert partition.log.end_offset == before + RECORDS_A_TURN
    world.fetch_all(TRANSACTIONS)
    world.fetch_all(TRANSACTIONS)
    assert partition.log.end_offset == before + len(ids), "each completion once"
    assert {world.state(one) for one in ids} == {"CompleteAbort"}


# Partitions that the image lacks.
def loaded_without(world: Replicated, monkeypatch: pytest.MonkeyPatch) -> TopicImage:
    """In a cluster: a new controller gave the shard to a broker that knows nothing yet of a topic with an open transaction."""

    def nobody(_broker_id: int) -> Any:
        raise AssertionError("every partition is led here")

    writer = ClusterMarkers(1, world.loop, world.image, world.services.markers, nobody)
    monkeypatch.setattr(world.transactions, "_marker_writer", writer)
    monkeypatch.setattr(world.transactions, "_is_in_cluster", True)
    world.create_topic("late")
    stamp = opened(world, T0, LATE)
    world.lead(TRANSACTIONS)
    world.end_transaction("x", stamp.producer_id, stamp.epoch, commit=True)
    late = world.image.topics.pop("late")
    world.lead(TRANSACTIONS)
    world.fetch_all(TRANSACTIONS)
    world.loop.advance(NEWS_MS // 2)
    assert world.log(T0).end_offset == 1
    assert world.log(TRANSACTIONS).end_offset == world.log(TRANSACTIONS).high_watermark, "it is not completed without"
    assert world.log(LATE).end_offset == 0
    return late


def test_a_topic_that_the_broker_is_yet_to_be_told_of_gets_its_marker(
    world: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = loaded_without(world, monkeypatch)
    world.image.tell_partitions(late.name, late.topic_id, late.partitions, {})
    world.image.told += 1
    world.loop.advance(1_000)
    world.fetch_all(TRANSACTIONS)
    assert world.state() == "CompleteCommit"
    assert world.log(LATE).end_offset == 1


def test_who_hears_of_configurations_or_failed_disks_was_not_told_of_topics(
    world: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_without(world, monkeypatch)
    world.image.take_config(layout.topic_config_path("t"), layout.encode_config({"retention.ms": "1"}))
    world.image.set_offline([("t", 1)], 2)
    world.loop.advance(1_000)
    world.fetch_all(TRANSACTIONS)
    assert world.state() == "PrepareCommit"


@pytest.mark.parametrize("is_told", [True, False])
def test_a_topic_that_is_gone_keeps_no_transaction_from_its_end(
    world: Replicated, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    loaded_without(world, monkeypatch)
    if is_told:
        world.image.told += 1
    world.loop.advance(1_000 if is_told else NEWS_MS)
    world.fetch_all(TRANSACTIONS)
    assert world.state() == "CompleteCommit"
    assert world.log(LATE).end_offset == 0
