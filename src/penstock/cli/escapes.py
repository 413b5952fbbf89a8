"""What others called their things, for a person's eyes."""

from __future__ import annotations

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_ESCAPED |= {ord("\n"): "\\n", ord("\r"): "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def printable(text: str) -> str:
    """The same text, which now can neither begin a line of its own nor speak to a terminal."""
    return text.translate(_ESCAPED)
