"""A simulated network: frames between brokers, delayed, in order on each link, lost where the way is cut.

A link that breaks answers everything on its way with an error, as a socket does; whether the other side did it is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from penstock.base.errors import PenstockError
from penstock.peers.errors import PeerUnreachableError
from penstock.peers.link import Answered, Body
from penstock.protocol.primitives import skip_tags
from tests.simulation.events import Events, NodeLoop

BREAK_MS = 200
"""When a sender notices that the other side is gone."""
TIMEOUT_MS = 3_000
"""How long it waits for one that is silent."""


LATE_MS = 1_000
"""How long a request may lie at a host when its sender has given the connection up, and asks on another one."""
NEVER_LATE = (b"\x00\x08\x00\x09", b"\x00\x1a\x00\x04", b"\x00\x1c\x00\x03")
"""OffsetCommit 9, EndTxn 4 and TxnOffsetCommit 3: late ones count for what came after them, which of these only transactions of
the newer protocol know to refuse (KAFKA-17754)."""


class Host(Protocol):
    loop: NodeLoop

    def serve(self, frame: bytes, answered: Callable[[bytes], object], failed: Callable[[], object]) -> None: ...


class Network:
    def __init__(self, events: Events) -> None:
        self.events = events
        self.hosts: dict[int, Host] = {}
        """Who listens now."""
        self.cuts: set[tuple[int, int]] = set()
        """One-way: nothing goes from the first to the second."""
        self._links: list[SimLink] = []

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts

    def link(self, source: int, target: int, loop: NodeLoop) -> SimLink:
        self._links = [one for one in self._links if not one.is_closed]
        self._links.append(SimLink(self, source, target, loop))
        return self._links[-1]

    def died(self, target: int) -> None:
        """A process ended: whoever is connected to it hears of that."""
        self.hosts.pop(target, None)
        for link in self._links:
            if link.target == target:
                link.host_died()


class SimLink:
    def __init__(self, network: Network, source: int, target: int, loop: NodeLoop) -> None:
        self._network = network
        self._source, self.target = source, target
        self._loop = loop
        self._events = network.events
        self._correlation_id = 0
        self._waiting: deque[tuple[int, Answered]] = deque()
        self._due: deque[tuple[Answered, Body | PenstockError]] = deque()
        """Answers that are there, but for a turn of the loop."""
        self._host: Host | None = None
        self._answers: dict[int, bytes] = {}
        self._order: deque[int] = deque()
        self._life = 0
        self._is_breaking = False
        self._last_there_ms = self._last_back_ms = 0
        self.is_closed = False

    def call(self, api_key: int, version: int, body: bytes, answered: Answered) -> None:
        if self.is_closed:
            return
        self._correlation_id += 1
        number = self._correlation_id
        frame = frame_of(api_key, version, number, body)
        self._waiting.append((number, answered))
        life = self._life
        due_ms = max(self._events.now_ms + self._delay_ms(), self._last_there_ms)
        self._last_there_ms = due_ms
        self._events.at(due_ms - self._events.now_ms, lambda: self._arrive(life, number, frame))
        self._events.at(TIMEOUT_MS, lambda: self._check(life, number))

    def _check(self, life: int, number: int) -> None:
        if life == self._life and self._waiting and self._waiting[0][0] <= number:
            self._break(life)

    def _delay_ms(self) -> int:
        chance = self._events.chance
        return chance.randrange(300) if chance.random() < 0.01 else chance.randrange(4)

    def _arrive(self, life: int, number: int, frame: bytes) -> None:
        host = self._network.hosts.get(self.target)
        is_given_up = life != self._life or self.is_closed or self._is_breaking
        if (
            is_given_up
            or host is None
            or host.loop.is_dead
            or self._host not in (None, host)
            or self._network.is_cut(self._source, self.target)
        ):
            if not is_given_up:
                self._break_later(life)
            if host is not None and self._host is host:
                self._arrive_late(host, frame)
            return
        self._host = host
        self._order.append(number)
        host.loop.call_soon(
            lambda: host.serve(
                frame, lambda answer: self._answered(life, number, answer), lambda: self._break_later(life)
            )
        )

    def _arrive_late(self, host: Host, frame: bytes) -> None:
        """What was sent may come when nobody waits for it any more, and after what was sent later on another connection."""
        if frame[:4] in NEVER_LATE or self._events.chance.random() < 0.5:
            return

        def arrive() -> None:
            if not self._network.is_cut(self._source, self.target):
                host.loop.call_soon(lambda: host.serve(frame, lambda _answer: None, lambda: None))

        self._events.at(self._events.chance.randrange(LATE_MS), arrive)

    def _answered(self, life: int, number: int, answer: bytes) -> None:
        if life != self._life:
            return
        self._answers[number] = answer
        while self._order and self._order[0] in self._answers:
            ready = self._order.popleft()
            content = self._answers.pop(ready)
            due_ms = max(self._events.now_ms + self._delay_ms(), self._last_back_ms)
            self._last_back_ms = due_ms
            self._events.at(due_ms - self._events.now_ms, partial(self._back, life, ready, content))

    def _back(self, life: int, number: int, content: bytes) -> None:
        if life != self._life or self.is_closed or self._is_breaking:
            return
        if self._network.is_cut(self.target, self._source):
            self._break_later(life)
            return
        expected, answered = self._waiting.popleft()
        assert expected == number, "answers come in order"
        body = Body(bytearray(content[4:]), skip_tags(content, 8) - 4)
        self._tell_soon(answered, body)

    def _tell_soon(self, answered: Answered, answer: Body | PenstockError) -> None:
        self._due.append((answered, answer))
        self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        if self._due:
            answered, answer = self._due.popleft()
            answered(answer)

    def host_died(self) -> None:
        self._break_later(self._life)

    def _break_later(self, life: int) -> None:
        if life != self._life or self._is_breaking:
            return
        self._is_breaking = True
        self._events.at(BREAK_MS, lambda: self._break(life))

    def _break(self, life: int) -> None:
        if life != self._life or self.is_closed:
            return
        self._life += 1
        self._is_breaking = False
        waiting, self._waiting = self._waiting, deque()
        self._host = None
        self._answers, self._order = {}, deque()
        error: PenstockError = PeerUnreachableError("the connection broke")
        for _, answered in waiting:
            self._tell_soon(answered, error)

    def give_up(self) -> None:
        unanswered = [answered for answered, _ in self._due] + [answered for _, answered in self._waiting]
        self.close()
        for answered in unanswered:
            answered(PeerUnreachableError("the broker is gone"))

    def close(self) -> None:
        self.is_closed = True
        self._life += 1
        self._waiting.clear()
        self._due.clear()


def frame_of(api_key: int, version: int, number: int, body: bytes) -> bytes:
    """A request of a client named `s`, in a flexible version."""
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + number.to_bytes(4, "big") + b"\x00\x01s\x00" + body


def content_of(parts: Any) -> bytes:
    """The bytes of an answer: those, or parts of which some are slices of files."""
    if isinstance(parts, bytes):
        return parts
    return b"".join(part if isinstance(part, bytes) else part.file.pread(part.length, part.position) for part in parts)
