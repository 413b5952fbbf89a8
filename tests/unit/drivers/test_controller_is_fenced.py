"""Two controllers on one store: who was replaced without hearing of it changes nothing, and stops when it finds out."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.tree_sessions import TreeServer
from tests.unit.controller.world import broker
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.controller.errors import NotControllerError
from penstock.controller.peer_requests import IsrChange, IsrMember, IsrRequest, PeerAnswer, PeerRequest
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.controller import Controller
from penstock.metadata import layout
from penstock.metadata.layout import PartitionState, TopicNode
from penstock.metadata.store import Create, Node, Read, ReadKind, SessionChanged, SessionState, SetData

TOPIC_ID = uuid.UUID(int=7)
STATE = layout.state_path("t", 0)


class Channel:
    """Every broker hears everything at once, but those who are `deaf` for now."""

    def __init__(self) -> None:
        self.sent: list[PeerRequest] = []
        self.sent_to: dict[int, list[PeerRequest]] = {}
        self.deaf: dict[int, list[Callable[[PeerAnswer], object]]] = {}
        self.forgotten: list[int] = []

    def send(self, broker_id: int, request: PeerRequest, done: Callable[[PeerAnswer], object]) -> None:
        self.sent.append(request)
        self.sent_to.setdefault(broker_id, []).append(request)
        if broker_id in self.deaf:
            self.deaf[broker_id].append(done)
        else:
            done(PeerAnswer())

    def hear(self, broker_id: int) -> None:
        for done in self.deaf.pop(broker_id):
            done(PeerAnswer())

    def forget(self, broker_id: int) -> None:
        self.forgotten.append(broker_id)

    def log_ends(self, broker_id: int, partitions: Any, done: Callable[[Any], object]) -> None: ...


class Process:
    """A broker as far as it is a controller; its registration does not depend on its session."""

    def __init__(self, node_id: int, server: TreeServer, clock: ManualClock) -> None:
        self.loop = ManualLoop(clock)
        self.session = server.open()
        store = ClusterStore(self.session, self.loop)
        self.session.notify = lambda: self.loop.call_soon(store.hand_out)
        self.channel = Channel()
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.controller = Controller(
            node_id=node_id,
            loop=self.loop,
            clock=clock,
            store=store,
            channel=self.channel,
            log_values={},
            topic_configs=self.topic_configs,
        )


class World:
    def __init__(self) -> None:
        self.server = TreeServer()
        clock = ManualClock()
        state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2))
        for operation in (
            *(Create(path=path) for path in layout.PERMANENT),
            *(Create(path=layout.broker_path(one), data=layout.encode_broker(broker(one), 0)) for one in (1, 2)),
            Create(
                path=layout.topic_path("t"),
                data=layout.encode_topic(TopicNode(topic_id=TOPIC_ID, replicas={0: (1, 2)})),
            ),
            Create(path="/brokers/topics/t/partitions"),
            Create(path="/brokers/topics/t/partitions/0"),
            Create(path=STATE, data=layout.encode_state(state)),
        ):
            self.server.commit((operation,), 0)
        self.first, self.second = (Process(one, self.server, clock) for one in (1, 2))
        for process in (self.first, self.second):
            process.controller.start()
            process.loop.turn()
        assert self.first.controller.is_active
        assert not self.second.controller.is_active

    def read(self, path: str) -> Node:
        found = self.server.tree.read(Read(kind=ReadKind.DATA, path=path), 0)
        assert isinstance(found, Node)
        return found

    def write(self, *operations: Create | SetData) -> None:
        """As another broker does."""
        for operation in operations:
            self.server.commit((operation,), 0)
        self.first.loop.turn()

    def replace_first(self) -> None:
        """The first one's session ends, of which it does not hear, and the second is elected."""
        self.server.end(self.first.session)
        self.second.loop.turn()
        assert self.second.controller.is_active
        assert self.first.controller.is_active, "it does not know yet"

    def shrink(self, process: Process) -> list[Any]:
        """Broker 1 asks for an ISR of its own."""
        member = IsrMember(broker_id=1, broker_epoch=self.read(layout.broker_path(1)).stat.created_zxid)
        change = IsrChange(
            topic_id=TOPIC_ID,
            partition=0,
            leader_epoch=0,
            partition_epoch=self.read(STATE).stat.version,
            new_isr=(member,),
        )
        request = IsrRequest(broker_id=1, broker_epoch=member.broker_epoch, changes=(change,))
        answers: list[Any] = []
        process.controller.alter_partition(request, answers.append)
        process.loop.turn()
        return answers


@pytest.fixture
def world() -> World:
    return World()


def test_the_controller_writes_while_it_is_the_last_one_elected(world: World) -> None:
    ((answer,),) = world.shrink(world.first)
    assert (answer.error, answer.isr) == (None, (1,))
    assert layout.decode_state(STATE, world.read(STATE).data).isr == (1,)


def test_a_controller_that_was_replaced_without_hearing_of_it_writes_nothing_and_stops(world: World) -> None:
    # KAFKA-1483, 6082, 4447
    world.replace_first()
    before, said = world.read(STATE), len(world.first.channel.sent)
    (refused,) = world.shrink(world.first)
    assert isinstance(refused, NotControllerError)
    assert world.read(STATE) == before
    assert not world.first.controller.is_active
    world.first.loop.advance(60_000)
    assert len(world.first.channel.sent) == said, "and says nothing more"
    assert world.second.controller.is_active
    ((answer,),) = world.shrink(world.second)
    assert answer.isr == (1,)


def test_every_controller_has_an_epoch_of_its_own_in_all_that_it_says(world: World) -> None:
    # KAFKA-1188
    world.replace_first()
    told = {process: {one.controller_epoch for one in process.channel.sent} for process in (world.first, world.second)}
    assert told == {world.first: {1}, world.second: {2}}


def test_a_session_that_ended_ends_the_office_at_once(world: World) -> None:
    # KAFKA-4447
    world.server.end(world.first.session)
    world.first.session.expire()
    world.first.loop.turn()
    assert not world.first.controller.is_active
    (refused,) = world.shrink(world.first)
    assert isinstance(refused, NotControllerError)


def test_a_controller_that_fails_gives_the_office_to_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_anything: object, **_more: object) -> None:
        raise ValueError("a mistake in the code")

    monkeypatch.setattr("penstock.drivers.controller.tell_everything", fail)
    world.first.controller.elect_preferred([], lambda _error: None)
    world.first.session.tell(SessionChanged(state=SessionState.CONNECTED))
    world.first.loop.turn()
    monkeypatch.undo()
    world.second.loop.turn()
    world.first.loop.advance(10_000)
    assert world.second.controller.is_active
    assert not world.first.controller.is_active
