"""Frames come out whole and in order, however the bytes were cut."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.framing import SET_ASIDE_FROM, FrameLimitError, Framing


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def give(framing: Framing, data: bytes) -> list[bytes | bytearray]:
    """As a connection does: bytes of a frame that has its place are put there, others are fed."""
    frames: list[bytes | bytearray] = []
    while data:
        if framing.rest is None:
            return frames + framing.feed(data)
        count = min(len(framing.rest), len(data))
        framing.rest[:count] = data[:count]
        frames += framing.filled(count)
        data = data[count:]
    return frames


@given(
    st.lists(st.binary(max_size=60), max_size=12),
    st.lists(st.integers(0, 500), max_size=30),
    st.lists(st.sampled_from([give, Framing.feed])),
)
def test_any_cut_of_the_stream_gives_the_same_frames(
    payloads: list[bytes], cuts: list[int], ways: list[Callable[[Framing, bytes], list[bytes | bytearray]]]
) -> None:
    stream = b"".join(map(framed, payloads))
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    framing = Framing(1000)
    frames: list[bytes | bytearray] = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        way = ways[number] if number < len(ways) else give
        frames += way(framing, stream[start:end])
        begun = end - sum(4 + len(one) for one in frames)  # of the next frame, with its length
        assert framing.buffered_bytes == (begun - 4 if begun >= 4 else begun)
    assert list(map(bytes, frames)) == payloads


def test_a_frame_in_pieces_is_joined_into_writable_bytes() -> None:
    framing = Framing(1000)
    assert framing.feed(framed(b"abcdef")[:7]) == []
    (frame,) = framing.feed(b"def")
    assert isinstance(frame, bytearray)
    assert frame == b"abcdef"


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1, 0x16030100])
def test_a_length_that_may_not_be_is_refused_and_nothing_is_set_aside(length: int) -> None:
    # A1
    framing = Framing(1000)
    with pytest.raises(FrameLimitError):
        framing.feed(length.to_bytes(4, "big", signed=True))
    assert framing.buffered_bytes == 0


@pytest.mark.parametrize("arrived", [4, 10, 1100])
def test_a_frame_over_the_limit_is_refused_however_much_of_it_is_there(arrived: int) -> None:
    # A1
    with pytest.raises(FrameLimitError):
        Framing(1000).feed(framed(bytes(1001))[:arrived])


def test_a_slow_sender_costs_only_what_it_sent() -> None:
    # A1, A5
    framing = Framing(100_000_000)
    framing.feed((90_000_000).to_bytes(4, "big"))
    for _ in range(10):
        framing.feed(b"x")
    assert framing.buffered_bytes == 10
    framing.feed(bytes(90_000_000 // SET_ASIDE_FROM - 11))
    assert framing.rest is None
    framing.feed(b"x")
    assert framing.rest is not None


def test_a_sender_of_single_bytes_costs_little_more_than_what_it_sent() -> None:
    # A5
    framing = Framing(100_000_000)
    framing.feed((100_000_000).to_bytes(4, "big"))
    tracemalloc.start()
    for _ in range(20_000):
        framing.feed(b"x")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert framing.buffered_bytes == 20_000
    assert held < 2 * 20_000


def test_a_frame_as_long_as_the_limit_passes() -> None:
    framing = Framing(5)
    assert framing.feed(framed(b"12345")) == [b"12345"]
