"""A connection to another broker: requests out, answers in order, callbacks on the loop.

Opened with the first request, and anew with the first one after it broke. Whatever is on its way then is answered with an
error: whether it was carried out is not known.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from penstock.base.errors import PenstockError
from penstock.base.memory_kernels import unfilled
from penstock.peers.errors import PeerUnreachableError
from penstock.protocol.primitives import INT32, skip_tags, string

FRAME_BYTES_MAX = 1 << 30
_HEAD = struct.Struct(">ihhi")
_ROOM_BYTES = 16 * 1024
_SILENCE = (("TCP_KEEPIDLE", 3), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 7_000))
"""Seconds of silence until the other machine is asked whether it is there, and between two questions, and how many; and for
how many milliseconds it may leave unconfirmed what it was sent, when nothing is asked."""


class Body(NamedTuple):
    """A frame, and where the answer's body begins in it."""

    frame: bytearray | bytes
    position: int


Answered = Callable[[Body | PenstockError], object]


class Link(Protocol):
    """A way to one broker. All versions and keys used on it are flexible."""

    def call(self, api_key: int, version: int, body: bytes, answered: Answered) -> None:
        """Sends a request. `answered` is called once, on the loop, never from within."""

    def give_up(self) -> None:
        """What is on its way is answered with an error, and it is closed."""

    def close(self) -> None:
        """Nothing that is on its way is answered any more."""


class Address(NamedTuple):
    host: str
    port: int


class TcpLink:
    def __init__(self, address: Callable[[], Address | None], client_id: str, timeout_ms: int) -> None:
        """`address` says where the broker is now, if anywhere."""
        self._address = address
        self._client_id = string(client_id)
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._wire: _Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[tuple[int, int, bytes, Answered]] = []
        self._is_closed = False

    def call(self, api_key: int, version: int, body: bytes, answered: Answered) -> None:
        if self._is_closed:
            return
        if self._wire is not None and not self._wire.is_broken:
            self._send(self._wire, api_key, version, body, answered)
            return
        self._unsent.append((api_key, version, body, answered))
        if self._opening is None:
            self._opening = self._loop.create_task(self._open())

    def _send(self, wire: _Wire, api_key: int, version: int, body: bytes, answered: Answered) -> None:
        wire.send(api_key, version, self._client_id, body, answered, self._timeout_ms)

    async def _open(self) -> None:
        error: PenstockError | None = None
        try:
            address = self._address()
            if address is None:
                raise PeerUnreachableError("nobody knows where the broker is")
            opening = self._loop.create_connection(_Wire, address.host, address.port)
            _, self._wire = await asyncio.wait_for(opening, self._timeout_ms / 1000)
        except PenstockError as unknown:
            error = unknown
        except (OSError, TimeoutError, ValueError, OverflowError) as broken:  # or no such address can be
            error = PeerUnreachableError(f"the broker at {address.host}:{address.port} cannot be reached: {broken}")  # type: ignore[union-attr]
        self._opening = None
        for _ in range(len(self._unsent)):
            if not self._unsent:  # it was closed by what was answered
                break
            api_key, version, body, answered = self._unsent.pop(0)
            if error is not None:
                answered(error)
            else:
                assert self._wire is not None
                self._send(self._wire, api_key, version, body, answered)
        if self._is_closed and self._wire is not None:
            self._wire.close()

    def give_up(self) -> None:
        if self._wire is not None:
            self._wire.give_up()
        unsent = self._unsent
        self.close()
        for *_, answered in unsent:
            answered(PeerUnreachableError("the broker is gone"))

    def close(self) -> None:
        self._is_closed = True
        self._unsent = []
        if self._opening is not None:
            self._opening.cancel()
        if self._wire is not None:
            self._wire.close()


class _Wire(asyncio.BufferedProtocol):
    """One socket. Small answers are read together, large ones straight into the frame that they belong to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._waiting: deque[tuple[int, Answered]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._deadlines: deque[float] = deque()
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._frame: bytearray | None = None
        self._filled = 0
        """Bytes of the frame that is begun, or of the room where none is."""
        self.is_broken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        # A machine that lost its power closes nothing: who waits for its answer would wait until that is overdue, though
        # it is back, or another leads.
        with_options = transport.get_extra_info("socket")
        if with_options is not None:
            with_options.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _SILENCE:
                if hasattr(socket, name):  # Linux has them
                    with_options.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def send(
        self, api_key: int, version: int, client_id: bytes, body: bytes, answered: Answered, timeout_ms: int
    ) -> None:
        assert self._transport is not None
        if self.is_broken:  # since it was opened, or by what was answered before this
            self._loop.call_soon(answered, PeerUnreachableError("the connection to a broker broke at once"))
            return
        self._correlation_id += 1
        size = 8 + len(client_id) + 1 + len(body)
        head = _HEAD.pack(size, api_key, version, self._correlation_id)
        self._waiting.append((self._correlation_id, answered))
        self._deadlines.append(self._loop.time() + timeout_ms / 1000)
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadlines[0], self._check_deadline)
        self._transport.write(b"".join((head, client_id, b"\x00", body)))

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._deadlines:
            return
        if self._deadlines[0] <= self._loop.time():
            self._break("it did not answer in time")
        else:
            self._timer = self._loop.call_at(self._deadlines[0], self._check_deadline)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return self._room[self._filled :]
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is not None:
            if self._filled == len(self._frame):
                frame, self._frame, self._filled = self._frame, None, 0
                self._arrived(frame)
            return
        room, start, end = self._room, 0, self._filled
        while end - start >= 4:
            (size,) = INT32.unpack_from(room, start)
            if not 4 <= size <= FRAME_BYTES_MAX:
                self._break(f"it sent a frame of {size} bytes")
                return
            start += 4
            if size > end - start:
                # The rest of it is read to where it belongs.
                self._frame, self._filled = unfilled(size), end - start
                self._frame[: end - start] = room[start:end]
                return
            self._arrived(bytearray(room[start : start + size]))
            if self.is_broken:
                return
            start += size
        room[: end - start] = bytes(room[start:end])
        self._filled = end - start

    def _arrived(self, frame: bytearray) -> None:
        (correlation_id,) = INT32.unpack_from(frame)
        if not self._waiting or self._waiting[0][0] != correlation_id:
            self._break(f"it answered request {correlation_id}, which was not next")
            return
        _, answered = self._waiting.popleft()
        self._deadlines.popleft()
        answered(Body(frame, skip_tags(frame, 4)))

    def connection_lost(self, error: Exception | None) -> None:
        self._break(str(error or "it closed the connection"))

    def give_up(self) -> None:
        self._break("it is gone")

    def _break(self, reason: str) -> None:
        if self.is_broken:
            return
        waiting = list(self._waiting)
        self.close()
        for _, answered in waiting:
            answered(PeerUnreachableError(f"the connection to a broker broke: {reason}"))

    def close(self) -> None:
        self.is_broken = True
        self._waiting.clear()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
