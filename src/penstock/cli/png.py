"""Curves as a PNG, with nothing but the standard library: a canvas of bytes, straight lines, and letters of five by seven."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Colour = tuple[int, int, int]

WHITE, BLACK, GREY, BLUE, ORANGE = (255, 255, 255), (40, 40, 40), (225, 225, 225), (31, 119, 180), (230, 120, 20)
SCALE = 2
_GLYPHS = {
    "0": "0e1113151911 0e", "1": "040c040404040e", "2": "0e11010204081f", "3": "1f02040201110e", "4": "02060a121f0202",
    "5": "1f101e0101110e", "6": "0608101e11110e", "7": "1f010204080808", "8": "0e11110e11110e", "9": "0e11110f01020c",
    "a": "00000e010f110f", "b": "10101619111 11e", "c": "00000e1010110e", "d": "01010d1311110f", "e": "00000e111f100e",
    "f": "0609081c080808", "g": "000f11110f010e", "h": "10101619111111", "i": "04000c0404040e", "j": "0200060202120c",
    "k": "10101214181412", "l": "0c04040404040e", "m": "00001a15151111", "n": "00001619111111", "o": "00000e1111110e",
    "p": "00001e111e1010", "q": "00000d130f0101", "r": "00001619101010", "s": "00000e100e011e", "t": "08081c08080906",
    "u": "0000111111130d", "v": "00001111110a04", "w": "0000111115150a", "x": "0000110a040a11", "y": "000011110f010e",
    "z": "00001f0204081f", ",": "00000000060204", ".": "00000000000606", "/": "00010204081000", ":": "00060600060600",
    "-": "0000001f000000", "(": "02040808080402", ")": "08040202020408", "%": "18190204081303", " ": "00000000000000",
}  # fmt: skip
LETTER_WIDTH = 6 * SCALE


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points by rising x; y is never negative."""

    title: str
    colour: Colour
    points: Sequence[tuple[float, float]]


class Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._pixels = bytearray(bytes(WHITE) * (width * height))

    def dot(self, x: int, y: int, colour: Colour, size: int = 1) -> None:
        for row in range(max(0, y), min(self.height, y + size)):
            for column in range(max(0, x), min(self.width, x + size)):
                at = 3 * (row * self.width + column)
                self._pixels[at : at + 3] = bytes(colour)

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: Colour, size: int = 1) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x = start[0] + round((end[0] - start[0]) * step / steps)
            y = start[1] + round((end[1] - start[1]) * step / steps)
            self.dot(x, y, colour, size)

    def text(self, x: int, y: int, text: str, colour: Colour = BLACK) -> None:
        for letter in text.lower():
            rows = bytes.fromhex(_GLYPHS.get(letter, _GLYPHS["-"]))
            for row, bits in enumerate(rows):
                for column in range(5):
                    if bits >> (4 - column) & 1:
                        self.dot(x + column * SCALE, y + row * SCALE, colour, SCALE)
            x += LETTER_WIDTH

    def png(self) -> bytes:
        stride = 3 * self.width
        rows = b"".join(b"\x00" + self._pixels[at : at + stride] for at in range(0, len(self._pixels), stride))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        return (
            b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")
        )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_curves(path: Path, title: str, curves: Sequence[Curve], *, width: int = 960, panel_height: int = 260) -> None:
    """One panel a curve, one above the other, over the same x: seconds."""
    canvas = Canvas(width, 40 + panel_height * len(curves))
    canvas.text(20, 14, title)
    x_max = max((x for curve in curves for x, _ in curve.points), default=0.0) or 1.0
    for number, curve in enumerate(curves):
        _panel(canvas, curve, 40 + number * panel_height, panel_height, x_max)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(canvas.png())


def _panel(canvas: Canvas, curve: Curve, top: int, height: int, x_max: float) -> None:
    left, right, upper, lower = 130, canvas.width - 60, top + 30, top + height - 40
    y_max = max((y for _, y in curve.points), default=0.0) or 1.0
    canvas.text(20, top + 6, curve.title, curve.colour)
    for part in range(5):
        y = lower - round((lower - upper) * part / 4)
        canvas.line((left, y), (right, y), GREY)
        label = f"{y_max * part / 4:,.0f}"
        canvas.text(left - 12 - LETTER_WIDTH * len(label), y - 6, label)
        x = left + round((right - left) * part / 4)
        canvas.line((x, lower), (x, lower + 5), BLACK)
        canvas.text(x - 14, lower + 12, f"{x_max * part / 4:.0f} s")
    canvas.line((left, lower), (right, lower), BLACK)
    places = [
        (left + round((right - left) * x / x_max), lower - round((lower - upper) * y / y_max)) for x, y in curve.points
    ]
    for start, end in itertools.pairwise(places):
        canvas.line(start, end, curve.colour, 3)
