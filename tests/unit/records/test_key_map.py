"""The key map: its hash, its bound, and what it selects."""

import struct

import pytest

from penstock.base.errors import CorruptRecordError
from penstock.records import key_kernels
from penstock.records.build import encode_record
from penstock.records.key_map import ENTRY_BYTES, KeyMap

SEED = bytes(range(16))


def payload_of(*records: tuple[bytes | None, bytes | None]) -> bytes:
    return b"".join(encode_record(i, 10 * i, key, value) for i, (key, value) in enumerate(records))


@pytest.mark.parametrize(
    ("size", "digest"),
    [(0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")],
)
def test_the_hash_is_siphash_of_128_bits(size: int, digest: str) -> None:
    words = key_kernels.hash_key(bytes(range(size)), *struct.unpack("<QQ", SEED))
    assert struct.pack("<QQ", *words).hex() == digest


def test_the_map_stops_when_nine_tenths_full_and_says_how_far_it_came() -> None:
    # KAFKA-3587
    key_map = KeyMap(100 * ENTRY_BYTES, SEED)
    payload = payload_of(*((b"%d" % i, b"v") for i in range(200)))
    assert key_map.put_batch(payload, 0, len(payload), 200, 1000, last_offset=1250) == 90
    assert (key_map.size, key_map.capacity, key_map.latest_offset) == (90, 90, 1089)
    assert [key_map.latest(b"%d" % i) for i in (0, 89, 90)] == [1000, 1089, -1]
    # what the map does not speak for is kept
    chosen = key_map.select(payload, 0, len(payload), 200, 1000, retain_tombstones=False)
    assert chosen.kept_count == 200


def test_a_full_map_still_takes_newer_offsets_of_its_keys() -> None:
    key_map = KeyMap(3 * ENTRY_BYTES, SEED)
    payload = payload_of((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    assert key_map.capacity == 2
    assert key_map.put_batch(payload, 0, len(payload), 4, 0) == 3
    assert (key_map.latest(b"a"), key_map.latest_offset) == (2, 2)


def test_the_batchs_end_counts_as_spoken_for() -> None:
    # KAFKA-5490's kind: the last records of the batch were compacted away before
    key_map = KeyMap(240, SEED)
    payload = payload_of((b"a", b"1"))
    assert key_map.put_batch(payload, 0, len(payload), 1, 5, last_offset=9) == 1
    assert key_map.latest_offset == 9


def test_records_below_the_first_offset_and_without_keys_are_not_put() -> None:
    key_map = KeyMap(240, SEED)
    payload = payload_of((b"a", b"1"), (None, b"1"), (b"b", None))
    assert key_map.put_batch(payload, 0, len(payload), 3, 100, from_offset=101) == 3
    assert (key_map.size, key_map.latest(b"a"), key_map.latest(b"b")) == (1, -1, 102)


def test_selection_counts_what_it_keeps() -> None:
    key_map = KeyMap(240, SEED)
    payload = payload_of((b"a", b"1"), (None, b"x"), (b"a", None), (b"b", b"2"), (b"", b"3"))
    key_map.put_batch(payload, 0, len(payload), 5, 0)
    kept = key_map.select(payload, 0, len(payload), 5, 0, retain_tombstones=True)
    assert (bytes(kept.keep), *kept[1:]) == (b"\0\0\1\1\1", 3, 1, 1, 40, 4)
    kept = key_map.select(payload, 0, len(payload), 5, 0, retain_tombstones=False)
    assert (bytes(kept.keep), *kept[1:]) == (b"\0\0\0\1\1", 2, 0, 1, 40, 4)


def test_a_tombstone_at_the_last_offset_spoken_for_goes_too() -> None:
    key_map = KeyMap(240, SEED)
    payload = payload_of((b"a", b"1"), (b"a", None))
    key_map.put_batch(payload, 0, len(payload), 2, 0)
    assert key_map.select(payload, 0, len(payload), 2, 0, retain_tombstones=False).kept_count == 0


def test_the_greatest_kept_timestamp_may_be_negative() -> None:
    key_map = KeyMap(240, SEED)
    payload = encode_record(0, -50, b"a", b"1") + encode_record(1, -70, b"b", b"1")
    chosen = key_map.select(payload, 0, len(payload), 2, 0, retain_tombstones=True)
    assert chosen[4:] == (-50, 0)


def test_a_cleared_map_is_empty() -> None:
    key_map = KeyMap(240, SEED)
    payload = payload_of((b"a", b"1"))
    key_map.put_batch(payload, 0, len(payload), 1, 5)
    key_map.clear()
    assert (key_map.size, key_map.latest_offset, key_map.latest(b"a")) == (0, -1, -1)


def test_broken_records_are_corrupt() -> None:
    key_map = KeyMap(240, SEED)
    payload = payload_of((b"a", b"1"), (b"b", b"1"))[:-1]
    with pytest.raises(CorruptRecordError):
        key_map.put_batch(payload, 0, len(payload), 2, 0)
    with pytest.raises(CorruptRecordError):
        key_map.select(payload, 0, len(payload), 2, 0, retain_tombstones=True)


def test_many_keys_near_the_bound_are_all_found() -> None:
    key_map = KeyMap(20_000 * ENTRY_BYTES, SEED)
    payload = payload_of(*((b"key-%d" % i, b"v") for i in range(18_000)))
    assert key_map.put_batch(payload, 0, len(payload), 18_000, 0) == 18_000
    assert all(key_map.latest(b"key-%d" % i) == i for i in range(0, 18_000, 37))
