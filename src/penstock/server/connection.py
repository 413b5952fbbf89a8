"""One client's connection: answers leave in the order of their requests, and nobody can make us hold much.

Requests are handled as they arrive, many at a time; an answer that is ready early waits for the ones before it. While
the client does not read, or has too many requests under way, no further request is handled and none is read. Slices of
files go to the socket a megabyte at a time as it drains, by the kernel alone where they are in memory, so a slow reader costs next to nothing; what is not
in memory is read on a thread.

Small answers are sent at the end of the loop's turn: a write wakes its client, who would take the processor from the
requests that wait in the same turn. Small requests may be handled there too, together (`server.turn`). Where nobody else
asks, neither waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from penstock.base.errors import PenstockError
from penstock.base.files import File
from penstock.handlers.api import CloseConnectionError, Peer
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.fetch import Slice
from penstock.server.dispatch import Outcome, Parts, Waiting
from penstock.server.framing import FrameLimitError, Framing

logger = logging.getLogger(__name__)

READ_BYTES_MAX = 1 << 20
ROOM_BYTES = 128 * 1024
"""Of small requests read at once, and of the beginning of a large one."""
IN_FLIGHT_MAX = 100
WRITE_BUFFER_BYTES = 256 * 1024
JOINED_BYTES_MAX = 16 * 1024
SENT_FROM_FILE_BYTES = 64 * 1024
"""Slices from this size on are left to the kernel. As much of one is read where the socket is full: uvloop then waits for room."""
WATCHED_BYTES_MAX = 16 * 1024
"""Only after the answers to requests of at most this size is the next one watched for: who sends more does not wait for answers."""
REQUESTS_A_TURN = 100
"""Of one connection. What it sent beyond that, or beyond a buffer of answers, waits for the loop's next turn: others come first."""


class Turn(Protocol):
    """What connections have in common in one turn of the loop: `server.turn`."""

    def end_soon(self, connection: Connection) -> None: ...

    def is_alone(self, connection: Connection) -> bool: ...

    def watch(self) -> None: ...

    def gather(self, connection: Connection, frame: bytes | bytearray) -> bool: ...

    def settle(self) -> None: ...


class FileSlice(Slice, Protocol):
    @property
    def file(self) -> File: ...

    @property
    def position(self) -> int: ...


class _Rest:
    """What is left of a slice."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length


class _Slot:
    """An answer's place in the order. `parts` is None until it is ready."""

    __slots__ = ("parts", "waiting")

    def __init__(self, waiting: Waiting | None, parts: bytes | Parts | None) -> None:
        self.waiting = waiting
        self.parts = parts


class Connection(asyncio.BufferedProtocol):
    """The event loop's side of a connection. Small requests are read together, large ones straight into their frame."""

    def __init__(
        self,
        dispatch: Callable[[bytes | bytearray, Peer], Outcome],
        *,
        listener: str,
        frame_bytes_max: int,
        room: memoryview,
        opened: Callable[[Connection], bool],
        closed: Callable[[Connection], None],
        turn: Turn,
        run_in_thread: Callable[[Callable[[], bytes], Callable[[bytes | BaseException], object]], None],
    ) -> None:
        self._dispatch = dispatch
        self._listener = listener
        self._framing = Framing(frame_bytes_max)
        self._room = room
        """Where bytes come to that belong nowhere yet; all connections of a loop have one, as none has it for longer than a read."""
        self._opened = opened
        self._closed = closed
        self._turn = turn
        self._is_ending_turn = False
        self._gathered = 0
        """Requests that are handled when the turn ends, or before the next that is handled by itself."""
        self._run_in_thread = run_in_thread
        self._is_reading_file = False
        self._descriptor: int | None = None
        """The socket's, but our own: the loop closes its own before it says so, and another connection may get the number."""
        self._has_ended = False
        """The client sends nothing more, and the transport closes: what still gets out it decides alone, of heads as of slices."""
        self._joined: list[bytes | bytearray] = []
        self._joined_bytes = 0
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._transport: asyncio.Transport
        self.peer: Peer
        self._slots: deque[_Slot] = deque()
        self._sending: deque[bytes | Slice] = deque()
        self._backlog: deque[bytes | bytearray] = deque()
        self._paused_writing = False
        self._paused_reading = False
        self._bytes_in_turn = 0
        """Since reading last paused for the others: the loop would read several megabytes of one client before it turns."""
        self._is_working_off = False
        self._is_held = False
        """Whether the last request has not begun: nothing behind it does."""
        self._closing = False
        self.active = True
        """Whether bytes came, or many were taken, since somebody last set this to False: what idle connections are told by."""
        self._unsent_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Whether an answer is owed or being sent."""
        return bool(self._slots or self._sending or self._backlog or self._gathered)

    @property
    def is_closing(self) -> bool:
        return self._closing

    def is_deaf(self) -> bool:
        """Whether something waits to be sent of which the client took nothing since the last call."""
        before, self._unsent_bytes = self._unsent_bytes, self._transport.get_write_buffer_size()
        return 0 < self._unsent_bytes == before

    # The event loop calls these.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but their class.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=0)  # who does not take everything at once is waited for
        address = transport.get_extra_info("peername")
        self.peer = Peer(self._listener, str(address[0]) if address else "", self)
        if not self._opened(self):
            self.close("too many connections")

    def get_buffer(self, sizehint: int) -> memoryview:
        rest = self._framing.rest
        return self._room if rest is None else rest

    def buffer_updated(self, nbytes: int) -> None:
        self.active = True
        self._bytes_in_turn += nbytes
        if self._bytes_in_turn >= READ_BYTES_MAX:
            self._pause_reading()
            self._end_turn_soon()
        try:
            if self._framing.rest is None:
                frames = self._framing.feed(bytes(self._room[:nbytes]))
            else:
                frames = self._framing.filled(nbytes)
        except FrameLimitError as error:
            self.close(str(error))
            return
        except MemoryError:
            self.close("there is no memory for its request")
            return
        if self._backlog or self._is_blocked():
            self._backlog.extend(frames)
            self._pause_reading()
            return
        is_alone = self._turn.is_alone(self) and len(frames) == 1
        for number, frame in enumerate(frames, 1):
            is_full = number >= REQUESTS_A_TURN
            if not is_alone and self._turn.gather(self, frame):
                self._gathered += 1
                self._end_turn_soon()
            else:
                if self._gathered:
                    self._turn.settle()
                    if self._closing:
                        break
                    if self._is_held:
                        self._put_off(frames[number - 1 :])
                        break
                self._take(self._handle(frame), is_alone, is_alone and len(frame) <= WATCHED_BYTES_MAX)
                if self._ready_bytes > WRITE_BUFFER_BYTES:  # short requests may have long answers
                    self.flush()
                    is_full = True
                is_full = is_full or self._is_blocked()
            if self._closing:
                break
            if is_full:
                self._put_off(frames[number:])
                break

    def take_gathered(self, frame: bytes, answer: bytes | Waiting | None) -> None:
        """A gathered request is answered so, or, where that is None, is to go the way of all others."""
        self._gathered -= 1
        if not self._closing:
            self._take(self._handle(frame) if answer is None else answer)

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more of it is handled, for now or ever."""
        return self._closing or self._is_held

    def take_back(self, frames: list[bytes]) -> None:
        """Gathered requests that are not handled, as one before them stopped this connection."""
        self._gathered -= len(frames)
        if frames and not self._closing:
            self._backlog.extendleft(reversed(frames))
            self._pause_reading()

    def end_turn(self) -> None:
        """Called in each turn of the loop that this connection has a part in, after every request of the turn."""
        self._is_ending_turn = False
        self.flush()
        if self._paused_reading:
            self._bytes_in_turn = 0
            self._work_off_backlog()

    def flush(self) -> None:
        """Sends the answers that are ready."""
        ready = self._ready
        if ready:
            self._ready = []
            self._ready_bytes = 0
            self._write(ready)

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self.active = True
        self._paused_writing = False
        self._pump()
        self._work_off_backlog()

    def eof_received(self) -> bool:
        self._has_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        for slot in self._slots:
            if slot.waiting is not None:
                slot.waiting.pending.abandon()
        self._slots.clear()
        self._sending.clear()
        self._ready.clear()
        self._backlog.clear()
        self._framing.forget()  # this object may live on until somebody looks for garbage
        self._give_descriptor_back()
        self._closed(self)

    def close(self, reason: str) -> None:
        """Ends the connection; answers that are not sent yet are not sent."""
        if self._gathered and not self._closing:
            self._turn.settle()
        if self._closing:
            return
        self._closing = True
        self._backlog.clear()
        self._framing.forget()
        self.flush()
        logger.info("closing the connection from %s: %s", self.peer.address if hasattr(self, "peer") else "?", reason)
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Ends the connection at once, also one that waits for its client to take its last answers."""
        self.close(reason)
        self._transport.abort()

    # Requests.
    def _handle(self, frame: bytes | bytearray) -> Outcome:
        try:
            return self._dispatch(frame, self.peer)
        except (MalformedMessageError, CloseConnectionError) as error:
            self.close(str(error))
        except PenstockError as error:
            logger.exception("an error that its handler should have answered")
            self.close(str(error))
        except Exception:
            logger.exception("a request could not be handled")
            self.close("an internal error")
        return None

    def _take(self, outcome: Outcome, is_alone: bool = False, is_watched: bool = False) -> None:
        if type(outcome) is bytes and not self._slots and not self._sending:
            self._ready.append(outcome)
            self._ready_bytes += len(outcome)
            if is_alone:
                self.flush()
                if is_watched:
                    self._turn.watch()
            else:
                self._end_turn_soon()
        elif outcome is not None:
            self._enqueue(outcome)

    def _end_turn_soon(self) -> None:
        if not self._is_ending_turn:
            self._is_ending_turn = True
            self._turn.end_soon(self)

    def _is_blocked(self) -> bool:
        return self._paused_writing or self._is_held or len(self._slots) >= IN_FLIGHT_MAX

    def _pause_reading(self) -> None:
        if not self._paused_reading and not self._closing:
            self._paused_reading = True
            self._transport.pause_reading()

    def _put_off(self, frames: list[bytes | bytearray]) -> None:
        is_blocked = self._is_blocked()
        if not frames and not is_blocked:
            return
        self._backlog.extend(frames)
        self._pause_reading()
        if not is_blocked:
            self._end_turn_soon()

    def _work_off_backlog(self) -> None:
        if self._is_working_off:
            return  # a request has answered an earlier one: its own answer comes before those of the ones behind it
        if self._gathered:
            self._turn.settle()
        self._is_working_off = True
        left, left_bytes = REQUESTS_A_TURN, WRITE_BUFFER_BYTES
        while self._backlog and not self._is_blocked() and not self._closing:
            if left <= 0 or left_bytes <= 0:
                self._end_turn_soon()
                break
            left -= 1
            outcome = self._handle(self._backlog.popleft())
            if outcome is not None:
                if type(outcome) is bytes:
                    left_bytes -= len(outcome)
                self._enqueue(outcome)
        self._is_working_off = False
        if self._paused_reading and not self._backlog and not self._is_blocked() and not self._closing:
            self._paused_reading = False
            self._transport.resume_reading()

    # Answers.
    def _enqueue(self, outcome: bytes | Parts | Waiting) -> None:
        if isinstance(outcome, Waiting):
            slot = _Slot(outcome, None)
            self._slots.append(slot)
            if outcome.pending.is_held:
                self._is_held = True
                outcome.pending.on_release = self._released
            outcome.pending.listen(lambda answer: self._answered(slot, answer))
            return
        self._slots.append(_Slot(None, outcome))
        self._send_ready()

    def _released(self) -> None:
        self._is_held = False
        self._work_off_backlog()

    def _answered(self, slot: _Slot, answer: Any) -> None:
        assert slot.waiting is not None
        waiting, slot.waiting = slot.waiting, None
        if self._closing:
            return
        slot.parts = waiting.encode(answer) or b""
        self._send_ready()
        self._work_off_backlog()

    def _send_ready(self) -> None:
        slots = self._slots
        while slots and slots[0].parts is not None:
            parts = slots.popleft().parts
            if isinstance(parts, bytes):
                self._sending.append(parts)
            elif parts is not None:
                self._sending.extend(parts)
        self._pump()

    def _pump(self) -> None:
        sending = self._sending
        if sending:
            self.flush()
        while sending and not self._paused_writing and not self._closing and not self._is_reading_file:
            part = sending.popleft()
            if isinstance(part, bytes):
                self._put(part)
            else:
                self._send_slice(part)  # type: ignore[arg-type]
        self._write_joined()
        if not sending:
            self._give_descriptor_back()

    def _put(self, data: bytes | bytearray) -> None:
        """Small neighbours leave as one: an answer with a few records is three parts."""
        if len(data) > JOINED_BYTES_MAX:
            self._write_joined()
            self._transport.write(data)
        elif data:
            self._joined.append(data)
            self._joined_bytes += len(data)
            if self._joined_bytes > JOINED_BYTES_MAX:
                self._write_joined()

    def _write_joined(self) -> None:
        joined = self._joined
        if joined:
            self._joined = []
            self._joined_bytes = 0
            self._write(joined)

    def _write(self, parts: Sequence[bytes | bytearray]) -> None:
        self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _send_slice(self, part: FileSlice) -> None:
        length = min(part.length, READ_BYTES_MAX)
        data: bytes | bytearray | BaseException | None
        try:
            if length >= SENT_FROM_FILE_BYTES and not self._has_ended and self._own_descriptor() >= 0:
                self._write_joined()
                if self._paused_writing:
                    self._sending.appendleft(part)
                    return
                sent = part.file.send_nowait(self._own_descriptor(), length, part.position)
                if sent:
                    self._keep_rest(part, sent)
                    return
                if sent == 0:
                    length = SENT_FROM_FILE_BYTES
            data = part.file.pread_nowait(length, part.position)
        except (OSError, ValueError) as error:
            data = error
        if data is not None:
            self._send_data(part, length, data)
            return
        # It stays first in the queue: nothing may overtake it.
        self._sending.appendleft(part)
        self._is_reading_file = True
        self._run_in_thread(partial(part.file.pread, length, part.position), partial(self._was_read, length))

    def _own_descriptor(self) -> int:
        """A descriptor of the socket, -1 where there is none to be had."""
        if self._descriptor is None:
            self._descriptor = -1
            socket = self._transport.get_extra_info("socket")
            if socket is not None and self._transport.get_extra_info("sslcontext") is None:
                with contextlib.suppress(OSError):  # too many are open
                    self._descriptor = os.dup(socket.fileno())
        return self._descriptor

    def _give_descriptor_back(self) -> None:
        """Descriptors are few: one that nothing is sent by is no longer needed."""
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = None

    def _keep_rest(self, part: FileSlice, sent: int) -> None:
        if sent < part.length:
            self._sending.appendleft(_Rest(part.file, part.position + sent, part.length - sent))

    def _was_read(self, length: int, data: bytes | BaseException) -> None:
        self._is_reading_file = False
        if self._closing:
            return
        self._send_data(self._sending.popleft(), length, data)  # type: ignore[arg-type]
        self._pump()
        self._work_off_backlog()

    def _send_data(self, part: FileSlice, length: int, data: bytes | bytearray | BaseException) -> None:
        if isinstance(data, BaseException):
            self.close(f"a log could not be read, or its client is gone: {data}")
            return
        if len(data) < length:
            self.close("a log was cut while it was being sent")
            return
        self._keep_rest(part, length)
        self._put(data)
