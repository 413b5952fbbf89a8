"""Answers leave in the order of their requests; a client that does not read is not served on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.handlers.api import CloseConnectionError, Peer, Pending
from penstock.protocol.errors import MalformedMessageError
from penstock.server import connection as module
from penstock.server.connection import IN_FLIGHT_MAX, READ_BYTES_MAX, Connection
from penstock.server.dispatch import Outcome, Waiting


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False
        self.turn_ends: list[Connection] = []
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

    @property
    def sent(self) -> bytes:
        """What was sent by the end of the turn."""
        while self.turn_ends:
            self.turn_ends.pop(0).flush()
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
    made = Connection(
        dispatch,
        listener="PLAINTEXT",
        frame_bytes_max=1000,
        opened=lambda _: may_open,
        closed=lambda _: None,
        flush_soon=transport.turn_ends.append,
        run_in_thread=transport.run_in_thread,
    )
    made.connection_made(transport)
    return made, transport


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
    made.data_received(frame(b"a") + frame(b"b") + frame(b"c"))
    assert transport.written == []
    assert transport.sent == b"abc"
    assert len(transport.written) == 1


def test_an_early_answer_waits_for_the_ones_before_it() -> None:
    later = Later()
    made, transport = connect(later)
    made.data_received(frame(b"1") + frame(b"2") + frame(b"now3"))
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
        made.data_received(frame(b"now%d;" % number if number in at_once else b"%d;" % number))
    for number in order:
        if number in waiting:
            later.pending[waiting.index(number)].resolve(b"")
    assert transport.sent.replace(b"now", b"") == b"0;1;2;3;4;5;"


def test_a_request_without_answer_leaves_no_gap() -> None:
    made, transport = connect(lambda payload, _: None if payload == b"-" else bytes(payload))
    made.data_received(frame(b"a") + frame(b"-") + frame(b"b"))
    assert transport.sent == b"ab"


def test_too_many_requests_under_way_stop_the_reading_until_some_are_answered() -> None:
    later = Later()
    made, transport = connect(later)
    made.data_received(frame(b"x") * (IN_FLIGHT_MAX + 5))
    assert len(later.pending) == IN_FLIGHT_MAX
    assert not transport.reading
    for pending in tuple(later.pending[:5]):
        pending.resolve(b"")
    assert len(later.pending) == IN_FLIGHT_MAX + 5
    assert not transport.reading, "still as many under way as may be"
    later.pending[5].resolve(b"")
    assert transport.reading


def test_a_client_that_does_not_read_is_not_served_on() -> None:
    made, transport = connect(echo)
    made.pause_writing()
    made.data_received(frame(b"a") + frame(b"b"))
    assert transport.sent == b""
    assert not transport.reading
    made.resume_writing()
    assert transport.sent == b"ab"
    assert transport.reading


def test_a_client_that_sends_without_pause_lets_the_others_have_their_turn() -> None:
    made, transport = connect(echo)
    packet = frame(bytes(900)) * 100
    packets = -(-READ_BYTES_MAX // len(packet))
    were_read = []
    for _ in range(packets):
        were_read.append(transport.reading)
        made.data_received(packet)
    assert all(were_read)
    assert (transport.reading, transport.written) == (False, [])
    assert transport.sent == bytes(900) * 100 * packets
    assert transport.reading, "the next turn is its own again"
    made.data_received(packet)
    assert transport.reading


def test_a_slice_is_read_a_megabyte_at_a_time_as_the_socket_drains() -> None:
    file = FakeFile(b"x" * (2 * READ_BYTES_MAX + 10))
    made, transport = connect(lambda payload, _: [b"head", FileSlice(file, 0, len(file.data)), b"tail"])
    original = transport.write

    def write_and_pause(data: bytes | bytearray | memoryview) -> None:
        original(data)
        if len(data) > 100:
            made.pause_writing()

    transport.write = write_and_pause  # type: ignore[method-assign]
    made.data_received(frame(b"a"))
    assert file.reads == [READ_BYTES_MAX]
    made.resume_writing()
    assert file.reads == [READ_BYTES_MAX] * 2
    made.resume_writing()
    assert file.reads == [READ_BYTES_MAX] * 2 + [10]
    assert transport.sent == b"head" + file.data + b"tail"


def test_a_file_that_shrank_closes_the_connection_rather_than_lie() -> None:
    file = FakeFile(b"short")
    made, transport = connect(lambda payload, _: [b"head", FileSlice(file, 0, 100)])
    made.data_received(frame(b"a"))
    assert transport.closed


def test_what_is_not_in_memory_is_read_on_a_thread_and_nothing_overtakes_it() -> None:
    file = FakeFile(b"cold" * 10)
    file.is_cold = True
    answers: list[Any] = [[b"head", FileSlice(file, 0, 40)], b"after"]
    made, transport = connect(lambda payload, _: answers.pop(0))
    made.data_received(frame(b"a") + frame(b"b"))
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
    made.data_received(frame(b"a"))
    while transport.jobs:
        transport.jobs.pop(0)()
    assert file.reads == [READ_BYTES_MAX, 5]
    assert transport.sent == file.data


def test_a_client_that_left_during_a_cold_read_is_sent_nothing() -> None:
    file = FakeFile(b"cold")
    file.is_cold = True
    made, transport = connect(lambda payload, _: [b"head", FileSlice(file, 0, 4)])
    made.data_received(frame(b"a"))
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
    made.data_received(frame(b"a") + frame(b"bad") + frame(b"b"))
    assert transport.closed
    assert transport.sent == b"a"


def test_a_frame_over_the_limit_closes_the_connection() -> None:
    made, transport = connect(echo)
    made.data_received(b"\x7f\xff\xff\xff")
    assert transport.closed


def test_a_lost_connection_abandons_what_it_waited_for() -> None:
    later = Later()
    made, transport = connect(later)
    abandoned: list[int] = []
    made.data_received(frame(b"1"))
    later.pending[0]._on_abandon = lambda: abandoned.append(1)
    made.connection_lost(None)
    assert abandoned == [1]
    later.pending[0].resolve(b"late")
    assert transport.sent == b""


def test_one_connection_too_many_is_closed() -> None:
    _, transport = connect(echo, may_open=False)
    assert transport.closed


def test_the_limits_are_what_the_documentation_says() -> None:
    assert module.READ_BYTES_MAX == 1 << 20
