"""One turn of the loop: what arrived in it, over all connections, ends together.

Small requests with a short way are gathered as they arrive and handled at the turn's end: together they are written with
one call where each alone would need its own. Their order stays: what a connection sent behind them waits until they are
handled, and one that must go the long way after all does so before those behind it are looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.handlers.api import Peer
from penstock.server.connection import Connection
from penstock.server.dispatch import SHORT_BYTES_MAX, Waiting

logger = logging.getLogger(__name__)

GATHERED_BYTES_MAX = 1 << 20
"""With so much gathered nothing more is: a thousand clients cannot make us hold a megabyte each until the turn ends."""

WATCHED_TURNS = 32
"""After the answer to a client that asks alone the loop turns so often without sleeping: some tens of microseconds."""
MISSES_MAX = 4
"""When so many watches in a row were in vain …"""
UNWATCHED_ANSWERS = 128
"""… this many answers are not followed by one."""


class ShortWays(Protocol):
    """What handles gathered requests: `server.dispatch`."""

    @property
    def short_keys(self) -> frozenset[bytes]: ...

    def dispatch_short(self, requests: Sequence[tuple[bytes, Peer]], first: int) -> list[bytes | Waiting | None]: ...

    def begin_short(self) -> None: ...

    def settle_short(self) -> None: ...


class Turn:
    def __init__(self, ways: ShortWays | None = None) -> None:
        """Without `ways` nothing is gathered."""
        self._ways = ways
        self._short_keys = frozenset() if ways is None else ways.short_keys
        self._ending: list[Connection] = []
        self._gathered: list[tuple[bytes, Peer]] = []
        self._senders: list[Connection] = []
        """Of what was gathered."""
        self._gathered_bytes = 0
        self._latest: Connection | None = None
        self._watched_turns = 0
        """That are left of a watch."""
        self._is_watching = False
        self._misses = 0
        self._unwatched = 0

    def is_alone(self, connection: Connection) -> bool:
        """Whether the bytes that came before those that came now were this connection's too: it has nobody to wait for."""
        if self._watched_turns:
            self._watched_turns = self._misses = 0
        latest, self._latest = self._latest, connection
        return latest is connection

    def watch(self) -> None:
        """After the answer to a client that asks alone: its next request mostly comes before a processor that falls
        asleep meanwhile would be awake again, so the loop looks for it for a moment. Who does not ask so soon is not watched for long."""
        if self._misses >= MISSES_MAX:
            self._unwatched += 1
            if self._unwatched < UNWATCHED_ANSWERS:
                return
            self._unwatched = 0
        self._watched_turns = WATCHED_TURNS
        if not self._is_watching:
            self._is_watching = True
            self._plan(self._look)

    def _look(self) -> None:
        """A planned call keeps the loop from sleeping in this turn."""
        if self._watched_turns > 1:
            self._watched_turns -= 1
            self._plan(self._look)
            return
        self._is_watching = False
        if self._watched_turns:
            self._watched_turns = 0
            self._misses += 1

    def end_soon(self, connection: Connection) -> None:
        """`connection.end_turn` is called at the end of this turn."""
        if not self._ending:
            self._plan(self.end)
        self._ending.append(connection)

    def _plan(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def gather(self, connection: Connection, frame: bytes | bytearray) -> bool:
        """Takes a request that may be handled at the end of the turn, or earlier by `settle`."""
        if (
            type(frame) is not bytes
            or frame[:2] not in self._short_keys
            or len(frame) > SHORT_BYTES_MAX
            or self._gathered_bytes >= GATHERED_BYTES_MAX
        ):
            return False
        self._gathered_bytes += len(frame)
        self._gathered.append((frame, connection.peer))
        self._senders.append(connection)
        return True

    def settle(self) -> None:
        """Handles what was gathered: the short way as far as it goes, the long way for one, the short way from there on."""
        requests, senders = self._gathered, self._senders
        self._gathered, self._senders, self._gathered_bytes = [], [], 0
        at = 0
        while at < len(requests):
            try:
                assert self._ways is not None
                answers = self._ways.dispatch_short(requests, at)
            except Exception:
                logger.exception("small requests could not be handled")
                for connection in senders[at:]:
                    connection.close("an internal error")
                return
            for answer in answers:
                senders[at].take_gathered(requests[at][0], answer)
                at += 1
            if not answers:
                sender = senders[at]
                sender.take_gathered(requests[at][0], None)
                at += 1
                if sender.is_stopped:
                    sender.take_back([requests[n][0] for n in range(at, len(requests)) if senders[n] is sender])
                    left = [number for number in range(at, len(requests)) if senders[number] is not sender]
                    requests, senders, at = [requests[n] for n in left], [senders[n] for n in left], 0

    def end(self) -> None:
        """After every request of the turn."""
        try:
            if self._gathered:
                assert self._ways is not None
                self._ways.begin_short()
                try:
                    self.settle()
                finally:
                    self._ways.settle_short()
        finally:
            connections, self._ending = self._ending, []
            for connection in connections:
                connection.end_turn()
