"""Bytes to frames. Pure.

A frame is a length (int32) and that many bytes. Nothing is set aside for a claimed length before a part of the frame is
there: until then what came is kept. From then on the rest is put straight to where it belongs. A frame that
came in one piece is `bytes`; another is a `bytearray`, so that a batch in it can be stamped in place.
"""

from __future__ import annotations

from penstock.base.errors import PenstockError
from penstock.base.memory_kernels import unfilled
from penstock.protocol.primitives import INT32

SET_ASIDE_FROM = 16
"""When a frame's sixteenth is there, memory for all of it is asked for."""


class FrameLimitError(PenstockError):
    """A frame claims a length that no frame may have."""


class Framing:
    """One connection's incoming bytes. After an error it is of no further use."""

    __slots__ = ("_begun", "_frame", "_frame_bytes_max", "_head", "_length", "_missing", "rest")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self.rest: memoryview | None
        """Where the next bytes belong, to be put there and told by `filled`; None: they go to `feed`."""
        self.forget()

    def forget(self) -> None:
        """What came of a frame that will never be whole."""
        self._head = b""
        self._begun = bytearray()
        """Of a frame for which nothing is set aside."""
        self._length = 0
        self._missing = 0
        self._frame: bytearray | None = None
        self.rest = None

    @property
    def buffered_bytes(self) -> int:
        return len(self._head) + (self._length - self._missing if self._missing else 0)

    def filled(self, count: int) -> list[bytes | bytearray]:
        """The frame whose `rest` is there by these bytes, if it is."""
        assert self._frame is not None
        assert self.rest is not None
        self._missing -= count
        if self._missing:
            self.rest = self.rest[count:]
            return []
        frame, self._frame, self.rest = self._frame, None, None
        return [frame]

    def feed(self, data: bytes) -> list[bytes | bytearray]:
        """The frames that `data` completes, in order."""
        position = 0
        frames: list[bytes | bytearray] = []
        if self._missing:
            position = min(self._missing, len(data))
            if self.rest is not None:
                self.rest[:position] = data[:position]
                frames = self.filled(position)
            else:
                self._keep(memoryview(data)[:position])
                if not self._missing:
                    frames.append(self._begun)
                    self._begun = bytearray()
            if self._missing:
                return frames
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
            self._length = self._missing = length
            self._keep(memoryview(data)[start:])
            return frames

    def _keep(self, piece: memoryview) -> None:
        """Of a frame, its last one perhaps."""
        begun = self._begun
        begun += piece
        self._missing -= len(piece)
        if self._missing and len(begun) * SET_ASIDE_FROM >= self._length:
            self._frame = unfilled(self._length)
            self._frame[: len(begun)] = begun
            self.rest = memoryview(self._frame)[len(begun) :]
            self._begun = bytearray()
