"""What the controller does when a topic's configuration changes while nobody leads it."""

from __future__ import annotations

import pytest
from tests.unit.drivers.test_controller_is_fenced import STATE, World

from penstock.metadata import layout
from penstock.metadata.layout import NO_LEADER, PartitionState
from penstock.metadata.store import Delete, SetData


def leaderless() -> World:
    """Only broker 1 was in sync, and it is gone."""
    world = World()
    alone = PartitionState(leader=NO_LEADER, leader_epoch=1, isr=(1,))
    world.server.commit((SetData(path=STATE, data=layout.encode_state(alone)),), 0)
    world.server.commit((Delete(path=layout.broker_path(1)),), 0)
    world.replace_first()
    assert layout.decode_state(STATE, world.read(STATE).data).leader == NO_LEADER
    return world


@pytest.mark.parametrize(("value", "leader"), [("true", 2), ("false", NO_LEADER)])
def test_a_topic_that_may_have_an_unclean_leader_from_now_on_has_one_at_once(value: str, leader: int) -> None:
    world = leaderless()
    controller = world.second.controller
    controller.cluster.image.topic_configs["t"] = {"unclean.leader.election.enable": value}
    said = len(world.second.channel.sent)
    controller.configs_changed({"t"})
    world.second.loop.turn()
    assert layout.decode_state(STATE, world.read(STATE).data).leader == leader
    assert (len(world.second.channel.sent) > said) == (leader != NO_LEADER)


def test_other_topics_stay_as_they_are() -> None:
    world = leaderless()
    controller = world.second.controller
    controller.cluster.image.topic_configs["t"] = {"unclean.leader.election.enable": "true"}
    controller.configs_changed({"another"})
    world.second.loop.turn()
    assert layout.decode_state(STATE, world.read(STATE).data).leader == NO_LEADER
