"""Hostile bytes against a real `penstock serve` (attacks A1, A2, A3, A5, A7, A13, A14): the connection is closed or the
request refused, the broker's memory does not grow with what is claimed, and its neighbours notice nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.wire import Wire

GROWTH_BYTES_MAX = 40_000_000
SECONDS = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(
        tmp_path_factory.mktemp("attacked"),
        connections_max_idle_ms="2000",
        offsets_topic_num_partitions="1",
        max_incremental_fetch_session_cache_slots="20",
    ) as served:
        yield served


@pytest.fixture
def unharmed(broker: ServedBroker) -> Iterator[None]:
    """Whoever came before is served on, and the broker is not larger afterwards."""
    with Wire(broker.bootstrap_servers) as neighbour:
        assert _is_served(neighbour)
        before = _resident_bytes(broker.pid)
        yield
        assert _is_served(neighbour)
        assert _resident_bytes(broker.pid) - before < GROWTH_BYTES_MAX
    assert "internal error" not in broker.output
    assert "should have answered" not in broker.output


def _is_served(wire: Wire) -> bool:
    answer = wire.ask(3, 12, {"topics": [], "allow_auto_topic_creation": False})
    return answer is not None and len(answer["brokers"]) == 1


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _open_sockets(pid: int) -> int:
    """As the system counts them; 0 where it does not tell."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(entry).startswith("socket:")
    return found


def connect(broker: ServedBroker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS)


def is_closed_after(broker: ServedBroker, sent: bytes) -> bool:
    with connect(broker) as attacker:
        try:
            attacker.sendall(sent)
            return attacker.recv(1) == b""
        except ConnectionError:
            return True


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, client_id: bytes = b"x") -> bytes:
    return struct.pack(">hhih", key, version, 1, len(client_id)) + client_id


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 2**31 - 1, 104_857_601, 0x16030100])
@pytest.mark.usefixtures("unharmed")
def test_a_frame_of_a_length_that_may_not_be(broker: ServedBroker, length: int) -> None:
    # A1, A16
    assert is_closed_after(broker, struct.pack(">i", length) + b"\x00\x03\x00\x00")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, struct.pack(">i", 2**31 - 1)),
        (1, struct.pack(">i", -2)),
        (1, struct.pack(">ih", 1, -2)),
        (1, struct.pack(">ih", 1, 32767)),
        (9, b"\x00\xff\xff\xff\xff\x0f"),
        (9, b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (9, b"\xff\xff\xff\xff\x0f"),
        (12, b"\x00\x02" + b"\x00" * 16 + b"\xff\xff\xff\xff\x0f"),
    ],
)
@pytest.mark.usefixtures("unharmed")
def test_a_small_frame_that_claims_to_be_large(broker: ServedBroker, version: int, body: bytes) -> None:
    # A2, A3
    assert is_closed_after(broker, framed(header(3, version) + body))


@pytest.mark.parametrize(
    "frame",
    [
        header(999, 0),
        header(-1, 0),
        header(3, 99),
        header(3, -1),
        header(52, 0),
        header(3, 1, b"\xff\xfe") + struct.pack(">i", 0),
        struct.pack(">hhih", 3, 1, 1, -7),
        b"\x00",
        b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xff",
    ],
)
@pytest.mark.usefixtures("unharmed")
def test_what_nobody_here_speaks(broker: ServedBroker, frame: bytes) -> None:
    # A7
    assert is_closed_after(broker, framed(frame))


@pytest.mark.usefixtures("unharmed")
def test_a_long_client_id_and_odd_correlation_ids_are_answered(broker: ServedBroker) -> None:
    # A7
    with connect(broker) as client:
        for correlation_id in (-1, 0, 2**31 - 1, -(2**31)):
            body = struct.pack(">hhih", 18, 0, correlation_id, 32_000) + b"i" * 32_000
            client.sendall(framed(body))
            size = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
            assert struct.unpack(">i", client.recv(size, socket.MSG_WAITALL)[:4])[0] == correlation_id


@pytest.mark.usefixtures("unharmed")
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: ServedBroker) -> None:
    # A7
    with connect(broker) as client:
        client.sendall(framed(header(18, 99)))
        size = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))[0]
        answer = client.recv(size, socket.MSG_WAITALL)
    assert struct.unpack(">ih", answer[:6]) == (1, 35)


def test_senders_that_never_finish_and_readers_that_never_read_are_shown_out(broker: ServedBroker) -> None:
    # A5
    before, sockets_before = _resident_bytes(broker.pid), _open_sockets(broker.pid)
    slow = [connect(broker) for _ in range(50)]
    for attacker in slow:
        attacker.sendall(struct.pack(">i", 100_000_000) + b"\x00\x03")
    deaf = connect(broker)
    request = framed(header(3, 1) + struct.pack(">i", -1))
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    sent = 0
    try:
        while sent < 50_000_000:
            sent += deaf.send(request * 1000)
    except BlockingIOError:
        pass
    assert sent < 50_000_000, "the broker stopped reading from who does not read"
    left = set(slow)
    with Wire(broker.bootstrap_servers) as neighbour:

        def all_are_out() -> bool:
            assert _is_served(neighbour)
            left.difference_update([attacker for attacker in left if _is_over(attacker)])
            return not left

        wait_until(all_are_out, seconds=SECONDS, what="idle connections are closed")

        def is_as_before() -> bool:
            assert _is_served(neighbour)
            return _open_sockets(broker.pid) <= sockets_before + 1  # the neighbour's

        wait_until(is_as_before, seconds=SECONDS, what="the broker let go of who does not read")
    for attacker in (*slow, deaf):
        attacker.close()
    assert _resident_bytes(broker.pid) - before < GROWTH_BYTES_MAX


@pytest.mark.usefixtures("unharmed")
def test_short_requests_with_long_answers_that_nobody_reads(broker: ServedBroker) -> None:
    # A5
    every_key = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]}
    with Wire(broker.bootstrap_servers) as wire:
        told = wire.ask(32, 1, every_key)
        assert told["results"][0]["error_code"] == "none"
        assert len(str(told)) > 5000
    body = struct.pack(">ibh", 1, 4, 1) + b"1" + struct.pack(">ib", -1, 0)
    before = _resident_bytes(broker.pid)
    with connect(broker) as deaf, Wire(broker.bootstrap_servers) as neighbour:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(10):
                deaf.send(framed(header(32, 1) + body) * 5000)
        deaf.setblocking(True)
        assert struct.unpack(">i", deaf.recv(4, socket.MSG_WAITALL))[0] > 2000, "the request is one, its answer is long"
        for _ in range(5):
            assert _is_served(neighbour)
        assert _resident_bytes(broker.pid) - before < GROWTH_BYTES_MAX


def _is_over(attacker: socket.socket) -> bool:
    attacker.setblocking(False)
    try:
        return attacker.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize(
    "name", ["../../etc", "..", ".", "a/b", "a\x00b", "", "ä", "x" * 250, "a\nb", "-delete/../x", "C:\\x", "%2e%2e"]
)
@pytest.mark.usefixtures("unharmed")
def test_a_topics_name_is_no_path(broker: ServedBroker, name: str) -> None:
    # A13
    before = sorted(path.name for path in broker.data.parent.iterdir())
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    with Wire(broker.bootstrap_servers) as wire:
        made = wire.ask(19, 7, {"topics": [topic], "timeout": 9000})
        assert made["topics"][0]["error_code"] == "invalid_topic_exception"
        asked = wire.ask(3, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
        assert asked["topics"][0]["error_code"] == "invalid_topic_exception"
    assert sorted(path.name for path in broker.data.parent.iterdir()) == before


@pytest.mark.parametrize("name", ["x-delete", "x-0-future", "y.00000000000000000000000000000001-delete", "z-stray"])
@pytest.mark.usefixtures("unharmed")
def test_a_name_like_one_of_kafkas_own_directories_is_a_name(broker: ServedBroker, name: str) -> None:
    # A13
    with Wire(broker.bootstrap_servers) as wire:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        assert wire.ask(19, 7, {"topics": [topic], "timeout": 9000})["topics"][0]["error_code"] == "none"
    assert (broker.data / f"{name}-0").is_dir()


@pytest.mark.usefixtures("unharmed")
def test_names_that_only_a_metric_could_confuse_collide(broker: ServedBroker) -> None:
    # A13
    with Wire(broker.bootstrap_servers) as wire:
        for name, expected in (("c.d", "none"), ("c_d", "invalid_topic_exception")):
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
            made = wire.ask(19, 7, {"topics": [topic], "timeout": 9000})
            assert made["topics"][0]["error_code"] == expected


@pytest.mark.usefixtures("unharmed")
def test_many_of_everything_costs_little(broker: ServedBroker) -> None:
    # A14
    with Wire(broker.bootstrap_servers) as wire:
        topic = {"name": "huge", "num_partitions": 2**31 - 1, "replication_factor": 1}
        assert wire.ask(19, 7, {"topics": [topic], "timeout": 9000})["topics"][0]["error_code"] != "none"
        groups = [f"g{number}" for number in range(5000)]
        assert len(wire.ask(15, 5, {"groups": groups})["groups"]) == 5000
        missing = [{"name": f"m{number}"} for number in range(5000)]
        asked = wire.ask(3, 12, {"topics": missing, "allow_auto_topic_creation": False})
        assert len(asked["topics"]) == 5000
        for number in range(200):
            fetch = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1, "session_epoch": 0, "replica_id": -1, "rack_id": ""}
            assert wire.ask(1, 12, fetch)["error_code"] == "none", number
        for number in range(300):
            beat = {"group_id": f"h{number}", "generation_id": 1, "member_id": "m"}
            assert wire.ask(12, 4, beat)["error_code"] != "none"
        assert wire.ask(16, 4, {})["groups"] == []
