"""What the controller tells brokers, whom first, and who hears of an election only when they know."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.unit.controller.world import broker
from tests.unit.drivers.test_controller_is_fenced import STATE, World

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.peer_requests import (
    LEADER_DURING_DELETION,
    LeaderAndIsr,
    PartitionState,
    PeerAnswer,
    RequestType,
    UpdateMetadata,
)
from penstock.drivers.controller import TELL_MS_MAX
from penstock.metadata import layout
from penstock.metadata.layout import TopicNode
from penstock.metadata.store import (
    ConnectionLostError,
    Create,
    Delete,
    Read,
    ReadKind,
    SessionChanged,
    SessionState,
    SetData,
)

T0 = TopicPartition("t", 0)


def leave(world: World) -> None:
    """Broker 2 dies."""
    world.server.commit((Delete(path=layout.broker_path(2)),), 0)
    world.first.loop.turn()


def come_back(world: World) -> None:
    world.write(Create(path=layout.broker_path(2), data=layout.encode_broker(broker(2), 0)))


def told_of(world: World, broker_id: int) -> Iterator[PartitionState]:
    """The partition's states that clients' metadata was made of at a broker, the latest first."""
    for request in reversed(world.first.channel.sent_to[broker_id]):
        yield from request.partitions if isinstance(request, UpdateMetadata) else ()


def test_a_broker_that_is_back_is_told_everything_before_anything_else() -> None:
    """With its first news of partitions it answers clients, and loads what it coordinates: it must not take those for all there is."""
    world = World()
    leave(world)
    world.first.channel.sent_to.clear()
    come_back(world)
    roles, news = world.first.channel.sent_to[2][:2]
    assert isinstance(roles, LeaderAndIsr)
    assert roles.type is RequestType.FULL
    assert isinstance(news, UpdateMetadata)
    assert [one.topic_partition for one in news.partitions] == [T0]


def test_a_replica_on_a_broker_that_is_back_is_offline_no_more_though_nothing_else_changed() -> None:
    """A client that asks for an unclean election would be told that no replica is alive."""
    world = World()
    leave(world)
    assert next(told_of(world, 1)).offline_replicas == (2,)
    come_back(world)
    state = next(told_of(world, 1))
    assert (state.leader, state.isr, state.offline_replicas) == (1, (1,), ())


def test_a_topic_that_goes_is_not_told_of_as_if_it_stayed() -> None:
    world = World()
    leave(world)
    world.write(Create(path=layout.deletion_mark("t")))
    world.first.channel.sent_to.clear()
    come_back(world)
    assert {one.leader for one in told_of(world, 1)} == {LEADER_DURING_DELETION}


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
@pytest.mark.parametrize("hears", [True, False])
def test_an_election_is_answered_when_every_broker_knows_of_it_or_it_takes_too_long(kind: str, hears: bool) -> None:
    world = World()
    leader = 2 if kind == "preferred" else layout.NO_LEADER
    isr = (1, 2) if kind == "preferred" else (3,)
    state = layout.PartitionState(leader=leader, leader_epoch=1, isr=isr)
    world.server.commit((SetData(path=STATE, data=layout.encode_state(state)),), 0)
    world.replace_first()
    process = world.second
    process.channel.deaf[1] = []
    answers: list[PenstockError | None] = []
    controller = process.controller
    (controller.elect_preferred if kind == "preferred" else controller.elect_unclean)([T0], answers.append)
    process.loop.turn()
    assert layout.decode_state(STATE, world.read(STATE).data).leader == 1
    assert answers == [], "broker 1 would still tell of the old leader"
    if hears:
        process.channel.hear(1)
    else:
        process.loop.advance(TELL_MS_MAX)
    assert answers == [None]


@pytest.mark.parametrize("how", ["another controller", "an answer of the store is lost"])
def test_who_missed_a_deletion_hears_of_it_in_the_next_full_account(how: str) -> None:
    """Broker 3 has nothing of the topic, and takes long for what it is told before: nobody waits for it."""
    world = World()
    world.write(Create(path=layout.broker_path(3), data=layout.encode_broker(broker(3), 0)))
    process = world.first
    process.channel.deaf[3] = []
    come_back(world)
    world.write(Create(path=layout.deletion_mark("t")))
    process.loop.advance(100)
    assert world.server.tree.read(Read(kind=ReadKind.CHILDREN, path=layout.TOPICS), 0) == ()
    if how == "another controller":
        world.replace_first()
        process = world.second
    else:
        process.controller._failed("what it did", ConnectionLostError("gone"))
        process.channel.hear(3)
    process.loop.advance(2_000)
    account = process.channel.sent_to[3][-1]
    assert isinstance(account, UpdateMetadata)
    assert (account.type, account.partitions) == (RequestType.FULL, ())


class Failing:
    """Topic `u`, and a broker 1 of which a log directory fails, told that each time that it is told of what lay there."""

    def __init__(self, directories: int) -> None:
        self.world = World()
        node = TopicNode(topic_id=uuid.UUID(int=8), replicas={0: (1, 2), 1: (1, 2)})
        self.world.write(Create(path=layout.topic_path("u"), data=layout.encode_topic(node)))
        self.channel = self.world.first.channel
        self.unanswered = self.channel.deaf[1] = []
        event = layout.encode_log_directory_event(1)
        for _ in range(directories):
            path = f"{layout.LOG_DIRECTORY_EVENTS}/log_dir_event_"
            self.world.write(Create(path=path, data=event, sequential=True))

    def answer_roles(self, *lost: int) -> None:
        """Answers what is asked up to the next roles, and those with an error for each of these partitions."""
        offline = StorageError("its directory is offline")
        while not isinstance(self.channel.sent_to[1][-1], LeaderAndIsr):
            self.unanswered.pop()(PeerAnswer())
        self.unanswered.pop()(PeerAnswer(partition_errors={TopicPartition("u", number): offline for number in lost}))
        self.world.first.loop.turn()

    def leaders(self) -> list[int]:
        paths = [layout.state_path("u", number) for number in (0, 1)]
        return [layout.decode_state(path, self.world.read(path).data).leader for path in paths]


def test_a_second_directory_that_fails_while_the_first_is_being_seen_to_is_seen_to_as_well() -> None:
    failing = Failing(directories=2)
    failing.answer_roles(0)
    failing.answer_roles(0, 1)
    assert failing.leaders() == [2, 2]


def test_a_failed_directory_is_seen_to_once() -> None:
    """Who is told of what lay there answers with the same errors again: nobody is told anything for that."""
    failing = Failing(directories=1)
    failing.answer_roles(0)
    assert failing.leaders() == [2, 1]
    failing.answer_roles(0)
    while failing.unanswered:
        request = failing.channel.sent_to[1][-1]
        assert not isinstance(request, LeaderAndIsr), "it was told of its roles, and of the change"
        failing.unanswered.pop()(PeerAnswer())
        failing.world.first.loop.turn()


def test_what_a_failed_directory_leaves_without_a_leader_is_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other replica may have lost records: after `unclean.recovery.timeout.ms` the longest log leads, whoever comes or goes."""
    world = World()
    process, channel = world.first, world.first.channel
    process.topic_configs["t"] = {"min.insync.replicas": "2"}
    untrusted = {"log_generations": {"1": "g", "2": "older"}, "eligible": [2]}
    data = layout.encode_state(layout.PartitionState(leader=1, leader_epoch=1, isr=(1,), extra=untrusted))
    world.write(SetData(path=STATE, data=data))
    process.session.tell(SessionChanged(state=SessionState.CONNECTED))  # it reads that
    process.loop.turn()
    asked: list[int] = []
    monkeypatch.setattr(channel, "log_ends", lambda broker_id, _partitions, _done: asked.append(broker_id))
    unanswered = channel.deaf[1] = []
    event = layout.encode_log_directory_event(1)
    world.write(Create(path=f"{layout.LOG_DIRECTORY_EVENTS}/log_dir_event_", data=event, sequential=True))
    assert isinstance(channel.sent_to[1][-1], LeaderAndIsr)
    unanswered.pop()(PeerAnswer(partition_errors={T0: StorageError("its directory is offline")}))
    process.loop.turn()
    assert layout.decode_state(STATE, world.read(STATE).data).leader == -1
    process.loop.advance(400_000)
    assert asked[:1] == [2]
