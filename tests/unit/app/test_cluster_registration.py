"""How a broker enters the store: over its own node of an earlier session, and not over anybody else's."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.tree_sessions import TreeServer, TreeSession
from tests.unit.controller.world import broker
from tests.unit.handlers.world import ManualLoop

from penstock.app.cluster_registration import BrokerIdTakenError, ClusterRegistration
from penstock.base.clock import ManualClock
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.steps import run_steps
from penstock.metadata import layout
from penstock.metadata.store import Create

TIMEOUT_MS = 6_000


class Life:
    """One process of broker 1."""

    def __init__(self, server: TreeServer, files: ForgetfulFiles) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.session: TreeSession = server.open()
        store = ClusterStore(self.session, self.loop)
        self.session.notify = lambda: self.loop.call_soon(store.hand_out)
        self.registration = ClusterRegistration(
            store=store,
            loop=self.loop,
            clock=self.clock,
            files=cast(Any, files),
            session_timeout_ms=TIMEOUT_MS,
            new_id=lambda: None,  # type: ignore[arg-type,return-value]
        )
        self.outcomes: list[int | Exception] = []

    def register(self) -> None:
        async def registered() -> None:
            try:
                self.outcomes.append(await self.registration.register(broker(1), "/data"))
            except Exception as error:
                self.outcomes.append(error)

        run_steps(registered(), lambda _none: None)
        self.loop.turn()


class World:
    def __init__(self) -> None:
        self.server = TreeServer()
        self.files = ForgetfulFiles()
        self.files.make_directory("/data")
        for path in layout.PERMANENT:
            self.server.commit((Create(path=path),), 0)

    def begin(self) -> Life:
        return Life(self.server, self.files)


@pytest.fixture
def world() -> World:
    return World()


def test_a_quick_restart_removes_what_its_own_last_session_left(world: World) -> None:
    # KAFKA-992, 1029
    first = world.begin()
    first.register()
    path = layout.CONTROLLER
    world.server.commit(
        (Create(path=path, data=layout.encode_controller(1, 0), ephemeral=True),), first.session.session_id
    )
    second = world.begin()
    second.register()
    ((first_life,), (second_life,)) = first.outcomes, second.outcomes
    assert isinstance(first_life, int)
    assert isinstance(second_life, int)
    assert second_life > first_life
    left = world.server.tree.ephemerals(first.session.session_id)
    assert list(left) == [], "neither its registration nor its office"
    world.server.end(first.session)
    assert list(world.server.tree.ephemerals(second.session.session_id)) == [layout.broker_path(1)]


def test_anybody_elses_node_is_waited_for_and_then_respected(world: World) -> None:
    first = world.begin()
    first.register()
    world.files.remove("/data/.penstock-session")  # another disk
    second = world.begin()
    second.register()
    second.loop.advance(TIMEOUT_MS)
    assert second.outcomes == [], "it waits"
    second.loop.advance(TIMEOUT_MS)
    assert [type(one) for one in second.outcomes] == [BrokerIdTakenError]
    third = world.begin()
    world.files.remove("/data/.penstock-session")
    third.register()
    world.server.end(first.session)
    third.loop.advance(1_000)
    assert [type(one) for one in third.outcomes] == [int]
