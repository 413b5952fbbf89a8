"""A version's schema is loaded off the loop when it is first used; nothing else about its requests changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.handlers.world import Answer, World, shape
from tests.unit.server.test_connection import FakeTransport, connected, frame, receive

from penstock.handlers.api import Api, Peer
from penstock.server.dispatch import Dispatcher, Waiting

HEARTBEAT = 12


class Threads:
    """Jobs wait until they are run."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], object], Callable[[object], object]]] = []

    def run_in_thread(self, job: Callable[[], object], done: Callable[[object], object]) -> None:
        self.jobs.append((job, done))

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            done(job())


class Closable:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def close(self, reason: str) -> None:
        self.reasons.append(reason)


def heartbeat(world: World, version: int) -> bytes:
    request = shape(HEARTBEAT, version).make(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    return world.frame(HEARTBEAT, version, request)


def test_the_first_request_of_a_version_waits_for_its_schema(tmp_path: Path) -> None:
    world, threads = World(tmp_path), Threads()
    dispatcher = Dispatcher(world.apis, world.services, threads.run_in_thread)
    peer = Peer("PLAINTEXT", "127.0.0.1", Closable())
    first, second = (dispatcher.dispatch(heartbeat(world, 3), peer) for _ in range(2))
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    answers = [Answer(HEARTBEAT, 3, 4, outcome) for outcome in (first, second)]
    assert not any(answer.is_there for answer in answers)
    threads.run()
    assert [answer.read().error_code for answer in answers] == [answers[0].read().error_code] * 2
    assert isinstance(dispatcher.dispatch(heartbeat(world, 3), peer), bytes)
    assert isinstance(dispatcher.dispatch(heartbeat(world, 2), peer), Waiting)


def test_what_comes_behind_a_request_that_waits_for_its_schema_is_handled_after_it(tmp_path: Path) -> None:
    """A leave that overtakes a commit would make it one of nobody."""
    world, threads = World(tmp_path), Threads()
    order: list[str] = []
    apis = {key: api._replace(handle=_noted(order, api)) for key, api in world.apis.items()}
    dispatcher = Dispatcher(apis, world.services, threads.run_in_thread)
    transport = FakeTransport()
    made = connected(dispatcher.dispatch, transport)
    known = world.frame(18, 0, shape(18, 0).make())
    receive(made, frame(known))
    threads.run()
    assert order == ["ApiVersions"]
    receive(made, frame(heartbeat(world, 3)) + frame(known) + frame(heartbeat(world, 2)) + frame(known))
    assert order == ["ApiVersions"], "nothing overtakes the first heartbeat"
    threads.run()
    assert order == ["ApiVersions", "Heartbeat", "ApiVersions"]
    threads.run()
    assert order == ["ApiVersions", "Heartbeat", "ApiVersions", "Heartbeat", "ApiVersions"]
    assert not made.is_busy
    assert transport.reading


def _noted(order: list[str], api: Api) -> Callable[[Any, Any], Any]:
    def handle(request: Any, context: Any) -> Any:
        order.append(api.name)
        return api.handle(request, context)

    return handle


def test_bytes_that_cannot_be_read_close_the_connection_all_the_same(tmp_path: Path) -> None:
    world, threads, connection = World(tmp_path), Threads(), Closable()
    dispatcher = Dispatcher(world.apis, world.services, threads.run_in_thread)
    dispatcher.dispatch(heartbeat(world, 3)[:-3], Peer("PLAINTEXT", "127.0.0.1", connection))
    threads.run()
    assert len(connection.reasons) == 1


def test_a_client_that_left_meanwhile_is_not_served(tmp_path: Path) -> None:
    world, threads, connection = World(tmp_path), Threads(), Closable()
    dispatcher = Dispatcher(world.apis, world.services, threads.run_in_thread)
    waiting = dispatcher.dispatch(heartbeat(world, 3), Peer("PLAINTEXT", "127.0.0.1", connection))
    assert isinstance(waiting, Waiting)
    waiting.pending.abandon()
    threads.run()
    assert dispatcher.times[HEARTBEAT].requests == {}
