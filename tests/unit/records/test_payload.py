"""Checking a client's records: what Kafka refuses is refused with its error, and nothing more."""

from itertools import pairwise

import pytest

from penstock.base.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError
from penstock.records.batch import TimestampType
from penstock.records.build import encode_record
from penstock.records.payload import RecordsSummary, columns, retain, validate

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def check(payload: bytes, count: int, base_timestamp: int = NOW_MS, **rules: object) -> RecordsSummary:
    return validate(payload, 0, len(payload), count, base_timestamp=base_timestamp, now_ms=NOW_MS, **rules)  # type: ignore[arg-type]


def record(index: int, delta_ms: int = 0, key: bytes | None = b"k", value: bytes | None = b"v") -> bytes:
    return encode_record(index, delta_ms, key, value)


def test_the_smallest_record_has_seven_bytes() -> None:
    payload = record(0, 0, None, None)
    assert payload == bytes.fromhex("0c 00 00 00 01 01 00")
    assert check(payload, 1) == RecordsSummary(NOW_MS, 0, 0, 1, True, True)


def test_summary_names_the_first_record_with_the_greatest_timestamp() -> None:
    # KAFKA-16310
    payload = record(0, 5) + record(1, 9) + record(2, 9) + record(3, -2, value=None)
    assert check(payload, 4) == RecordsSummary(NOW_MS + 9, 1, 3, 1, True, True)


def test_records_without_timestamps_have_no_maximum() -> None:
    summary = check(record(0) + record(1), 2, base_timestamp=-1, before_max_ms=0, after_max_ms=0)
    assert (summary.max_timestamp, summary.offset_delta_of_max_timestamp) == (-1, -1)


def test_gaps_between_offsets_are_allowed_unless_forbidden() -> None:
    # KAFKA-9080
    payload = record(0) + record(5)
    assert check(payload, 2)[2:] == (5, 0, False, True)
    with pytest.raises(InvalidRecordError):
        check(payload, 2, sequential_offsets=True)
    assert not check(record(5) + record(5), 2).is_rising


def test_every_record_without_a_key_is_named_on_a_compacted_topic() -> None:
    # KAFKA-1755, KIP-467
    payload = record(0) + record(1, key=None) + record(2, key=b"") + record(3, key=None)
    with pytest.raises(InvalidRecordError) as caught:
        check(payload, 4, require_keys=True)
    assert not isinstance(caught.value, InvalidTimestampError)
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert check(payload, 4).is_sequential


def test_timestamps_too_far_before_or_after_are_named() -> None:
    # KAFKA-14991 (KIP-937)
    payload = b"".join(record(i, d * HOUR_MS) for i, d in enumerate([0, -3, 1, 3, -1]))
    with pytest.raises(InvalidTimestampError) as caught:
        check(payload, 5, before_max_ms=HOUR_MS, after_max_ms=HOUR_MS)
    assert [index for index, _ in caught.value.record_errors] == [1, 3]


def test_a_record_without_a_timestamp_is_not_named_among_the_untimely() -> None:
    payload = record(0, -1 - NOW_MS) + record(1, 2 * HOUR_MS)
    with pytest.raises(InvalidTimestampError) as caught:
        check(payload, 2, before_max_ms=HOUR_MS, after_max_ms=HOUR_MS)
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_a_missing_key_among_bad_timestamps_makes_the_whole_an_invalid_timestamp() -> None:
    payload = record(0, key=None) + record(1, 3 * HOUR_MS) + record(2, 3 * HOUR_MS, key=None)
    with pytest.raises(InvalidTimestampError) as caught:
        check(payload, 3, require_keys=True, after_max_ms=HOUR_MS)
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]
    assert "key" in caught.value.record_errors[2][1]


def test_timestamps_are_not_looked_at_when_the_broker_sets_them() -> None:
    payload = record(0, 99 * HOUR_MS)
    check(payload, 1, before_max_ms=0, after_max_ms=0, timestamp_type=TimestampType.LOG_APPEND_TIME)


def test_a_producer_may_not_claim_log_append_time() -> None:
    # KAFKA-5353
    with pytest.raises(InvalidTimestampError) as caught:
        check(record(0) + record(1), 2, timestamp_type=TimestampType.LOG_APPEND_TIME, claimed_append_time=NOW_MS)
    assert [index for index, _ in caught.value.record_errors] == [0, 1]
    assert check(record(0), 1, claimed_append_time=NOW_MS - 4).max_timestamp == NOW_MS - 4
    with pytest.raises(InvalidTimestampError):
        check(record(0), 1, claimed_append_time=NOW_MS + 5, after_max_ms=4)


MALFORMED = {
    "empty length varint": b"",
    "length varint cut off": b"\x80",
    "length varint of six bytes": b"\x80\x80\x80\x80\x80\x00" + bytes(9),
    "length beyond int32": b"\x8c\x80\x80\x80\x10" + bytes(9),
    "negative length": b"\x01" + bytes(9),
    "length of two GiB": b"\xfe\xff\xff\xff\x0f" + bytes(9),
    "length beyond the batch": bytes.fromhex("0e 00 00 00 01 01 00"),
    "length below the smallest": bytes.fromhex("0a 00 00 00 01 01"),
    "timestamp varlong of eleven bytes": bytes.fromhex("20 00") + b"\x80" * 10 + bytes.fromhex("00 00 01 01 00"),
    "timestamp beyond int64": bytes.fromhex("1e 00") + b"\x80" * 9 + bytes.fromhex("02 00 01 01 00"),
    "offset delta of six bytes": bytes.fromhex("16 00 00 80 80 80 80 80 00 01 01 00"),
    "key of length -2": bytes.fromhex("0c 00 00 00 03 01 00"),
    "key beyond the record": bytes.fromhex("0c 00 00 00 08 01 00"),
    "value of length -2": bytes.fromhex("0c 00 00 00 01 03 00"),
    "value beyond the record": bytes.fromhex("0c 00 00 00 01 06 00"),
    "negative header count": bytes.fromhex("0c 00 00 00 01 01 01"),
    "two billion headers": bytes.fromhex("14 00 00 00 01 01 fe ff ff ff 0f"),
    "header with a null name": bytes.fromhex("10 00 00 00 01 01 02 01 01"),
    "header with a null name that would be read again as its value": bytes.fromhex("0e 00 00 00 01 01 02 01"),
    "header name beyond the record": bytes.fromhex("10 00 00 00 01 01 02 08 01"),
    "header value of length -2": bytes.fromhex("10 00 00 00 01 01 02 00 03"),
    "bytes after the headers": bytes.fromhex("0e 00 00 00 01 01 00 00"),
    "bytes after the record": bytes.fromhex("0c 00 00 00 01 01 00 00"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused(name: str) -> None:
    # A3
    payload = MALFORMED[name]
    with pytest.raises(InvalidRecordError) as caught:
        check(payload, 1)
    assert caught.value.record_errors == ()
    with pytest.raises(CorruptRecordError):
        columns(payload, 0, len(payload), 1)
    with pytest.raises(CorruptRecordError):
        retain(payload, 0, len(payload), 1, b"\x01")


def test_a_record_that_hides_another_within_its_length_is_refused() -> None:
    hidden = record(1, 0, None, None)
    payload = bytes.fromhex("1a 00 00 00 01 01 00") + hidden
    with pytest.raises(InvalidRecordError):
        check(payload, 2)
    with pytest.raises(InvalidRecordError):
        check(payload, 1)


def test_a_padded_varint_is_read_as_kafka_reads_it() -> None:
    payload = bytes.fromhex("10 00 80 00 80 00 01 01 00")
    assert check(payload, 1) == RecordsSummary(NOW_MS, 0, 0, 1, True, True)


def test_a_timestamp_that_leaves_64_bits_is_refused() -> None:
    for base, delta in (((1 << 63) - 1, 1), (-(1 << 63), -1)):
        with pytest.raises(InvalidRecordError):
            check(record(0, delta), 1, base_timestamp=base)


@pytest.mark.parametrize("count", [0, 1, 3, (1 << 31) - 1, -1])
def test_a_count_other_than_the_records_is_refused(count: int) -> None:
    # A2
    # KAFKA-6554; and a count that the bytes cannot hold allocates nothing (CVE-2022-34917)
    payload = record(0) + record(1)
    with pytest.raises(InvalidRecordError):
        check(payload, count)
    with pytest.raises(CorruptRecordError):
        columns(payload, 0, len(payload), count)


def test_columns_point_into_the_buffer() -> None:
    payload = (
        b"....." + encode_record(0, 3, b"key", None, (("h", b"x"),)) + encode_record(7, -1, None, b"value") + b"..."
    )
    rows = columns(payload, 5, len(payload) - 3, 2)
    assert list(rows.offset_delta) == [0, 7]
    assert list(rows.timestamp_delta) == [3, -1]
    assert payload[rows.key_start[0] :][: rows.key_length[0]] == b"key"
    assert (rows.value_length[0], rows.key_length[1]) == (-1, -1)
    assert payload[rows.value_start[1] :][: rows.value_length[1]] == b"value"
    assert list(rows.headers_count) == [1, 0]
    assert payload[rows.headers_start[0] :][:4] == b"\x02h\x02x"


def test_a_shift_reencodes_the_timestamp_deltas_at_every_varint_width() -> None:
    # KIP-534: the delete horizon takes the base timestamp's place
    widths = [0, *(1 << bits for bits in range(5, 62, 7))]
    payload = b"".join(record(i, delta) for i, delta in enumerate(widths))
    for shift in (1, -1, 1 << 40, -(1 << 61)):
        shifted = retain(payload, 0, len(payload), len(widths), b"\x01" * len(widths), shift)
        rows = columns(shifted, 0, len(shifted), len(widths))
        assert list(rows.timestamp_delta) == [delta + shift for delta in widths]
        assert [b - a for a, b in pairwise(rows.offset_delta)] == [1] * (len(widths) - 1)
