"""Metrics over HTTP on a port of their own, for Prometheus: GET /metrics, and nothing else.

A scrape is written in slices, with the loop free between them: thousands of partitions make thousands of lines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

from penstock.base.metrics import Family, lines
from penstock.server.listener import Address, bound_sockets

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST_BYTES_MAX = 8192
_REQUEST_SECONDS_MAX = 10
_ANSWER_SECONDS_MAX = 60
_LINES_A_SLICE = 200


class MetricsPage:
    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families
        self._servers: list[asyncio.Server] = []

    async def start(self, address: Address) -> Address:
        """Listens; returns the address with its port, which 0 leaves to the system."""
        port = address.port
        for bound in await bound_sockets(address):
            self._servers.append(await asyncio.start_server(self._serve, sock=bound, limit=_REQUEST_BYTES_MAX))
            port = bound.getsockname()[1]
        return replace(address, port=port)

    def stop(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_SECONDS_MAX)
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                await self._answer(head.split(b"\r\n", 1)[0].split(b" "), writer)
                writer.close()
                await writer.wait_closed()
        writer.transport.abort()  # whoever does not read holds nothing here

    async def _answer(self, words: list[bytes], writer: asyncio.StreamWriter) -> None:
        if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
            writer.write(_head("405 Method Not Allowed") + b"only GET\n")
            return
        if words[1].split(b"?", 1)[0] != b"/metrics":
            writer.write(_head("404 Not Found") + b"the metrics are at /metrics\n")
            return
        writer.write(_head("200 OK"))
        if words[0] == b"HEAD":
            return
        told = lines(self._families())
        while part := list(islice(told, _LINES_A_SLICE)):
            writer.write("".join(part).encode())
            await writer.drain()
            await asyncio.sleep(0)


def _head(status: str) -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nConnection: close\r\n\r\n".encode()
