"""Listening sockets, and the connections that came through them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.base.config import is_port
from penstock.base.errors import ConfigError
from penstock.handlers.api import Peer
from penstock.protocol.primitives import Buffer
from penstock.server.connection import ROOM_BYTES, Connection
from penstock.server.dispatch import Outcome
from penstock.server.turn import Turn

_ATTEMPTS = 20
"""To find a port that is free for every address of a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One listener as it is configured; port 0 takes a free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Address:
    """NAME://host:port, as Kafka writes it; IPv6 in brackets, an empty host for all interfaces."""
    name, separator, rest = text.partition("://")
    host, colon, port = rest.rpartition(":")
    if not separator or not colon or not name or not is_port(port, lowest=0):
        raise ConfigError(f"{text!r} is not a listener; write NAME://host:port, e.g. PLAINTEXT://127.0.0.1:9092")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(f"{text!r}: an IPv6 address stands in brackets")
    return Address(name=name.upper(), host=host.strip("[]"), port=int(port))


def is_any_interface(host: str) -> bool:
    """Whether a host means every interface, however it is written: listened on, never told to anybody."""
    if not host:
        return True
    for read in (socket.inet_aton, partial(socket.inet_pton, socket.AF_INET6)):
        with contextlib.suppress(OSError):
            return not any(read(host))
    return False


class Server:
    """All listeners of a broker."""

    def __init__(
        self,
        dispatch: Callable[[Buffer, Peer], Outcome],
        *,
        frame_bytes_max: int,
        connections_max: int,
        backlog: int,
        run_in_thread: Callable[[Callable[[], bytes], Callable[[bytes | BaseException], object]], None],
        turn: Turn | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._frame_bytes_max = frame_bytes_max
        self.connections_max = connections_max
        self._backlog = backlog
        self._run_in_thread = run_in_thread
        self._servers: list[asyncio.AbstractServer] = []
        self._bound: list[tuple[Address, socket.socket]] = []
        self.connections: set[Connection] = set()
        self._turn = turn or Turn()
        self._room = memoryview(bytearray(ROOM_BYTES))

    async def bind(self, address: Address) -> Address:
        """Binds sockets; nothing is accepted before `start`. Returns the address with its real port.

        A name may stand for several addresses, an empty one stands for every interface: all of them get the same port.
        """
        loop, port = asyncio.get_running_loop(), address.port
        for bound in await bound_sockets(address):
            server = await loop.create_server(
                lambda: self._connection(address.name), sock=bound, backlog=self._backlog, start_serving=False
            )
            self._servers.append(server)
            self._bound.append((address, bound))
            port = bound.getsockname()[1]
        return Address(name=address.name, host=address.host, port=port)

    async def start(self) -> None:
        """ConfigError where somebody else listens by now: two that start at a time may both have bound a port."""
        for server, (address, bound) in zip(self._servers, self._bound, strict=True):
            try:
                bound.listen(self._backlog)  # before uvloop does, which says nothing where it cannot
            except OSError as error:
                raise ConfigError(f"{address} cannot be listened on: {error.strerror}") from None
            await server.start_serving()

    def _connection(self, listener: str) -> Connection:
        return Connection(
            self._dispatch,
            listener=listener,
            frame_bytes_max=self._frame_bytes_max,
            room=self._room,
            opened=self._opened,
            closed=self.connections.discard,
            turn=self._turn,
            run_in_thread=self._run_in_thread,
        )

    def _opened(self, connection: Connection) -> bool:
        if len(self.connections) >= self.connections_max:
            return False
        self.connections.add(connection)
        return True

    def close_idle(self) -> int:
        """Closes connections that sent nothing since the last call, or took nothing of their answers. Returns how many."""
        closed = 0
        for connection in tuple(self.connections):
            is_deaf = connection.is_deaf()
            if connection.active:
                connection.active = False
            elif is_deaf:
                connection.abort("its client does not read")
                closed += 1
            elif not connection.is_busy:
                connection.close("idle for too long")
                closed += 1
        return closed

    def stop(self) -> None:
        """No new connections, and an end to those there are."""
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.close("the broker is stopping")


async def bound_sockets(address: Address) -> list[socket.socket]:
    """A socket for each address that a host stands for, all on one port; ConfigError says why there are none."""
    loop = asyncio.get_running_loop()
    # As in Java, every interface of IPv6 is every one of IPv4 too: what clients are told may be either's.
    host = None if ":" in address.host and is_any_interface(address.host) else address.host or None
    try:
        found = await loop.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"{address}: the host cannot be found ({getattr(error, 'strerror', error)})") from None
    places = list(dict.fromkeys((family, place[0]) for family, _, _, _, place in found))
    for attempt in range(_ATTEMPTS):
        try:
            return _bind_all(places, address.port)
        except OSError as error:
            # A free port of one address family may be taken in the other.
            is_free_port_taken = address.port == 0 and error.errno == errno.EADDRINUSE
            if not is_free_port_taken or attempt == _ATTEMPTS - 1:
                raise ConfigError(f"{address} cannot be listened on: {error.strerror}") from None
    raise AssertionError("one attempt returns or raises")


def _bind_all(places: Sequence[tuple[int, object]], port: int) -> list[socket.socket]:
    """One socket for each address, all on one port: the first free one where it is 0. All or none."""
    bound: list[socket.socket] = []
    try:
        for family, host in places:
            try:
                one = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(places) > 1:
                    continue  # a machine without IPv6 lists its addresses all the same
                raise
            bound.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                one.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL or len(places) == 1:
                    raise
                bound.pop().close()
                continue
            port = one.getsockname()[1]
        if not bound:
            raise OSError(errno.EADDRNOTAVAIL, "no address of it is this machine's")
    except BaseException:
        for one in bound:
            one.close()
        raise
    return bound
