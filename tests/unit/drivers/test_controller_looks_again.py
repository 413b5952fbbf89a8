"""What the controller knows when its connection was gone and it looks at everything again."""

from __future__ import annotations

import pytest
from tests.unit.controller.world import broker
from tests.unit.drivers.test_controller_is_fenced import World

from penstock.controller.peer_requests import ControlledShutdown
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
