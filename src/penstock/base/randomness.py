"""The randomness port: the only place that draws anything by chance."""

from __future__ import annotations

import os
import uuid
from typing import Protocol

from penstock.base.ids import topic_id_text


class Randomness(Protocol):
    def bytes(self, count: int) -> bytes: ...

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1, each as likely as the others."""

    def uuid(self) -> uuid.UUID:
        """A random one (version 4)."""


class _Drawn:
    """What follows from random bytes."""

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError

    def below(self, end: int) -> int:
        assert end > 0, end
        bits = (end - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            # Numbers that do not fit are drawn again: a remainder would favour the small ones.
            number = int.from_bytes(self.bytes(size), "big") >> (8 * size - bits)
            if number < end:
                return number

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.bytes(16), version=4)


class SystemRandomness(_Drawn):
    """The machine's: nobody can guess it."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)


class SeededRandomness(_Drawn):
    """The same numbers for the same seed: tests and simulations."""

    def __init__(self, seed: int) -> None:
        import random

        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


def new_topic_id(randomness: Randomness) -> uuid.UUID:
    """A random id that prints without a leading dash, as Kafka's do."""
    while True:
        topic_id = randomness.uuid()
        if not topic_id_text(topic_id).startswith("-"):
            return topic_id
