"""Which partition a record goes to, as Kafka's Java client decides: murmur2 of the key; keyless records turn by turn."""

from __future__ import annotations

from penstock.records.partition_kernels import murmur2


def partition_of(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count
