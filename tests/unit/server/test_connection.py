"""Answers leave in the order of their requests; a client that does not read is not served on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.handlers.api import CloseConnectionError, Peer, Pending
from penstock.protocol.errors import MalformedMessageError
from penstock.server import connection as module
from penstock.server.connection import (
    IN_FLIGHT_MAX,
    READ_BYTES_MAX,
    REQUESTS_A_TURN,
    ROOM_BYTES,
    WRITE_BUFFER_BYTES,
    Connection,
)
from penstock.server.dispatch import Outcome, Waiting
from penstock.server.listener import Server
from penstock.server.turn import Turn


class ManualTurn(Turn):
    """Ends, and looks for requests, when a test says so."""

    is_planned = False
    is_looking = False

    def _plan(self, call: Callable[[], None]) -> None:
        if call == self.end:
            self.is_planned = True
        else:
            assert not self.is_looking
            self.is_looking = True

    def end(self) -> None:
        self.is_planned = False
        super().end()

    def look(self) -> None:
        self.is_looking = False
        self._look()


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False
        self.aborted = False
        self.unsent_bytes = 0
        self.turn = ManualTurn()
        self.jobs: list[Callable[[], object]] = []

    def run_in_thread(self, job: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Jobs wait here until a test runs them."""

        def run() -> None:
            try:
                result = job()
            except OSError as error:
                result = error
            done(result)

        self.jobs.append(run)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    @property
    def sent(self) -> bytes:
        """What was sent by the end of the turn."""
        while self.turn.is_planned:
            self.turn.end()
        return b"".join(self.written)


class FakeFile:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[int] = []
        self.is_cold = False

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        return None if self.is_cold else self.pread(length, position)

    def pread(self, length: int, position: int) -> bytes:
        self.reads.append(length)
        return self.data[position : position + length]


class FileSlice:
    def __init__(self, file: FakeFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def connect(dispatch: Callable[[Any, Peer], Outcome], *, may_open: bool = True) -> tuple[Connection, FakeTransport]:
    transport = FakeTransport()
    return connected(dispatch, transport, may_open=may_open), transport


def connected(
    dispatch: Callable[[Any, Peer], Outcome],
    transport: FakeTransport,
    *,
    may_open: bool = True,
    frame_bytes_max: int = 1000,
) -> Connection:
    made = Connection(
        dispatch,
        listener="PLAINTEXT",
        frame_bytes_max=frame_bytes_max,
        room=memoryview(bytearray(ROOM_BYTES)),
        opened=lambda _: may_open,
        closed=lambda _: None,
        turn=transport.turn,
        run_in_thread=transport.run_in_thread,
    )
    made.connection_made(transport)
    return made


def receive(connection: Connection, data: bytes) -> None:
    """As the event loop gives a connection what came: to where it wants it, and as much as it has room for."""
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        connection.buffer_updated(count)


def echo(payload: bytes, _peer: Peer) -> Outcome:
    return bytes(payload)


class Later:
    """A dispatcher whose answers come when they are told to; `now...` is answered at once."""

    def __init__(self) -> None:
        self.pending: list[Pending[bytes]] = []

    def __call__(self, payload: bytes, _peer: Peer) -> Outcome:
        if payload.startswith(b"now"):
            return bytes(payload)
        pending: Pending[bytes] = Pending()
        self.pending.append(pending)
        return Waiting(pending, lambda answer: bytes(payload) + answer)


def test_requests_in_one_packet_are_answered_in_one_write() -> None:
    made, transport = connect(echo)
    receive(made, frame(b"a") + frame(b"b") + frame(b"c"))
    assert transport.written == []
    assert transport.sent == b"abc"
    assert len(transport.written) == 1


def test_an_early_answer_waits_for_the_ones_before_it() -> None:
    later = Later()
    made, transport = connect(later)
    receive(made, frame(b"1") + frame(b"2") + frame(b"now3"))
    later.pending[1].resolve(b".")
    assert transport.sent == b""
    later.pending[0].resolve(b".")
    assert transport.sent == b"1.2.now3"


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_answers_leave_in_order_however_they_come(order: list[int], at_once: set[int]) -> None:
    later = Later()
    made, transport = connect(later)
    waiting = [number for number in range(6) if number not in at_once]
    for number in range(6):
        receive(made, frame(b"now%d;" % number if number in at_once else b"%d;" % number))
    for number in order:
        if number in waiting:
            later.pending[waiting.index(number)].resolve(b"")
    assert transport.sent.replace(b"now", b"") == b"0;1;2;3;4;5;"


def test_a_request_without_answer_leaves_no_gap() -> None:
    made, transport = connect(lambda payload, _: None if payload == b"-" else bytes(payload))
    receive(made, frame(b"a") + frame(b"-") + frame(b"b"))
    assert transport.sent == b"ab"


def test_too_many_requests_under_way_stop_the_reading_until_some_are_answered() -> None:
    later = Later()
    made, transport = connect(later)
    receive(made, frame(b"x") * (IN_FLIGHT_MAX + 5))
    assert len(later.pending) == IN_FLIGHT_MAX
    assert not transport.reading
    for pending in tuple(later.pending[:5]):
        pending.resolve(b"")
    assert len(later.pending) == IN_FLIGHT_MAX + 5
    assert not transport.reading, "still as many under way as may be"
    later.pending[5].resolve(b"")
    assert transport.reading


def test_a_client_that_does_not_read_is_not_served_on() -> None:
    # A5
    made, transport = connect(echo)
    made.pause_writing()
    receive(made, frame(b"a") + frame(b"b"))
    assert transport.sent == b""
    assert not transport.reading
    made.resume_writing()
    assert transport.sent == b"ab"
    assert transport.reading


def test_a_client_that_sends_without_pause_lets_the_others_have_their_turn() -> None:
    made, transport = connect(lambda _payload, _peer: b"a")
    packet = frame(bytes(900)) * 10
    packets = -(-READ_BYTES_MAX // len(packet))
    were_read = []
    for _ in range(packets):
        were_read.append(transport.reading)
        receive(made, packet)
    assert all(were_read)
    assert (transport.reading, transport.written) == (False, [])
    assert transport.sent == b"a" * 10 * packets
    assert transport.reading, "the next turn is its own again"
    receive(made, packet)
    assert transport.reading


def test_long_answers_to_short_requests_do_not_pile_up_before_a_client_that_does_not_read() -> None:
    # A5
    answered: list[bytes] = []

    def dispatch(payload: bytes, _peer: Peer) -> Outcome:
        answered.append(payload)
        return bytes(WRITE_BUFFER_BYTES // 2)

    made, transport = connect(dispatch)
    original = transport.write

    def write_and_pause(data: bytes | bytearray | memoryview) -> None:
        original(data)
        made.pause_writing()

    transport.write = write_and_pause  # type: ignore[method-assign]
    receive(made, frame(b"x") * 50)
    assert len(answered) == 3, "what fills the buffer, in the middle of the turn"
    assert not transport.reading
    made.resume_writing()
    assert len(answered) == 4
    assert transport.sent == bytes(4 * (WRITE_BUFFER_BYTES // 2))


def test_long_answers_leave_room_for_others_in_each_turn() -> None:
    made, transport = connect(lambda payload, _: bytes(WRITE_BUFFER_BYTES // 2))
    receive(made, frame(b"x") * 20)
    sizes = [sum(map(len, transport.written))]
    while transport.turn.is_planned:
        transport.turn.end()
        sizes.append(sum(map(len, transport.written)))
    assert sizes[-1] == 20 * (WRITE_BUFFER_BYTES // 2)
    assert max(after - before for before, after in itertools.pairwise(sizes)) <= 2 * WRITE_BUFFER_BYTES
    assert transport.reading


def test_a_client_with_many_requests_lets_others_have_their_turn() -> None:
    answered: list[bytes] = []

    def dispatch(payload: bytes, _peer: Peer) -> Outcome:
        answered.append(payload)
        return bytes(payload) + b";"

    made, transport = connect(dispatch)
    wanted = [b"%d" % number for number in range(2 * REQUESTS_A_TURN + 5)]
    receive(made, b"".join(map(frame, wanted)))
    assert len(answered) == REQUESTS_A_TURN
    was_reading, turns = transport.reading, 0
    while transport.turn.is_planned:
        transport.turn.end()
        turns += 1
    assert turns >= 2
    assert answered == wanted
    assert (was_reading, transport.reading) == (False, True)
    assert transport.sent == b"".join(one + b";" for one in wanted)


def test_a_request_that_answers_an_earlier_one_is_not_overtaken_by_what_waits_behind_it() -> None:
    joins: list[Pending[bytes]] = []

    def dispatch(payload: bytes, _peer: Peer) -> Outcome:
        """A second member lets the first one's join end, at once."""
        if payload == b"complete":
            joins.pop().resolve(b"joined;")
        elif payload == b"join":
            joins.append(Pending())
            return Waiting(joins[-1], lambda answer: answer)
        return bytes(payload) + b";"

    made, transport = connect(dispatch)
    receive(made, frame(b"join"))
    made.pause_writing()
    receive(made, frame(b"complete") + frame(b"next") + frame(b"last"))
    made.resume_writing()
    assert transport.sent == b"joined;complete;next;last;"


def served(dispatch: Callable[[Any, Peer], Outcome] = echo) -> tuple[Server, Connection, FakeTransport]:
    transport = FakeTransport()
    server = Server(
        dispatch, frame_bytes_max=1000, connections_max=10, backlog=5, run_in_thread=transport.run_in_thread
    )
    made = server._connection("PLAINTEXT")
    made.connection_made(transport)
    return server, made, transport


def test_a_connection_is_closed_when_nothing_came_for_a_whole_interval() -> None:
    # A5
    server, made, transport = served(lambda payload, _: None)
    assert server.close_idle() == 0
    receive(made, frame(b"a"))
    assert server.close_idle() == 0
    closed_before = transport.closed
    assert server.close_idle() == 1
    assert (closed_before, transport.closed) == (False, True)
    assert not transport.aborted, "what it was sent may still arrive"


def test_whoever_waits_for_an_answer_is_not_idle() -> None:
    server, made, transport = served(Later())
    receive(made, frame(b"a"))
    for _ in range(5):
        assert server.close_idle() == 0
    assert not transport.closed


def test_a_client_that_takes_nothing_of_its_answers_for_a_whole_interval_is_shown_out() -> None:
    # A5
    server, made, transport = served()
    made.pause_writing()
    receive(made, frame(b"a"))
    transport.unsent_bytes = 1000
    assert server.close_idle() == 0
    transport.unsent_bytes = 999
    assert server.close_idle() == 0, "slow, but it reads"
    made.resume_writing()
    assert server.close_idle() == 0, "it has read everything, and was sent as much again"
    assert server.close_idle() == 1
    assert transport.aborted, "closing alone would wait for the client for ever"


def test_a_closed_connection_does_not_wait_for_ever_for_its_client_to_read() -> None:
    # A5
    server, made, transport = served()
    receive(made, b"\x7f\xff\xff\xff")
    assert transport.closed
    transport.unsent_bytes = 1000
    assert server.close_idle() == 0
    assert server.close_idle() == 1
    assert transport.aborted


def test_a_slice_is_read_a_megabyte_at_a_time_as_the_socket_drains() -> None:
    file = FakeFile(b"x" * (2 * READ_BYTES_MAX + 10))
    made, transport = connect(lambda payload, _: [b"head", FileSlice(file, 0, len(file.data)), b"tail"])
    original = transport.write

    def write_and_pause(data: bytes | bytearray | memoryview) -> None:
        original(data)
        if len(data) > 100:
            made.pause_writing()

    transport.write = write_and_pause  # type: ignore[method-assign]
    receive(made, frame(b"a"))
    assert file.reads == [READ_BYTES_MAX]
    made.resume_writing()
    assert file.reads == [READ_BYTES_MAX] * 2
    made.resume_writing()
    assert file.reads == [READ_BYTES_MAX] * 2 + [10]
    assert transport.sent == b"head" + file.data + b"tail"


def test_a_file_that_shrank_closes_the_connection_rather_than_lie() -> None:
    file = FakeFile(b"short")
    made, transport = connect(lambda payload, _: [b"head", FileSlice(file, 0, 100)])
    receive(made, frame(b"a"))
    assert transport.closed


def test_what_is_not_in_memory_is_read_on_a_thread_and_nothing_overtakes_it() -> None:
    file = FakeFile(b"cold" * 10)
    file.is_cold = True
    answers: list[Any] = [[b"head", FileSlice(file, 0, 40)], b"after"]
    made, transport = connect(lambda payload, _: answers.pop(0))
    receive(made, frame(b"a") + frame(b"b"))
    assert transport.sent == b"head"
    assert file.reads == []
    (job,) = transport.jobs
    job()
    assert transport.sent == b"head" + file.data + b"after"
    assert not made.is_busy


def test_a_cold_slice_larger_than_a_megabyte_comes_piece_by_piece() -> None:
    file = FakeFile(bytes(READ_BYTES_MAX + 5))
    file.is_cold = True
    made, transport = connect(lambda payload, _: [b"", FileSlice(file, 0, READ_BYTES_MAX + 5)])
    receive(made, frame(b"a"))
    while transport.jobs:
        transport.jobs.pop(0)()
    assert file.reads == [READ_BYTES_MAX, 5]
    assert transport.sent == file.data


def test_a_client_that_left_during_a_cold_read_is_sent_nothing() -> None:
    file = FakeFile(b"cold")
    file.is_cold = True
    made, transport = connect(lambda payload, _: [b"head", FileSlice(file, 0, 4)])
    receive(made, frame(b"a"))
    made.connection_lost(None)
    transport.jobs.pop()()
    assert transport.sent == b"head"


@pytest.mark.parametrize("error", [MalformedMessageError("bad"), CloseConnectionError("gone"), RuntimeError("a bug")])
def test_an_error_closes_this_connection_and_answers_nothing_after_it(error: Exception) -> None:
    def dispatch(payload: bytes, _peer: Peer) -> Outcome:
        if payload == b"bad":
            raise error
        return bytes(payload)

    made, transport = connect(dispatch)
    receive(made, frame(b"a") + frame(b"bad") + frame(b"b"))
    assert transport.closed
    assert transport.sent == b"a"


def test_a_frame_over_the_limit_closes_the_connection() -> None:
    # A1
    made, transport = connect(echo)
    receive(made, b"\x7f\xff\xff\xff")
    assert transport.closed


def test_a_lost_connection_abandons_what_it_waited_for() -> None:
    later = Later()
    made, transport = connect(later)
    abandoned: list[int] = []
    receive(made, frame(b"1"))
    later.pending[0]._on_abandon = lambda: abandoned.append(1)
    made.connection_lost(None)
    assert abandoned == [1]
    later.pending[0].resolve(b"late")
    assert transport.sent == b""


def test_one_connection_too_many_is_closed() -> None:
    # A14
    _, transport = connect(echo, may_open=False)
    assert transport.closed


def test_the_limits_are_what_the_documentation_says() -> None:
    assert module.READ_BYTES_MAX == 1 << 20
