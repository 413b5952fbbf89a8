"""Which partition of its topic coordinates a name."""

from __future__ import annotations

from functools import lru_cache

from penstock.coordinator.errors import CoordinatorNotAvailableError


def partition_of(name: str, partitions: int) -> int:
    """Which partition holds a group or a transactional id: Java's hash of its name, without the sign."""
    if partitions <= 0:
        raise CoordinatorNotAvailableError("the coordinator's topic is not there yet")
    return _positive_hash(name) % partitions


@lru_cache(maxsize=10_000)
def _positive_hash(name: str) -> int:
    units = name.encode("utf-16-be")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed)
