"""What is written to `__consumer_offsets` reads back, and what is none of its records is refused."""

from __future__ import annotations

import pytest

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)


@pytest.mark.parametrize("key", [OffsetKey("g", "tøpic", 7), GroupKey("g")])
def test_keys_read_back(key: OffsetKey | GroupKey) -> None:
    assert decode_key(encode_key(key)) == key


def test_an_offset_reads_back() -> None:
    value = OffsetValue(5, 3, "note", 1_000)
    assert decode_offset_value(encode_offset_value(value)) == value


def test_an_expiry_of_the_clients_choice_is_kept_at_the_price_of_the_epoch() -> None:
    value = OffsetValue(5, 3, "note", 1_000, 2_000)
    assert decode_offset_value(encode_offset_value(value)) == OffsetValue(5, -1, "note", 1_000, 2_000, None, 1)


def test_a_group_reads_back() -> None:
    members = (
        MemberValue("m-1", None, "c", "/h", 300, 30, b"sub", b"assigned"),
        MemberValue("i-2", "i", "c", "/h", 300, 30, b"", b""),
    )
    value = GroupValue("consumer", 4, "range", "m-1", 99, members)
    assert decode_group_value(encode_group_value(value)) == value
    empty = GroupValue("consumer", 5, None, None, 99, ())
    assert decode_group_value(encode_group_value(empty)) == empty


def test_keys_of_newer_groups_are_passed_over() -> None:
    assert decode_key(b"\x00\x03\x00\x01g") is None


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01\x00", b"\x00\x02\x00\x05g", b"\x00\x02\x00\x01gg"])
def test_a_broken_key_is_named(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_key(data)


def test_a_cut_value_is_named() -> None:
    whole = encode_group_value(
        GroupValue("consumer", 4, "range", "m", 9, (MemberValue("m", None, "", "", 1, 1, b"", b""),))
    )
    for length in range(len(whole)):
        with pytest.raises(MalformedMessageError):
            decode_group_value(whole[:length])
