"""Bytes to frames. Pure.

A frame is a length (int32) and that many bytes. Nothing is set aside for a claimed length: chunks are kept as they come
and joined when the last is there. A frame that came in one piece is `bytes`; a joined one is a `bytearray`, so that a
batch in it can be stamped in place.
"""

from __future__ import annotations

from penstock.base.errors import PenstockError
from penstock.protocol.primitives import INT32


class FrameLimitError(PenstockError):
    """A frame claims a length that no frame may have."""


class Framing:
    """One connection's incoming bytes. After an error it is of no further use."""

    __slots__ = ("_chunks", "_frame_bytes_max", "_head", "_missing")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._head = b""
        self._chunks: list[bytes | memoryview] = []
        self._missing = 0

    @property
    def buffered_bytes(self) -> int:
        return len(self._head) + sum(map(len, self._chunks))

    def feed(self, data: bytes) -> list[bytes | bytearray]:
        """The frames that `data` completes, in order."""
        position = 0
        frames: list[bytes | bytearray] = []
        if self._missing:
            if len(data) < self._missing:
                self._chunks.append(data)
                self._missing -= len(data)
                return frames
            position = self._missing
            self._chunks.append(memoryview(data)[:position])
            frames.append(bytearray().join(self._chunks))
            self._chunks = []
            self._missing = 0
        elif self._head:
            data = self._head + data
            self._head = b""
        available = len(data)
        while True:
            start = position + 4
            if start > available:
                self._head = data[position:]
                return frames
            (length,) = INT32.unpack_from(data, position)
            end = start + length
            if end <= available and 0 <= length <= self._frame_bytes_max:
                frames.append(data[start:end])
                position = end
                if position == available:
                    return frames
                continue
            if not 0 <= length <= self._frame_bytes_max:
                raise FrameLimitError(f"a frame claims {length} bytes; at most {self._frame_bytes_max} are allowed")
            self._chunks = [memoryview(data)[start:]]
            self._missing = end - available
            return frames
