"""When a topic of a cluster counts as made: when the controller gave it leaders, and not because time passed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from tests.unit.controller.world import broker
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.base.errors import ConfigError, PenstockError
from penstock.base.files import SystemFiles
from penstock.controller.errors import InvalidPartitionsError
from penstock.controller.topics import NewTopic, TopicDefaults
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.cluster_topics import WAIT_MS, ClusterTopics
from penstock.metadata import layout
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.store import (
    BadVersionError,
    Create,
    Delete,
    Event,
    LateError,
    NoNodeError,
    SetData,
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
        self.outcomes: list[PenstockError | None] = []
        self.topics.create(self.topics.decide(NewTopic(name="t")), self.outcomes.append)
        self.loop.turn()

    def make(self) -> None:
        """As a controller would."""
        self.image.tell_partitions("t", TOPIC_ID, {0: PartitionImage((1,), 1, 0, (1,), 0)}, {})
        self.topics.follow(["t"])

    def edit(self, key: str) -> Transaction:
        """One more key in the topic's configuration, as this broker knows it."""
        config = {**self.image.topic_configs.get("t", {}), key: "5"}
        return self.topics.decide_config(self.image.topics["t"], config)

    def configure(self, key: str) -> None:
        self.topics.change_config(layout.topic_config_path("t"), lambda: self.edit(key), self.outcomes.append)
        self.loop.turn()

    def data(self, path: str) -> bytes:
        (data,) = [node.data for node in self.tree.nodes() if node.path == path]
        return data

    def config(self) -> dict[str, str]:
        path = layout.topic_config_path("t")
        return layout.decode_config(path, self.data(path))


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


def test_what_another_broker_changed_in_a_configuration_is_not_undone(world: World) -> None:
    """Each of the two knows only of what it did itself: no news of the other's change came."""
    world.make()
    world.configure("retention.ms")
    stale = dict(world.image.topic_configs)
    world.configure("flush.ms")
    world.image.topic_configs.clear()
    world.image.topic_configs.update(stale)
    world.configure("segment.ms")
    assert world.outcomes == [None] * 4
    assert world.config() == {"retention.ms": "5", "flush.ms": "5", "segment.ms": "5"}
    assert world.image.topic_configs["t"] == world.config()


def test_a_configuration_that_changes_between_reading_and_writing_is_read_again(world: World) -> None:
    world.make()
    path = layout.topic_config_path("t")
    others = [{"flush.ms": "1"}, {"flush.ms": "2"}]

    def decide() -> Transaction:
        decided = world.edit("retention.ms")
        if others:  # another broker is quicker
            data = layout.encode_config(others.pop(0))
            world.tree.submit(Transaction(operations=(SetData(path=path, data=data),)))
        return decided

    world.topics.change_config(path, decide, world.outcomes.append)
    world.loop.turn()
    assert world.outcomes == [None, None]
    assert world.config() == {"flush.ms": "2", "retention.ms": "5"}


def test_a_topic_that_is_gone_gets_no_configuration(world: World) -> None:
    """It would be that of the next one with this name."""
    world.make()
    paths = (layout.topic_config_path("t"), layout.topic_path("t"))
    world.tree.submit(Transaction(operations=tuple(Delete(path=path) for path in paths)))
    world.configure("retention.ms")
    assert isinstance(world.outcomes[-1], NoNodeError)
    assert paths[0] not in [node.path for node in world.tree.nodes()]


def test_what_cannot_be_decided_is_refused(world: World) -> None:
    world.make()
    before = world.config()

    def refuse() -> Transaction:
        raise ConfigError("no")

    world.topics.change_config(layout.topic_config_path("t"), refuse, world.outcomes.append)
    world.loop.turn()
    assert isinstance(world.outcomes[-1], ConfigError)
    assert world.config() == before


def test_keys_of_others_stay_where_a_node_is_written_anew(world: World) -> None:
    world.make()
    for path in (layout.topic_config_path("t"), layout.topic_path("t")):
        known = json.loads(world.data(path))
        world.tree.submit(
            Transaction(operations=(SetData(path=path, data=json.dumps({**known, "later": [1]}).encode()),))
        )
    world.configure("retention.ms")
    world.topics.submit(world.topics.decide_grow(world.image.topics["t"], 2, [(1,)]), world.outcomes.append)
    world.loop.turn()
    config, topic = (json.loads(world.data(path)) for path in (layout.topic_config_path("t"), layout.topic_path("t")))
    assert (config["later"], config["config"]) == ([1], {"retention.ms": "5"})
    assert (topic["later"], topic["partitions"]) == ([1], {"0": [1], "1": [1]})


def test_a_topic_whose_first_partition_is_gone_does_not_grow(world: World) -> None:
    """Brokers hear of a deletion partition by partition."""
    world.make()
    topic = world.image.topics["t"]
    with pytest.raises(InvalidPartitionsError, match="is being deleted"):
        world.topics.decide_grow(topic._replace(partitions={1: topic.partitions[0]}), 2, None)


def test_a_broker_whose_view_is_old_gives_no_partition_to_others(world: World) -> None:
    """It would write the topic as it knows it, with another place for what somebody else has added since."""
    world.image.brokers = {1: broker(1), 2: broker(2)}
    world.make()
    topic = world.image.topics["t"]
    outcomes: list[PenstockError | None] = []
    for replicas in (1, 2):
        grown = world.topics.decide_grow(topic, 2, [(replicas,)])
        world.topics.submit(grown, outcomes.append)
        world.loop.turn()
    (error,) = outcomes
    assert isinstance(error, BadVersionError)
    path = layout.topic_path("t")
    assert layout.decode_topic(path, world.data(path)).replicas == {0: (1,), 1: (1,)}
