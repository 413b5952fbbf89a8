"""Where a broker listens and what it tells clients: Kafka's keys, checked together, and real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from penstock.app.broker import Broker
from penstock.app.config import BrokerConfig
from penstock.base.errors import ConfigError
from penstock.server.listener import Address, Server, is_any_interface


def settings(**more: str) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in more.items()}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (settings(advertised_listeners="PLAINTEXT://0.0.0.0:9092"), "cannot be advertised"),
        (settings(advertised_listeners="PLAINTEXT://[::]:9092"), "cannot be advertised"),
        (settings(advertised_listeners="PLAINTEXT://:9092"), "cannot be advertised"),
        (settings(advertised_listeners="PLAINTEXT://[::0]:9092"), "cannot be advertised"),
        (settings(advertised_listeners="OTHER://h:9092"), "none of the listeners"),
        (settings(inter_broker_listener_name="OTHER"), "none of the listeners"),
        (settings(listeners="PLAINTEXT://a:1,PLAINTEXT://b:2"), "2 times"),
        (
            settings(
                listeners="PLAINTEXT://:1,OTHER://:1",
                listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            ),
            "port 1",
        ),
        (settings(listener_security_protocol_map="PLAINTEXT"), "NAME:PROTOCOL"),
    ],
)
def test_listeners_that_contradict_each_other_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(given)


def test_several_listeners_each_with_what_is_told_of_it() -> None:
    config = BrokerConfig(
        settings(
            listeners="INSIDE://127.0.0.1:0,OUTSIDE://[::1]:0",
            listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            advertised_listeners="OUTSIDE://broker.example.com:0",
            inter_broker_listener_name="INSIDE",
        )
    )
    assert [str(one) for one in config.listeners] == ["INSIDE://127.0.0.1:0", "OUTSIDE://[::1]:0"]
    assert config.advertised == {"OUTSIDE": Address(name="OUTSIDE", host="broker.example.com", port=0)}


def test_what_is_told_is_never_every_interface_and_has_the_port_that_was_bound(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path)}))
        bound = Address(name="PLAINTEXT", host="0.0.0.0", port=7)
        assert broker.advertised(bound) == Address(name="PLAINTEXT", host=socket.gethostname(), port=7)
        broker.config.advertised["PLAINTEXT"] = Address(name="PLAINTEXT", host="h", port=0)
        assert broker.advertised(bound) == Address(name="PLAINTEXT", host="h", port=7)
        await broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("host", ["", "0.0.0.0", "0", "::", "::0", "0:0:0:0:0:0:0:0"])
def test_every_interface_is_known_however_it_is_written(host: str) -> None:
    assert is_any_interface(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "broker-0", "0.0.0.1", "fe80::"])
def test_one_interface_is_not_every_one(host: str) -> None:
    assert not is_any_interface(host)


def _server() -> Server:
    return Server(
        lambda frame, peer: None,
        frame_bytes_max=1000,
        connections_max=10,
        backlog=5,
        run_in_thread=lambda job, done: None,
    )


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["", "::", "::0", "localhost", "127.0.0.1"])
def test_every_address_of_a_host_is_on_one_port(host: str) -> None:
    async def run() -> None:
        server = _server()
        bound = await server.bind(Address(name="PLAINTEXT", host=host, port=0))
        await server.start()
        assert bound.port > 0
        wanted = ["127.0.0.1"] + (["::1"] if host in ("", "::", "::0") and _has_ipv6() else [])
        for address in wanted:
            _, writer = await asyncio.open_connection(address, bound.port)
            writer.close()
        server.stop()

    asyncio.run(run())


def test_what_cannot_be_listened_on_is_one_sentence() -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(ConfigError, match="cannot be listened on: Address already in use"):
                await _server().bind(Address(name="PLAINTEXT", host="127.0.0.1", port=port))
        with pytest.raises(ConfigError, match="the host cannot be found"):
            await _server().bind(Address(name="PLAINTEXT", host="no such host", port=0))

    asyncio.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_of_two_that_start_on_one_port_at_a_time_one_says_that_it_cannot(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def run() -> None:
        first, second = _server(), _server()
        port = (await first.bind(Address(name="PLAINTEXT", host="127.0.0.1", port=0))).port
        await second.bind(Address(name="PLAINTEXT", host="127.0.0.1", port=port))
        await first.start()
        with pytest.raises(ConfigError, match=f"PLAINTEXT://127.0.0.1:{port} cannot be listened on"):
            await second.start()
        first.stop()
        second.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


STOCK_KRAFT = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
"""What Kafka 4.3's own `server.properties` sets; 3.9's for KRaft has `controller.quorum.voters` in place of one key."""


@pytest.mark.parametrize("quorum", ["controller.quorum.bootstrap.servers", "controller.quorum.voters"])
def test_kafkas_own_file_is_taken_as_it_is(quorum: str) -> None:
    given = {name: value for name, value in STOCK_KRAFT.items() if name != "controller.quorum.bootstrap.servers"}
    config = BrokerConfig({**given, quorum: "1@localhost:9093"})
    assert [str(one) for one in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(one) for one in config.advertised.values()] == ["PLAINTEXT://localhost:9092"]
    named = {complaint.split()[0] for complaint in config.complaints if "KRaft" in complaint}
    assert named == {"process.roles", "controller.listener.names", quorum}
    assert not [complaint for complaint in config.complaints if "not known" in complaint]
