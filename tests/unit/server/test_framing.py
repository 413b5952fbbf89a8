"""Frames come out whole and in order, however the bytes were cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.framing import FrameLimitError, Framing


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.binary(max_size=60), max_size=12), st.lists(st.integers(0, 500), max_size=30))
def test_any_cut_of_the_stream_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, payloads))
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    framing = Framing(1000)
    frames: list[bytes | bytearray] = []
    for start, end in itertools.pairwise(edges):
        frames += framing.feed(stream[start:end])
    assert list(map(bytes, frames)) == payloads
    assert framing.buffered_bytes == 0


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


def test_a_frame_as_long_as_the_limit_passes() -> None:
    framing = Framing(5)
    assert framing.feed(framed(b"12345")) == [b"12345"]
