"""Topics go when every replica has answered, whatever happens to brokers meanwhile."""

from tests.unit.controller.world import broker, make_cluster
from tests.unit.drivers.test_controller_is_fenced import World as Controllers

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.peer_requests import PeerAnswer, PeerRequests
from penstock.drivers.deletions import Deletions
from penstock.metadata import layout
from penstock.metadata.store import Create


class World:
    def __init__(self) -> None:
        self.cluster = make_cluster(1, 2, 3)
        self.cluster.image.deleting = {"t"}
        self.told: list[PeerRequests] = []
        self.ended: list[str] = []
        self.deletions = Deletions(self.told.append, self.ended.append)

    def answer(self, *broker_ids: int, error: StorageError | None = None) -> None:
        for broker_id in broker_ids:
            errors: dict[TopicPartition, PenstockError] = {} if error is None else {TopicPartition("t", 0): error}
            request = self.told[-1].stop_replica[broker_id]
            self.deletions.stopped(broker_id, request, PeerAnswer(partition_errors=errors))


def test_a_topic_is_gone_when_its_last_replica_says_so() -> None:
    world = World()
    world.deletions.start(world.cluster)
    assert sorted(world.told[0].stop_replica) == [1, 2, 3]
    world.deletions.start(world.cluster)
    assert len(world.told) == 1, "told once"
    world.answer(1, 2)
    world.answer(3, error=StorageError("no"))
    assert world.ended == []
    world.answer(3)
    assert world.ended == ["t"]


def test_one_that_is_away_is_waited_for_and_one_that_died_is_told_again() -> None:
    world = World()
    away = world.cluster.image.brokers.pop(3)
    world.deletions.start(world.cluster)
    assert sorted(world.told[0].stop_replica) == sorted(world.told[0].update_metadata) == [1, 2]
    world.answer(1, 2)
    world.deletions.start(world.cluster)
    assert (len(world.told), world.ended) == (1, [])
    world.cluster.image.brokers[3] = away
    world.deletions.start(world.cluster)
    assert len(world.told) == 2
    world.deletions.gone(3)
    world.cluster.image.brokers[3] = broker(3, epoch=2)
    world.deletions.start(world.cluster)
    assert len(world.told) == 3
    world.answer(3)
    assert world.ended == ["t"]


def test_one_that_died_after_it_answered_keeps_nobody_waiting() -> None:
    world = World()
    world.deletions.start(world.cluster)
    world.answer(3)
    world.deletions.gone(3)
    world.answer(1, 2)
    assert world.ended == ["t"]


def test_with_a_topic_its_configuration_goes_and_every_broker_is_told() -> None:
    world = Controllers()
    world.first.topic_configs["t"] = {"retention.ms": "1"}
    config = Create(path=layout.topic_config_path("t"), data=layout.encode_config({"retention.ms": "1"}))
    world.write(config, Create(path=layout.deletion_mark("t")))
    left = {one.path: one.data for one in world.server.tree.walk()}
    assert not {layout.topic_path("t"), config.path, layout.deletion_mark("t")} & left.keys()
    ((path, change),) = ((path, data) for path, data in left.items() if path.startswith(f"{layout.CONFIG_CHANGES}/"))
    assert layout.decode_config_change(path, change) == "topics/t"


def test_a_topic_marked_when_it_was_gone_already_keeps_nothing_up() -> None:
    """Whoever marked it had not heard of its end yet, nor had the controller of that of its configuration."""
    world = Controllers()
    world.first.topic_configs["gone"] = {}
    world.write(Create(path=layout.deletion_mark("gone")))
    assert layout.deletion_mark("gone") not in {one.path for one in world.server.tree.walk()}
