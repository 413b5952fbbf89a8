"""What happens to bytes before they are written: checks, offsets, stamps, recompression (rows S3 to S5, pitfalls 2)."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from tests.support.log_checks import rows_of
from tests.unit.storage.disk import T0, batch_at, new_disk, open_log, produced, records, small_config

from penstock.base.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OffsetsOutOfOrderError,
    PenstockError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from penstock.records import codecs
from penstock.records.batch import Codec, TimestampType, crc32c, read_header, scan
from penstock.records.build import assemble, build_batch, encode_record
from penstock.storage.append import is_heavy, prepare_follower, prepare_leader
from penstock.storage.config import log_config
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin

PLAIN = log_config()
COMPACTED = log_config({"cleanup.policy": "compact"})
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


def a_log(**config: object) -> PartitionLog:
    return open_log(new_disk(), config=small_config(segment_bytes=100_000, segment_index_bytes=10_000, **config))[0]


def with_crc(data: bytearray) -> bytes:
    """The batch with the CRC that its bytes ask for."""
    struct.pack_into(">I", data, 17, crc32c(data, 21))
    return bytes(data)


def refused(data: bytes, error: type[PenstockError], match: str | None = None, **config: object) -> PenstockError:
    """An append of `data` raises `error` and leaves the log as it was, producers and epochs too."""
    log = a_log(**config)
    log.append_as_leader(produced(producer_id=1), leader_epoch=0)
    before = (
        log.end_offset,
        log.log.size_bytes,
        log.leader_epochs.entries,
        [p.state() for p in log.producers.values()],
    )
    with pytest.raises(error, match=match) as refusal:
        log.append_as_leader(data, leader_epoch=5)
    after = (log.end_offset, log.log.size_bytes, log.leader_epochs.entries, [p.state() for p in log.producers.values()])
    assert after == before
    return refusal.value


# Bytes that are no batch.
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptRecordError),
        (b"\0" * 61, CorruptRecordError),
        (b"x" * 100, PenstockError),
        (produced()[:-1], CorruptRecordError),
        (produced() + b"\0", CorruptRecordError),
        (produced()[:60], CorruptRecordError),
    ],
)
def test_bytes_that_are_no_whole_batch_are_refused(data: bytes, error: type[PenstockError]) -> None:
    # KAFKA-765
    refused(data, error)


@pytest.mark.parametrize("byte", [*range(8, 12), *range(16, 61), 65])
def test_a_flipped_byte_is_refused_wherever_it_counts(byte: int) -> None:
    data = bytearray(produced())
    data[byte] ^= 0x55
    refused(bytes(data), PenstockError)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_formats_are_refused_by_name(magic: int) -> None:
    # A4
    data = bytearray(produced())
    data[16] = magic
    refused(bytes(data), UnsupportedForMessageFormatError, "formats 0 and 1")


def test_a_codec_that_does_not_exist_is_refused() -> None:
    data = bytearray(produced())
    data[22] |= 5
    refused(with_crc(data), UnsupportedCompressionTypeError)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_and_one_with_a_wrong_crc_is_not_even_opened(codec: Codec) -> None:
    # A4
    bomb = bytearray(build_batch([(T0, None, bytes(90 << 20), ())], codec=codec))
    assert len(bomb) < 6 << 20
    config = log_config({"max.message.bytes": str(16 << 20)}, {})
    peaks = []
    for error, wanted in ((None, MessageTooLargeError), (1, CorruptRecordError)):
        if error:
            bomb[17] ^= error
        tracemalloc.start()
        try:
            with pytest.raises(wanted):
                prepare_leader(bytes(bomb), config, Origin.CLIENT, T0)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[0] < 140 << 20
    assert peaks[1] < 2 * len(bomb) + (1 << 16)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["rubbish", "cut", "empty", "flipped"])
def test_a_malformed_compressed_set_is_refused_and_the_next_one_is_taken(codec: Codec, damage: str) -> None:
    # KAFKA-765, 4776: the CRC is good, what was compressed is not.
    good = produced(records(20), codec=codec)
    payload = bytearray(good[61:])
    if damage == "rubbish":
        payload[:] = b"\x07" * len(payload)
    elif damage == "cut":
        del payload[len(payload) // 2 :]
    elif damage == "empty":
        payload.clear()
    else:
        for position in range(0, len(payload), 3):
            payload[position] ^= 0xFF
    data = bytearray(good[:61] + payload)
    struct.pack_into(">i", data, 8, len(data) - 12)
    refused(with_crc(data), PenstockError)
    log = a_log()
    with pytest.raises(PenstockError):
        log.append_as_leader(with_crc(data), leader_epoch=0)
    assert log.append_as_leader(good, leader_epoch=0).last_offset == 19


def test_more_or_fewer_records_than_the_header_counts_are_refused() -> None:
    # KAFKA-6554
    for count in (0, 1, 3, 100):
        data = bytearray(produced(records(2)))
        struct.pack_into(">i", data, 57, count)
        refused(with_crc(data), InvalidRecordError)


@pytest.mark.parametrize("delta", [0, 2, 3, 1000])
def test_a_last_offset_that_does_not_fit_the_count_is_refused(delta: int) -> None:
    # KAFKA-6554
    data = bytearray(produced(records(2)))
    struct.pack_into(">i", data, 23, delta)
    refused(with_crc(data), InvalidRecordError, "2 records spans offsets")


def test_a_client_writes_one_batch_from_offset_0_and_no_control_records() -> None:
    # A11
    refused(produced() + produced(), InvalidRecordError, "one batch a partition")
    refused(batch_at(7), InvalidRecordError, "starts at offset 0")
    control = build_batch(records(), control=True, transactional=True, producer_id=1, producer_epoch=0)
    refused(control, InvalidRecordError, "control records")


def test_a_producer_without_a_sequence_is_refused() -> None:
    refused(build_batch(records(), producer_id=5, producer_epoch=0), InvalidRecordError, "sequence -1")


def test_gaps_between_the_offsets_of_an_uncompressed_batch_are_not_asked_about() -> None:
    # KAFKA-9080: the deltas 0 and 0, as one client wrote them.
    log = a_log()
    data = bytearray(produced(records(2)))
    log.append_as_leader(bytes(data), leader_epoch=0)
    sparse = build_batch(records(2), offsets=[0, 1])
    assert log.append_as_leader(sparse, leader_epoch=0).base_offset == 2
    assert (
        log.append_as_follower(build_batch(records(2), base_offset=4, offsets=[5, 9], last_offset=9)).last_offset == 9
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_whose_deltas_have_gaps_is_numbered_anew(codec: Codec) -> None:
    # KAFKA-9080: Kafka assigns them; a reader counts on base + delta.
    body = build_batch(records(2), offsets=[0, 1])
    header = read_header(body)
    wrong = build_batch(records(3), offsets=[0, 0, 2], last_offset=2)
    data = assemble(
        codecs.compress(codec, wrong[61:]), base_offset=0, last_offset=2, leader_epoch=-1, attributes=int(codec),
        base_timestamp=header.base_timestamp, max_timestamp=T0 + 2, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        record_count=3,
    )  # fmt: skip
    log = a_log()
    log.append_as_leader(data, leader_epoch=0)
    assert [row.offset for row in rows_of(log)] == [0, 1, 2]


# Sizes.
def test_a_batch_larger_than_max_message_bytes_is_refused_and_one_of_that_size_is_not() -> None:
    size = len(produced())
    refused(produced(records(size=21)), MessageTooLargeError, f"max.message.bytes={size}", max_message_bytes=size)
    assert a_log(max_message_bytes=size).append_as_leader(produced(), leader_epoch=0).base_offset == 0


def test_the_size_is_looked_at_again_after_recompression() -> None:
    small = produced(records(200, size=100), codec=Codec.ZSTD)
    assert len(small) < 2000
    refused(small, MessageTooLargeError, None, max_message_bytes=2000, compression_type="uncompressed")


def test_a_set_larger_than_a_segment_is_refused() -> None:
    log, _ = open_log(new_disk(), config=small_config(segment_bytes=300))
    with pytest.raises(RecordListTooLargeError, match=r"segment\.bytes=300"):
        log.append_as_leader(produced(records(size=300)), leader_epoch=0)
    assert log.end_offset == 0


# Keys and timestamps.
def test_a_record_without_a_key_is_refused_on_a_compacted_topic_with_its_index() -> None:
    # KAFKA-1755, KIP-467
    values = [*records(2), *records(1, key=None), *records(1)]
    error = refused(produced(values), InvalidRecordError, None, cleanup_policy="compact")
    assert isinstance(error, InvalidRecordError)
    assert [index for index, _ in error.record_errors] == [2]
    assert a_log().append_as_leader(produced(values), leader_epoch=0).last_offset == 3
    for codec in CODECS:
        refused(produced(values, codec=codec), InvalidRecordError, None, cleanup_policy="compact,delete")


def test_an_empty_key_is_a_key() -> None:
    log = a_log(cleanup_policy="compact")
    assert log.append_as_leader(produced(records(1, key=b"")), leader_epoch=0).base_offset == 0


@pytest.mark.parametrize(
    ("stamp", "good"),
    [(T0 - 500, True), (T0 - 501, False), (T0 + 300, True), (T0 + 301, False), (-1, True), (-2, False), (0, False)],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_timestamp_too_far_from_the_clock_is_refused(stamp: int, good: bool, codec: Codec) -> None:
    # KAFKA-14991 (KIP-937); -1 means that there is none.
    limits = {"message_timestamp_before_max_ms": 500, "message_timestamp_after_max_ms": 300}
    values = [*records(1), (stamp, b"k", b"v", ())]
    if good:
        assert a_log(**limits).append_as_leader(produced(values, codec=codec), leader_epoch=0).last_offset == 1
    else:
        error = refused(produced(values, codec=codec), InvalidTimestampError, None, **limits)
        assert isinstance(error, InvalidTimestampError)
        assert [index for index, _ in error.record_errors] == [1]


def test_where_the_broker_stamps_no_timestamp_is_too_far() -> None:
    log = a_log(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    result = log.append_as_leader(produced(records(timestamp=5)), leader_epoch=0)
    assert result.log_append_time_ms == T0
    assert [row.timestamp for row in rows_of(log)] == [T0]


def test_the_stamped_batch_has_the_brokers_time_its_type_and_a_good_crc() -> None:
    # KAFKA-5353: the base timestamp stays, so that deltas still fit.
    log = a_log(message_timestamp_type="LogAppendTime")
    log.append_as_leader(produced(records(3, timestamp=T0 - 50)), leader_epoch=4)
    (batch,) = scan(log.log.active.file.pread(10_000, 0)).batches
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, T0)
    assert batch.base_timestamp == T0 - 50
    assert (batch.base_offset, batch.leader_epoch) == (0, 4)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("claim", [T0 + 10**9, 5, -1])
def test_a_header_that_claims_another_newest_timestamp_is_set_right(codec: Codec, claim: int) -> None:
    # KAFKA-5353, 16310: the time index must not point at a time that no record has.
    data = bytearray(produced(records(3), codec=codec))
    struct.pack_into(">q", data, 35, claim)
    log = a_log()
    log.append_as_leader(with_crc(data), leader_epoch=0)
    (batch,) = scan(log.log.active.file.pread(10_000, 0)).batches
    assert batch.max_timestamp == T0 + 2
    assert log.log.active.largest == (T0 + 2, 2)


def test_a_producers_timestamps_are_kept_where_the_topic_keeps_them() -> None:
    log = a_log()
    result = log.append_as_leader(produced(records(3, timestamp=T0 - 77)), leader_epoch=0)
    assert result.log_append_time_ms == -1
    assert [row.timestamp for row in rows_of(log)] == [T0 - 77, T0 - 76, T0 - 75]


# Recompression.
@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_keeps_batches_as_its_compression_type_says(source: Codec, target: str) -> None:
    log = a_log(compression_type=target)
    data = produced(records(5), codec=source, producer_id=3)
    log.append_as_leader(data, leader_epoch=0)
    (batch,) = scan(log.log.active.file.pread(10_000, 0)).batches
    wanted = source if target == "producer" else Codec[{"uncompressed": "NONE"}.get(target, target.upper())]
    assert batch.codec is wanted
    assert (batch.producer_id, batch.base_sequence, batch.max_timestamp) == (3, 0, T0 + 4)
    assert [row.value for row in rows_of(log)] == [b"v" * 20] * 5
    assert is_heavy(data, log.config) == (wanted is not source)


def test_a_clients_buffer_that_may_not_be_written_is_left_as_it_was() -> None:
    data = produced()
    before = bytes(data)
    prepared = prepare_leader(data, PLAIN, Origin.CLIENT, T0)
    prepared.data[0:8] = b"\xff" * 8
    assert data == before


def test_a_markers_batch_is_neither_recompressed_nor_asked_for_keys() -> None:
    config = log_config({"cleanup.policy": "compact", "compression.type": "gzip"})
    control = build_batch([(T0, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], control=True, transactional=True, producer_id=1)
    prepared = prepare_leader(control, config, Origin.COORDINATOR, T0)
    assert prepared.batches[0].codec is Codec.NONE


# Followers.
def test_a_follower_takes_offsets_as_they_are_given() -> None:
    log = a_log()
    data = batch_at(0, 2) + batch_at(2) + batch_at(10, epoch=3)
    result = log.append_as_follower(data)
    assert (result.base_offset, result.last_offset, log.end_offset) == (0, 10, 11)
    assert log.log.active.file.pread(10_000, 0) == data, "byte for byte"
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (3, 10)]


@pytest.mark.parametrize(
    "data",
    [batch_at(4), batch_at(0), batch_at(5, 3) + batch_at(7), batch_at(5) + batch_at(5), batch_at(9) + batch_at(6)],
)
def test_offsets_that_fall_or_repeat_are_refused_and_nothing_is_written(data: bytes) -> None:
    # KAFKA-3047
    log = a_log()
    log.append_as_follower(batch_at(0, 5))
    size = log.log.size_bytes
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(data)
    assert (log.end_offset, log.log.size_bytes) == (5, size)


def test_a_follower_keeps_the_whole_batches_at_the_head_of_what_it_fetched() -> None:
    whole, cut = batch_at(0) + batch_at(1), batch_at(2)[:-3]
    assert [batch.base_offset for batch in prepare_follower(whole + cut, 0).batches] == [0, 1]
    assert bytes(prepare_follower(whole + cut, 0).data) == whole
    assert prepare_follower(cut, 0).batches == []
    assert prepare_follower(b"", 0).batches == []
    log = a_log()
    assert log.append_as_follower(b"").last_offset == -1


def test_a_corrupt_batch_from_a_leader_is_an_error_and_the_good_ones_before_it_are_kept() -> None:
    bad = bytearray(batch_at(1))
    bad[-1] ^= 1
    assert len(prepare_follower(batch_at(0) + bytes(bad), 0).batches) == 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        prepare_follower(bytes(bad), 0)


def test_a_follower_takes_what_is_larger_than_max_message_bytes() -> None:
    # KAFKA-9617's log side: the leader took it under an older limit.
    log = a_log(max_message_bytes=100)
    assert log.append_as_follower(batch_at(0, size=500)).last_offset == 0


# Counts and offsets that lie.
def with_deltas(deltas: list[int], *, count: int | None = None, last: int | None = None) -> bytes:
    """A client's batch whose records have these offset deltas, whatever its header says of them."""
    body = b"".join(encode_record(delta, 0, b"k", b"v", ()) for delta in deltas)
    data = bytearray(build_batch([(T0, b"k", b"v", ())])[:61] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 23, len(deltas) - 1 if last is None else last)
    struct.pack_into(">i", data, 57, len(deltas) if count is None else count)
    return with_crc(data)


@pytest.mark.parametrize("deltas", [[0, 0, 0], [0, 2, 1], [0, 1, 7], [1, 2, 3], [0, -1, 2], [2, 1, 0]])
def test_a_clients_records_count_their_offsets_from_nought_without_gaps(deltas: list[int]) -> None:
    assert a_log().append_as_leader(with_deltas([0, 1, 2]), leader_epoch=0).last_offset == 2
    refused(with_deltas(deltas), InvalidRecordError, match="offset deltas")


@pytest.mark.parametrize(("count", "last"), [(2, 2), (4, 2), (3, 1), (3, 3), (0, 2), (3, 2**31 - 1)])
def test_a_header_that_miscounts_its_records_is_refused(count: int, last: int) -> None:
    refused(with_deltas([0, 1, 2], count=count, last=last), InvalidRecordError)


def test_a_leaders_batch_that_counts_more_records_than_offsets_is_refused() -> None:
    data = bytearray(batch_at(0, 2))
    struct.pack_into(">i", data, 57, 3)
    log = a_log()
    with pytest.raises(CorruptRecordError, match="counts 3 records"):
        log.append_as_follower(with_crc(data))
    assert log.end_offset == 0


# A configuration that changes while bytes wait for their turn.
def test_bytes_prepared_before_the_configuration_changed_are_judged_by_what_holds_now() -> None:
    log = a_log(message_timestamp_type="LogAppendTime")
    future = produced([(T0 + 10**9, b"k", b"v", ())])
    prepared = prepare_leader(future, log.config, Origin.CLIENT, T0)
    log.update_config(small_config(segment_bytes=100_000))
    with pytest.raises(InvalidTimestampError):
        log.append_prepared(prepared, leader_epoch=0)
    keyless = prepare_leader(produced(records(key=None)), log.config, Origin.CLIENT, T0)
    log.update_config(small_config(segment_bytes=100_000, cleanup_policy="compact"))
    with pytest.raises(InvalidRecordError, match="without a key"):
        log.append_prepared(keyless, leader_epoch=0)
    assert log.end_offset == 0
    good = prepare_leader(produced(records(3)), log.config, Origin.CLIENT, T0)
    log.update_config(small_config(segment_bytes=100_000, cleanup_policy="compact", compression_type="zstd"))
    assert log.append_prepared(good, leader_epoch=0).last_offset == 2
    assert scan(log.log.active.file.pread(1000, 0)).batches[0].codec is Codec.ZSTD


def test_an_equal_configuration_is_no_change() -> None:
    log = a_log()
    prepared = prepare_leader(produced(), log.config, Origin.CLIENT, T0)
    log.update_config(small_config(segment_bytes=100_000, segment_index_bytes=10_000))
    before = prepared.data
    log.append_prepared(prepared, leader_epoch=4)
    assert read_header(before).leader_epoch == 4, "the very bytes were written"
