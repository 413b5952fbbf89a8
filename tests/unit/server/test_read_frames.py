"""Requests of any size arrive whole over real sockets, though all connections are read into one room; what never gets whole is not kept."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from tests.unit.server.test_connection import connect, echo, frame, receive

from penstock.handlers.api import Peer
from penstock.server.connection import ROOM_BYTES, Connection
from penstock.server.framing import Framing
from penstock.server.listener import Server, parse_listener

SIZES = (0, 1, 60, 5_000, ROOM_BYTES - 4, ROOM_BYTES, 300_000, 2_500_000)


def checksum(request: bytes | bytearray, _peer: Peer) -> bytes:
    return zlib.crc32(request).to_bytes(4, "big")


async def client(port: int, chance: random.Random) -> None:
    """Sends its requests cut anywhere, while the others send theirs."""
    requests = [chance.randbytes(max(0, chance.choice(SIZES) + chance.randint(-3, 3))) for _ in range(25)]
    stream = b"".join(map(frame, requests))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    at = 0
    while at < len(stream):
        size = chance.choice((3, 1_000, 70_000, 400_000))
        writer.write(stream[at : at + size])
        at += size
        await writer.drain()
    assert await reader.readexactly(4 * len(requests)) == b"".join(checksum(one, None) for one in requests)  # type: ignore[arg-type]
    writer.close()


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_requests_of_any_size_arrive_whole_from_several_clients_at_once(make_loop: Any) -> None:
    async def main() -> None:
        server = Server(
            checksum, frame_bytes_max=4_000_000, connections_max=10, backlog=10, run_in_thread=lambda *_: None
        )
        bound = await server.bind(parse_listener("PLAINTEXT://127.0.0.1:0"))
        await server.start()
        try:
            await asyncio.gather(*(client(bound.port, random.Random(seed)) for seed in range(5)))
        finally:
            server.stop()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("end", [lambda made: made.connection_lost(None), lambda made: made.close("enough")])
def test_what_came_of_a_request_that_will_never_be_whole_is_not_kept(end: Callable[[Connection], None]) -> None:
    made, _ = connect(echo)
    receive(made, frame(bytes(900))[:500])
    was_there = len(made.get_buffer(-1))
    end(made)
    assert (was_there, made._framing.buffered_bytes, made._framing.rest) == (404, 0, None)


def test_a_request_for_which_there_is_no_memory_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_framing: object, _data: bytes) -> None:
        raise MemoryError

    made, transport = connect(echo)
    monkeypatch.setattr(made, "_framing", Framing(10))
    monkeypatch.setattr(Framing, "feed", refuse)
    receive(made, b"x")
    assert transport.closed
