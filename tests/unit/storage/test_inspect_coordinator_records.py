"""Keys and values as bytes by hand, from the published message schemas."""

import struct

import pytest

from penstock.storage.inspect.coordinator_records import Decoder, UndecodableError, decode


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def compact(value: str | None) -> bytes:
    return b"\0" if value is None else bytes([len(value.encode()) + 1]) + value.encode()


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


OFFSET_KEY = int16(1) + text("group") + text("topic") + int32(3)
GROUP_KEY = int16(2) + text("group")
TRANSACTION_KEY = int16(0) + text("id")


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (int16(0) + int64(9) + text("m") + int64(5), {}),
        (int16(1) + int64(9) + text("m") + int64(5) + int64(6), {"expire_timestamp": 6}),
        (int16(2) + int64(9) + text("m") + int64(5), {}),
        (int16(3) + int64(9) + int32(4) + text("m") + int64(5), {"leader_epoch": 4}),
        (int16(4) + int64(9) + int32(4) + compact("m") + int64(5) + b"\0", {"leader_epoch": 4}),
        (
            int16(4) + int64(9) + int32(4) + compact("m") + int64(5) + b"\x01\x00\x10" + bytes(15) + b"\x01",
            {"leader_epoch": 4, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"},
        ),
    ],
)
def test_offset_commits_of_every_version(value: bytes, fields: dict[str, object]) -> None:
    key, decoded = decode(Decoder.OFFSETS, OFFSET_KEY, value)
    assert key == {"type": "offset_commit", "version": 1, "group": "group", "topic": "topic", "partition": 3}
    assert decoded == {"version": value[1], "offset": 9, "metadata": "m", "commit_timestamp": 5, **fields}


@pytest.mark.parametrize("version", range(5))
def test_group_metadata_of_every_version(version: int) -> None:
    flexible = version >= 4
    string = compact if flexible else text

    def data(value: bytes) -> bytes:
        return (bytes([len(value) + 1]) if flexible else int32(len(value))) + value

    member = string("m-1") + (string(None) if version >= 3 else b"") + string("client") + string("/host")
    member += (int32(60) if version >= 1 else b"") + int32(30) + data(b"\x01") + data(b"\x02\x03")
    value = int16(version) + string("consumer") + int32(7) + string("range") + string("m-1")
    value += (int64(99) if version >= 2 else b"") + (b"\x02" if flexible else int32(1)) + member
    value += b"\0\0" if flexible else b""
    key, decoded = decode(Decoder.OFFSETS, GROUP_KEY, value)
    assert key == {"type": "group_metadata", "version": 2, "group": "group"}
    assert decoded is not None
    assert (decoded["protocol_type"], decoded["generation"], decoded["leader"]) == ("consumer", 7, "m-1")
    assert decoded.get("current_state_timestamp") == (99 if version >= 2 else None)
    members = decoded["members"]
    assert isinstance(members, list)
    (found,) = members
    assert found["member_id"] == "m-1"
    assert found["assignment"] == {"base64": "AgM="}
    assert ("rebalance_timeout" in found, "group_instance_id" in found) == (version >= 1, version >= 3)


def test_transaction_state_of_both_versions() -> None:
    head = int64(10) + int16(2) + int32(60_000) + b"\x01"
    old = int16(0) + head + int32(1) + text("topic") + int32(2) + int32(0) + int32(5) + int64(8) + int64(7)
    tags = b"\x03" + b"\x00\x08" + int64(10) + b"\x01\x08" + int64(-1) + b"\x02\x02" + int16(2)
    new = (
        int16(1)
        + head
        + b"\x02"
        + compact("topic")
        + b"\x03"
        + int32(0)
        + int32(5)
        + b"\0"
        + int64(8)
        + int64(7)
        + tags
    )
    expected = {
        "producer_id": 10,
        "producer_epoch": 2,
        "transaction_timeout_ms": 60_000,
        "transaction_status": "Ongoing",
        "transaction_partitions": [{"topic": "topic", "partition_ids": [0, 5]}],
        "transaction_last_update_timestamp_ms": 8,
        "transaction_start_timestamp_ms": 7,
    }
    key, decoded = decode(Decoder.TRANSACTIONS, TRANSACTION_KEY, old)
    assert key == {"type": "transaction", "version": 0, "transactional_id": "id"}
    assert decoded == {"version": 0, **expected}
    _, decoded = decode(Decoder.TRANSACTIONS, TRANSACTION_KEY, new)
    assert decoded == {
        "version": 1,
        **expected,
        "previous_producer_id": 10,
        "next_producer_id": -1,
        "client_transaction_version": 2,
    }


def test_tombstones_stay_null() -> None:
    for decoder, key in (
        (Decoder.OFFSETS, OFFSET_KEY),
        (Decoder.OFFSETS, GROUP_KEY),
        (Decoder.TRANSACTIONS, TRANSACTION_KEY),
    ):
        assert decode(decoder, key, None)[1] is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (int16(9), None),
        (OFFSET_KEY[:-1], None),
        (OFFSET_KEY + b"x", None),
        (OFFSET_KEY, int16(5)),
        (OFFSET_KEY, int16(-1)),
        (OFFSET_KEY, int16(3) + int64(9)),
        (OFFSET_KEY, int16(0) + int64(9) + text(None) + int64(5)),
        (OFFSET_KEY, int16(0) + int64(9) + int16(30_000) + b"m" + int64(5)),
        (GROUP_KEY, int16(0) + text("c") + int32(1) + text(None) + text(None) + int32(2**31 - 1)),
        (int16(1) + int16(2) + b"\xff\xff", None),
    ],
)
def test_anything_else_is_refused_in_words(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UndecodableError, match=r"\w+ \w+"):
        decode(Decoder.OFFSETS, key, value)


def test_every_prefix_of_a_value_is_refused() -> None:
    value = int16(4) + int64(9) + int32(4) + compact("m") + int64(5) + b"\0"
    for length in range(len(value)):
        with pytest.raises(UndecodableError):
            decode(Decoder.OFFSETS, OFFSET_KEY, value[:length])
