"""Keys go where Kafka's own clients send them."""

from __future__ import annotations

import pytest

from penstock.client.partitioner import partition_of
from penstock.records.partition_kernels import murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    # The values of Kafka's own UtilsTest.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_a_key_keeps_its_partition() -> None:
    assert partition_of(b"foobar", 12) == (-790332482 & 0x7FFFFFFF) % 12
