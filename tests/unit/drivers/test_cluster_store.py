"""What the store says reaches everybody whom it concerns, whoever fails at it."""

from __future__ import annotations

import pytest
from tests.support.tree_sessions import TreeServer
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.config_changes import ConfigChanges
from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.store import ConnectionLostError, Create, Read, ReadKind, SessionChanged, SessionState, SetData

CHANGE = f"{layout.CONFIG_CHANGES}/config_change_"


def fail() -> None:
    raise OSError(28, "no space left on device")


def test_who_fails_at_an_answer_takes_none_from_others() -> None:
    server, loop = TreeServer(), ManualLoop(ManualClock())
    store = ClusterStore(server.open(), loop)
    store.ask(Read(kind=ReadKind.DATA, path="/a")).when_given(fail)
    heard: list[str] = []
    store.ask(Read(kind=ReadKind.DATA, path="/b")).when_given(lambda: heard.append("b"))
    with pytest.raises(OSError, match="no space"):
        store.hand_out()
    assert heard == ["b"]


@pytest.mark.parametrize("broken", [b"not JSON", b'{"version": 1, "config": []}'])
def test_one_configuration_that_cannot_be_read_stops_no_other(broken: bytes) -> None:
    server, loop, image = TreeServer(), ManualLoop(ManualClock()), Image()
    for operation in layout.permanent_nodes(()):
        server.commit((operation,), 0)
    session = server.open()
    store = ClusterStore(session, loop)
    session.notify = lambda: loop.call_soon(store.hand_out)
    changes = ConfigChanges(store, image, ManualClock(), lambda _topics: None)
    changes.start()
    loop.turn()

    def write(topic: str, data: bytes) -> None:
        path = layout.topic_config_path(topic)
        one = SetData(path=path, data=data) if topic in known else Create(path=path, data=data)
        known.add(topic)
        notice = layout.encode_config_change(f"topics/{topic}")
        server.commit((one, Create(path=CHANGE, data=notice, sequential=True)), 0)

    known: set[str] = set()
    write("a", layout.encode_config({"retention.ms": "1"}))
    loop.turn()
    write("a", broken)
    server.commit((Create(path=CHANGE, data=b"not JSON either", sequential=True),), 0)
    write("b", layout.encode_config({"retention.ms": "2"}))
    loop.turn()
    assert image.topic_configs == {"a": {"retention.ms": "1"}, "b": {"retention.ms": "2"}}
    server.commit((SetData(path=layout.topic_config_path("b"), data=layout.encode_config({})),), 0)
    session.tell(SessionChanged(state=SessionState.CONNECTED))
    loop.turn()
    assert image.topic_configs == {"a": {"retention.ms": "1"}, "b": {}}, "all of them are read anew"
    write("a", layout.encode_config({"retention.ms": "3"}))
    loop.turn()
    assert image.topic_configs["a"] == {"retention.ms": "3"}, "when it is mended it counts"


def test_notices_that_could_not_be_read_are_made_up_for_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    server, loop, image = TreeServer(), ManualLoop(ManualClock()), Image()
    for operation in layout.permanent_nodes(()):
        server.commit((operation,), 0)
    session = server.open()
    store = ClusterStore(session, loop)
    session.notify = lambda: loop.call_soon(store.hand_out)
    changes = ConfigChanges(store, image, ManualClock(wall_ms=0), lambda _topics: None)
    changes.start()
    loop.turn()

    def write(topic: str) -> None:
        config = Create(path=layout.topic_config_path(topic), data=layout.encode_config({"retention.ms": "1"}))
        notice = layout.encode_config_change(f"topics/{topic}")
        server.commit((config, Create(path=CHANGE, data=notice, sequential=True)), 0)

    async def refused(_paths: list[str]) -> None:
        raise ConnectionLostError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(store, "all_data", refused)
        write("a")
        loop.turn()
    assert image.topic_configs == {}
    write("b")
    loop.turn()
    assert image.topic_configs.keys() == {"a", "b"}
