"""A connection to another broker takes answers apart however they arrive."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvloop

from penstock.base.errors import PenstockError
from penstock.peers import link
from penstock.peers.errors import PeerUnreachableError
from penstock.peers.link import Address, Body, TcpLink, _Wire

SIZES = (0, 1, 11, 200, 4_000, 16_378, 16_384, 50_000, 3, 3, 3, 9_000, 9_000, 40)


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def get_extra_info(self, _name: str) -> None:
        """It has no socket."""

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True


def feed(wire: _Wire, data: bytes, chance: random.Random) -> None:
    """As a socket does: as much as there is room for and has come."""
    while data and not wire.is_broken:
        room = wire.get_buffer(-1)
        assert len(room) > 0
        count = min(len(room), len(data), chance.choice((1, 2, 3, 4, 5, 100, 10_000, 1 << 20)))
        room[:count] = data[:count]
        wire.buffer_updated(count)
        data = data[count:]


def answer(number: int, content: bytes) -> bytes:
    body = number.to_bytes(4, "big") + b"\x00" + content
    return len(body).to_bytes(4, "big") + body


async def connected(count: int, answers: list[Any]) -> tuple[_Wire, Transport]:
    wire, transport = _Wire(), Transport()
    wire.connection_made(cast(Any, transport))
    for _ in range(count):
        wire.send(1, 17, b"\x00\x01c", b"body", answers.append, 60_000)
    assert len(transport.written) == count
    return wire, transport


def test_answers_come_whole_and_in_order_however_they_are_cut() -> None:
    async def run(seed: int) -> None:
        chance = random.Random(seed)
        contents = [chance.randbytes(size) for size in SIZES]
        answers: list[Any] = []
        wire, _ = await connected(len(contents), answers)
        feed(wire, b"".join(answer(number, content) for number, content in enumerate(contents, 1)), chance)
        assert [bytes(one.frame[one.position :]) for one in answers] == contents
        assert all(isinstance(one, Body) for one in answers)
        wire.close()

    for seed in range(60):
        asyncio.run(run(seed))


def test_an_answer_out_of_order_or_of_no_size_breaks_the_connection_and_fails_what_waits() -> None:
    async def run(data: bytes, told: int) -> None:
        answers: list[Any] = []
        wire, transport = await connected(3, answers)
        feed(wire, data, random.Random(1))
        assert transport.is_aborted
        assert [isinstance(one, PenstockError) for one in answers] == [False] * told + [True] * (3 - told)

    first = answer(1, b"x")
    asyncio.run(run(answer(2, b"x"), 0))
    asyncio.run(run(first + b"\x00\x00\x00\x03abc", 1))
    asyncio.run(run(first + b"\xff\xff\xff\xff" + first, 1))
    asyncio.run(run(first + answer(3, b"x" * 60_000), 1))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other names for it")
def test_a_machine_that_is_gone_is_noticed_in_seconds(run: Callable[[Any], None]) -> None:
    async def connect() -> None:
        closed = asyncio.get_running_loop().create_future()

        class Wire(_Wire):
            def connection_lost(self, error: Exception | None) -> None:
                super().connection_lost(error)
                closed.set_result(None)

        with socket.create_server(("127.0.0.1", 0)) as server:
            transport, wire = await asyncio.get_running_loop().create_connection(Wire, *server.getsockname())
            options = transport.get_extra_info("socket")
            assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            idle, interval, count = (options.getsockopt(socket.IPPROTO_TCP, name) for name in names)
            assert idle + interval * count < 10
            assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 10_000
            del options
            wire.close()
            await closed

    run(connect())


def test_a_connection_that_is_closed_as_soon_as_it_is_open_answers_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy before a broker that is gone does so, and a broker with too many clients: before whoever opened it comes to sending."""

    class Closed(_Wire):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.connection_lost(None)

    async def run(address: tuple[str, int]) -> None:
        tcp_link = TcpLink(lambda: Address(*address), "c", 10_000)
        for _ in range(2):
            answers: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
            for one in answers:
                tcp_link.call(1, 17, b"", one.set_result)
            found = await asyncio.wait_for(asyncio.gather(*answers), 10)
            assert all(isinstance(one, PeerUnreachableError) for one in found)
        tcp_link.close()

    monkeypatch.setattr(link, "_Wire", Closed)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(run(server.getsockname()))


@pytest.mark.parametrize("is_open", [True, False])
def test_what_is_on_its_way_to_a_broker_that_is_given_up_is_answered(is_open: bool) -> None:
    """One that hangs closes nothing, and answers nothing."""

    async def run() -> None:
        tcp_link = TcpLink(lambda: Address(*server.getsockname()), "c", 60_000)
        answers: list[Any] = []
        for _ in range(2):
            tcp_link.call(1, 17, b"", answers.append)
        if is_open:
            assert tcp_link._opening is not None
            await tcp_link._opening
        tcp_link.give_up()
        assert [type(one) for one in answers] == [PeerUnreachableError] * 2

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(run())


def test_one_that_is_given_up_by_what_it_answers_answers_the_rest() -> None:
    """It could not be opened: who hears of that first may be who gives it up."""

    async def run() -> None:
        tcp_link = TcpLink(lambda: None, "c", 60_000)
        answers: list[Any] = []

        def heard(answer: Any) -> None:
            answers.append(answer)
            tcp_link.give_up()

        tcp_link.call(1, 17, b"", heard)
        for _ in range(2):
            tcp_link.call(1, 17, b"", answers.append)
        assert tcp_link._opening is not None
        await tcp_link._opening
        assert [type(one) for one in answers] == [PeerUnreachableError] * 3

    asyncio.run(run())


@pytest.mark.parametrize("address", [Address("a" * 70, 9092), Address("127.0.0.1", 70_000)])
def test_an_address_that_cannot_be_is_said_each_time(address: Address) -> None:
    async def run() -> None:
        link = TcpLink(lambda: address, "c", 1_000)
        for _ in range(2):
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            link.call(1, 17, b"", answer.set_result)
            assert isinstance(await asyncio.wait_for(answer, 10), PeerUnreachableError)
        link.close()

    asyncio.run(run())
