"""A failed log directory is told of, however long the store is away when it fails."""

from __future__ import annotations

from tests.support.tree_sessions import TreeServer
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.directory_events import DirectoryEvents
from penstock.metadata import layout
from penstock.metadata.store import Read, ReadKind, SessionChanged, SessionState


class World:
    def __init__(self) -> None:
        self.server = TreeServer()
        for operation in layout.permanent_nodes(()):
            self.server.commit((operation,), 0)
        self.loop = ManualLoop(ManualClock())
        self.session = self.server.open()
        store = ClusterStore(self.session, self.loop)
        self.session.notify = lambda: self.loop.call_soon(store.hand_out)
        self.events = DirectoryEvents(3, store, self.loop)

    def becomes(self, state: SessionState) -> None:
        self.session.tell(SessionChanged(state=state))
        self.loop.turn()

    def told(self) -> list[int]:
        parent = layout.LOG_DIRECTORY_EVENTS
        names = self.server.tree.read(Read(kind=ReadKind.CHILDREN, path=parent), 0)
        assert isinstance(names, tuple)
        nodes = [self.server.tree.read(Read(kind=ReadKind.DATA, path=f"{parent}/{name}"), 0) for name in names]
        return [layout.decode_log_directory_event(parent, node.data) for node in nodes]  # type: ignore[union-attr]


def test_it_is_told_once() -> None:
    world = World()
    world.events.tell()
    world.loop.advance(60_000)
    assert world.told() == [3]


def test_it_is_told_when_the_store_is_back() -> None:
    world = World()
    world.becomes(SessionState.SUSPENDED)
    world.events.tell()
    world.loop.advance(60_000)
    assert world.told() == []
    world.becomes(SessionState.CONNECTED)
    world.loop.advance(1_000)
    assert world.told() == [3]


def test_a_broker_that_stops_tells_nothing_more() -> None:
    world = World()
    world.becomes(SessionState.SUSPENDED)
    world.events.tell()
    world.loop.turn()
    world.events.stop()
    world.becomes(SessionState.CONNECTED)
    world.loop.advance(1_000)
    assert world.told() == []
