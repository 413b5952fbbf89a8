"""How a broker enters the store: over its own node of an earlier session, and not over anybody else's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.tree_sessions import TreeServer, TreeSession
from tests.unit.controller.world import broker
from tests.unit.handlers.world import ManualLoop

from penstock.app.cluster_registration import BrokerIdTakenError, ClusterRegistration, node_id_on_disk
from penstock.base.clock import ManualClock
from penstock.base.errors import LogDirectoryError
from penstock.base.files import Lock
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.steps import run_steps
from penstock.metadata import layout
from penstock.metadata.store import Create
from penstock.storage import checkpoints
from penstock.storage.directory_state import DirectoryState

TIMEOUT_MS = 6_000


class Life:
    """One process of broker 1."""

    def __init__(self, server: TreeServer, files: ForgetfulFiles) -> None:
        lock = cast(Lock, None)  # nobody asks for it
        self.directories = [DirectoryState(path, lock, cast(Any, files)) for path in ("/data", "/more")]
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
            new_id=lambda: uuid.UUID(int=5),
        )
        self.outcomes: list[int | str | Exception] = []

    def register(self) -> None:
        self._run(self.registration.register(broker(1), self.directories))

    def find_cluster_id(self, on_disk: str | None) -> None:
        self._run(self.registration.find_cluster_id(on_disk))

    def ask_for_number(self) -> None:
        """Without a turn of the loop."""
        self._begin(self.registration.new_broker_id(1_000))

    def _run(self, work: Coroutine[Any, Any, int | str]) -> None:
        self._begin(work)
        self.loop.turn()

    def _begin(self, work: Coroutine[Any, Any, int | str]) -> None:
        async def told() -> None:
            try:
                self.outcomes.append(await work)
            except Exception as error:
                self.outcomes.append(error)

        run_steps(told(), lambda _none: None)


class World:
    def __init__(self) -> None:
        self.server = TreeServer()
        self.files = ForgetfulFiles()
        for path in ("/data", "/more"):
            self.files.make_directory(path)
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


def test_a_broker_whose_first_directory_failed_is_registered_again(world: World) -> None:
    """It goes on with the others, and its session may end like anybody's."""
    life = world.begin()
    world.files.broken.add("/data")
    life.register()
    life.register()
    assert [type(one) for one in life.outcomes] == [int, int]
    assert life.directories[0].health.failure is not None
    again = world.begin()
    again.register()
    assert [type(one) for one in again.outcomes] == [int], "the other directory remembers it"


def test_nobody_gives_back_the_office_that_he_has_in_this_session(world: World) -> None:
    """A session that is back stands for controller at once, and registers beside that."""
    life = world.begin()
    life.register()
    office = Create(path=layout.CONTROLLER, data=layout.encode_controller(1, 0), ephemeral=True)
    world.server.commit((office,), life.session.session_id)
    life.register()
    assert [type(one) for one in life.outcomes] == [int, int]
    assert layout.CONTROLLER in list(world.server.tree.ephemerals(life.session.session_id))


def test_each_broker_without_a_number_is_given_one_of_its_own(world: World) -> None:
    """Also where another is given one between its look and its write."""
    lives = [world.begin() for _ in range(3)]
    for life in lives:
        life.ask_for_number()
    for life in lives:
        life.loop.turn()
    found = [one for life in lives for one in life.outcomes]
    assert sorted(found, key=str) == [1001, 1002, 1003]


def test_directories_know_the_number_of_their_broker() -> None:
    files = ForgetfulFiles()
    for path in ("/data", "/more"):
        files.make_directory(path)
    paths = ("/gone", "/data", "/more")
    assert node_id_on_disk(cast(Any, files), paths) is None
    checkpoints.write_meta_properties(cast(Any, files), "/more", {"version": "0", "broker.id": "7"})
    assert node_id_on_disk(cast(Any, files), paths) == 7


def test_the_first_broker_gives_the_cluster_its_id_and_the_others_take_it(world: World) -> None:
    first, second = world.begin(), world.begin()
    first.find_cluster_id(None)
    second.find_cluster_id(None)
    assert first.outcomes == second.outcomes
    assert isinstance(first.outcomes[0], str)


def test_directories_of_a_cluster_that_the_store_knows_nothing_of_are_refused(world: World) -> None:
    """With a wrong path in `zookeeper.connect` every log would be nobody's, and be set aside."""
    life = world.begin()
    life.find_cluster_id("of-another-place")
    (refused,) = life.outcomes
    assert isinstance(refused, LogDirectoryError)
    assert "of-another-place" in str(refused)
    life.find_cluster_id(None)
    assert isinstance(life.outcomes[-1], str), "and nothing was written"


def test_every_node_of_kafkas_layout_is_there_from_the_start(world: World) -> None:
    bare = TreeServer()
    life = Life(bare, world.files)
    run_steps(life.registration.make_permanent_nodes(), lambda _none: None)
    life.loop.turn()
    paths = {node.path: node.data for node in bare.tree.walk()}
    assert set(layout.PERMANENT) <= paths.keys()
    assert {"/brokers/seqid", "/isr_change_notification", "/config/ips"} <= paths.keys()
    assert json.loads(paths["/feature"]) == {"features": {}, "version": 2, "status": 1}
