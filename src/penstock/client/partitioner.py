"""Which partition a record goes to, as Kafka's Java client decides: murmur2 of the key; keyless records turn by turn."""

from __future__ import annotations

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Unsigned, 32 bits."""
    length = len(data)
    mixed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        mixed = (mixed * _MULTIPLIER & _MASK) ^ word
    rest = data[whole:]
    if rest:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ (mixed >> 13)) * _MULTIPLIER & _MASK
    return mixed ^ (mixed >> 15)


def partition_of(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count
