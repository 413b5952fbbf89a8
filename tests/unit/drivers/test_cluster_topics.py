"""When a topic of a cluster counts as made: when the controller gave it leaders, and not because time passed."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.unit.controller.world import broker
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.base.files import SystemFiles
from penstock.controller.topics import NewTopic, TopicDefaults
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.cluster_topics import WAIT_MS, ClusterTopics
from penstock.metadata import layout
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.store import (
    BadVersionError,
    Create,
    Event,
    LateError,
    StoreError,
    Transaction,
)

TOPIC_ID = uuid.UUID(int=7)


class Tree(EmbeddedStore):
    """A tree with a session that never ends."""

    session_id = 1

    def alive(self) -> None: ...

    def take_events(self) -> list[Event]:
        self.synced(self.journal_position)
        return super().take_events()


class World:
    def __init__(self, directory: Path) -> None:
        clock = ManualClock()
        self.loop = ManualLoop(clock)
        self.tree = tree = Tree(SystemFiles(), str(directory), clock)
        for path in layout.PERMANENT:
            tree.submit(Transaction(operations=(Create(path=path),)))
        tree.take_events()
        self.image = Image()
        self.image.brokers = {1: broker(1)}
        defaults = TopicDefaults(partitions=1, replication_factor=1, log_values={})
        self.topics = ClusterTopics(self.image, ClusterStore(tree, self.loop), defaults, lambda: TOPIC_ID, self.loop)
        self.outcomes: list[StoreError | None] = []
        self.topics.create(self.topics.decide(NewTopic(name="t")), self.outcomes.append)
        self.loop.turn()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_topic_is_made_when_it_has_leaders(world: World) -> None:
    assert world.outcomes == []
    for leader, made in ((-1, []), (1, [None])):
        world.image.tell_partitions("t", TOPIC_ID, {0: PartitionImage((1,), leader, 0, (1,), 0)}, {})
        world.topics.follow(["t"])
        assert world.outcomes == made
    world.loop.advance(WAIT_MS)
    assert len(world.outcomes) == 1


def test_a_topic_without_leaders_in_time_is_not_called_made(world: World) -> None:
    world.loop.advance(WAIT_MS - 1)
    assert world.outcomes == []
    world.loop.advance(1)
    (error,) = world.outcomes
    assert isinstance(error, LateError)


def test_a_configuration_is_seen_by_the_next_change_before_any_news_of_it_comes(world: World) -> None:
    world.image.tell_partitions("t", TOPIC_ID, {0: PartitionImage((1,), 1, 0, (1,), 0)}, {})
    world.topics.follow(["t"])
    topic = world.image.topics["t"]
    for key in ("retention.ms", "flush.ms"):
        config = {**world.image.topic_configs.get("t", {}), key: "5"}
        world.topics.submit(world.topics.decide_config(topic, config), world.outcomes.append)
        world.loop.turn()
    assert world.outcomes == [None, None, None]
    assert world.image.topic_configs["t"] == {"retention.ms": "5", "flush.ms": "5"}


def test_a_broker_whose_view_is_old_gives_no_partition_to_others(world: World) -> None:
    """It would write the topic as it knows it, with another place for what somebody else has added since."""
    world.image.brokers = {1: broker(1), 2: broker(2)}
    world.image.tell_partitions("t", TOPIC_ID, {0: PartitionImage((1,), 1, 0, (1,), 0)}, {})
    world.topics.follow(["t"])
    topic = world.image.topics["t"]
    outcomes: list[StoreError | None] = []
    for replicas in (1, 2):
        grown = world.topics.decide_grow(topic, 2, [(replicas,)])
        world.topics.submit(grown, outcomes.append)
        world.loop.turn()
    (error,) = outcomes
    assert isinstance(error, BadVersionError)
    path = layout.topic_path("t")
    (data,) = [node.data for node in world.tree.nodes() if node.path == path]
    assert layout.decode_topic(path, data).replicas == {0: (1,), 1: (1,)}
