"""The records of `__transaction_state`: Kafka's bytes, and what they are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import TopicPartition
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.transaction_records import (
    TransactionState,
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)

INT64 = st.integers(-1, 2**63 - 1)
VALUES = st.builds(
    TransactionValue,
    producer_id=INT64,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(TransactionState),
    partitions=st.lists(
        st.builds(TopicPartition, st.text("ab-_.", min_size=1, max_size=5), st.integers(0, 2**31 - 1)), unique=True
    ).map(lambda partitions: tuple(sorted(partitions))),
    last_update_ms=INT64,
    start_ms=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    client_version=st.sampled_from([0, 2]),
    version=st.just(1),
)


@given(VALUES)
def test_a_value_reads_as_it_was_written(value: TransactionValue) -> None:
    if value.state is TransactionState.EMPTY:
        value = value._replace(partitions=())
    assert decode_transaction_value(encode_transaction_value(value)) == value


def test_a_value_is_written_in_kafkas_bytes() -> None:
    # As Apache Kafka 4.3 wrote it, field by field.
    value = TransactionValue(
        producer_id=1000,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=(TopicPartition("t", 0), TopicPartition("t", 1)),
        last_update_ms=8,
        start_ms=7,
        previous_producer_id=1000,
        client_version=2,
    )
    expected = (
        "0001" "00000000000003e8" "0003" "0000ea60" "01"
        "02" "0274" "03" "00000000" "00000001" "00"
        "0000000000000008" "0000000000000007"
        "02" "00" "08" "00000000000003e8" "02" "02" "0002"
    )  # fmt: skip
    assert encode_transaction_value(value).hex() == expected


def test_a_value_of_the_plain_version_is_read() -> None:
    data = bytes.fromhex(
        "0000" "00000000000003e8" "0003" "0000ea60" "01" "00000001" "000174" "00000001" "00000005"
        "0000000000000008" "0000000000000007"
    )  # fmt: skip
    value = decode_transaction_value(data)
    assert (value.version, value.partitions, value.start_ms) == (0, (TopicPartition("t", 5),), 7)


def test_an_empty_id_has_no_list_of_partitions() -> None:
    value = TransactionValue(1, 0, 1, TransactionState.EMPTY, (), 2, -1)
    assert encode_transaction_value(value)[17] == 0


def test_a_key_reads_as_it_was_written_and_others_are_passed_over() -> None:
    assert decode_transaction_key(encode_transaction_key("id")) == "id"
    assert decode_transaction_key(b"\x00\x01\x00\x01x") is None


@pytest.mark.parametrize("cut", range(1, 50))
def test_cut_off_bytes_are_malformed(cut: int) -> None:
    value = TransactionValue(1, 0, 1, TransactionState.ONGOING, (TopicPartition("topic", 1),), 2, 1, 1, 1, 2)
    data = encode_transaction_value(value)
    with pytest.raises(MalformedMessageError):
        decode_transaction_value(data[: len(data) - min(cut, len(data) - 1)])


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x07", b"\x00\x00\x00\x09x"])
def test_no_key_and_no_value_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_transaction_value(data)
    if data[:2] != b"\x00\x07":
        with pytest.raises(MalformedMessageError):
            decode_transaction_key(data)


def test_a_state_that_is_none_is_malformed() -> None:
    data = bytearray(encode_transaction_value(TransactionValue(1, 0, 1, TransactionState.EMPTY, (), 2, -1)))
    data[16] = 99
    with pytest.raises(MalformedMessageError, match="99"):
        decode_transaction_value(bytes(data))
