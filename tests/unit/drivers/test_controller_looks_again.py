"""What the controller knows when its connection was gone and it looks at everything again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.world import broker
from tests.unit.drivers.test_controller_is_fenced import STATE, TOPIC_ID, World

from penstock.controller.errors import NotControllerError
from penstock.controller.peer_requests import (
    ControlledShutdown,
    IsrChange,
    IsrMember,
    IsrRequest,
    LeaderAndIsr,
    RequestType,
)
from penstock.metadata import layout
from penstock.metadata.store import Create, Delete, SessionChanged, SessionState


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_broker_that_came_back_meanwhile_is_not_shutting_down_any_more(comes_back: bool) -> None:
    """It would be in no ISR again until it stops once more."""
    world = World()
    path = layout.broker_path(2)
    request = ControlledShutdown(broker_id=2, broker_epoch=world.read(path).stat.created_zxid)
    world.first.controller.shut_down(request, lambda _left: None)
    world.first.loop.turn()
    world.server.tree.drop_watches(world.first.session.session_id)
    if comes_back:
        world.server.commit((Delete(path=path),), 0)
        world.server.commit((Create(path=path, data=layout.encode_broker(broker(2), 0)),), 0)
    world.first.session.tell(SessionChanged(state=SessionState.SUSPENDED))
    world.first.session.tell(SessionChanged(state=SessionState.CONNECTED))
    world.first.loop.turn()
    cluster = world.first.controller.cluster
    assert cluster.image.brokers[2].epoch == world.read(path).stat.created_zxid, "it has looked"
    assert cluster.shutting_down == (set() if comes_back else {2})


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_was_under_way_to_a_broker_that_went_meanwhile_keeps_nothing_from_its_next_life(comes_back: bool) -> None:
    """A machine that lost its power closes no connection: its answer would be waited for until the request times out."""
    world = World()
    channel, session = world.first.channel, world.first.session
    path, data = layout.broker_path(2), layout.encode_broker(broker(2), 0)
    channel.deaf[2] = []
    world.shrink(world.first)
    assert channel.deaf[2], "it was told, and does not answer"

    session.tell(SessionChanged(state=SessionState.SUSPENDED))
    world.first.loop.turn()
    world.server.tree.drop_watches(session.session_id)
    world.server.commit((Delete(path=path),), 0)
    if comes_back:
        world.server.commit((Create(path=path, data=data),), 0)
    channel.sent_to[2].clear()
    session.tell(SessionChanged(state=SessionState.CONNECTED))
    world.first.loop.turn()
    if not comes_back:
        world.write(Create(path=path, data=data))
    roles = channel.sent_to[2][0]
    assert isinstance(roles, LeaderAndIsr)
    assert roles.type is RequestType.FULL
    assert channel.forgotten == [2]


def test_until_it_has_looked_again_it_refuses_nothing_for_certain() -> None:
    """What it was asked for may stand in the store though the answer was lost: who heard that it does not would count on that."""
    world = World()
    world.shrink(world.first)
    controller = world.first.controller
    epochs = {one: world.read(layout.broker_path(one)).stat.created_zxid for one in (1, 2)}
    members = tuple(IsrMember(broker_id=one, broker_epoch=epoch) for one, epoch in epochs.items())
    version = world.read(STATE).stat.version
    change = IsrChange(topic_id=TOPIC_ID, partition=0, leader_epoch=0, partition_epoch=version, new_isr=members)
    request = IsrRequest(broker_id=1, broker_epoch=epochs[1], changes=(change,))
    answers: list[Any] = []

    world.first.session.loses_answers = True
    controller.alter_partition(request, answers.append)
    world.first.loop.turn()
    assert layout.decode_state(STATE, world.read(STATE).data).isr == (1, 2), "it happened"
    controller.shut_down(ControlledShutdown(broker_id=2, broker_epoch=epochs[2]), lambda _left: None)
    controller.alter_partition(request, answers.append)
    world.first.loop.turn()
    assert [type(one) for one in answers] == [NotControllerError, NotControllerError]

    world.first.session.loses_answers = False
    world.first.loop.advance(1_000)
    controller.alter_partition(request, answers.append)
    world.first.loop.turn()
    assert answers[-1][0].isr == (1, 2)
