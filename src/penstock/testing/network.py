"""The network between the brokers of a test's cluster, which can be cut: a proxy before every broker and before ZooKeeper.

A cut swallows what is sent, as a broken network does; nothing is refused or closed. `heal` closes the connections that lost bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STORE = 0
"""Stands for ZooKeeper where a broker's id stands for a broker."""
_HEADER = struct.Struct(">ihhih")
_CHUNK_BYTES = 256 * 1024


class Network:
    """Proxies on a thread of their own. `cuts` are pairs (who connects, to whom)."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-network", daemon=True)
        self._thread.start()
        self._targets: dict[tuple[int, int], tuple[str, int]] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._flows: set[_Flow] = set()
        self._servers: list[asyncio.Server] = []

    def listen(self, source: int, target: int) -> int:
        """A port that leads to `target`; a `source` of -1 is read from what the broker who connects says of itself."""
        return self._run(self._listen(source, target))

    def lead(self, source: int, target: int, host: str, port: int) -> None:
        """Where the proxy leads from now on."""
        self._targets[source, target] = host, port

    def cut(self, pairs: set[tuple[int, int]]) -> None:
        self._run(self._set_cuts(self._cuts | pairs))

    def heal(self) -> None:
        self._run(self._set_cuts(set()))

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self, source: int, target: int) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            flow = _Flow(self, source, target, reader, writer)
            self._flows.add(flow)
            try:
                await flow.run()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                self._flows.discard(flow)
                flow.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _set_cuts(self, cuts: set[tuple[int, int]]) -> None:
        self._cuts = cuts
        for flow in list(self._flows):
            if flow.is_harmed and not self.is_cut(flow.source, flow.target):
                flow.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for flow in list(self._flows):
            flow.close()
        await asyncio.sleep(0)

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts

    def target(self, source: int, target: int) -> tuple[str, int] | None:
        return self._targets.get((source, target)) or self._targets.get((-1, target))


class _Flow:
    """One connection through a proxy, both ways."""

    def __init__(
        self,
        network: Network,
        source: int,
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._network = network
        self.source = source
        self.target = target
        self._reader = reader
        self._writer = writer
        self._onward: asyncio.StreamWriter | None = None
        self.is_harmed = False

    async def run(self) -> None:
        first = b""
        if self.source == -1:
            first = await self._reader.readexactly(_HEADER.size)
            length = _HEADER.unpack(first)[4]
            name = await self._reader.readexactly(length)
            first += name
            self.source = int(name.rpartition(b"-")[2])
        if self._network.is_cut(self.source, self.target):
            self.is_harmed = True
            await self._reader.read(-1)
            return
        where = self._network.target(self.source, self.target)
        if where is None:
            return
        reader, self._onward = await asyncio.open_connection(*where)
        self._onward.write(first)
        await asyncio.gather(self._pump(self._reader, self._onward), self._pump(reader, self._writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                if self._network.is_cut(self.source, self.target):
                    self.is_harmed = True
                if not self.is_harmed:
                    writer.write(data)
                    await writer.drain()
        finally:
            if not self.is_harmed:
                writer.close()

    def close(self) -> None:
        for writer in (self._writer, self._onward):
            if writer is not None:
                with contextlib.suppress(RuntimeError):
                    writer.close()
