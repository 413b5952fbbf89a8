"""A range is read whole and once: over moved leaders, broken connections, gaps, aborted transactions, cut answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.client.scripted_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    TOPIC_ID,
    ScriptedBroker,
    fetched,
    still_time,
)

from penstock.base.errors import CorruptRecordError, UnsupportedForMessageFormatError
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import AnswerError, FetchOutOfRangeError, NoProgressError, UnknownTopicError
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.produce import produce
from penstock.client.read import read_range
from penstock.protocol.fetch import AbortedTransaction, FetchRequest
from penstock.protocol.produce import ProduceAnswer, ProducedPartition, ProducedTopic
from penstock.protocol.schemas import codec
from penstock.records.batch import scan
from penstock.records.build import build_batch, build_end_marker

T0 = TopicPartition("t", 0)


def batch(base_offset: int, count: int = 2, **changes: Any) -> bytes:
    records = [(1000 + n, b"k", b"v", ()) for n in range(count)]
    return build_batch(records, base_offset=base_offset, **changes)


def from_log(*batches: bytes) -> Callable[[int, FetchRequest], Any]:
    """Serves what lies at and after the offset asked for, as a broker does, two batches at a time."""

    def handle(_version: int, request: FetchRequest) -> Any:
        offset = request.topics[0].partitions[0].fetch_offset
        left = [one for one in batches if scan(one).batches[0].last_offset >= offset]
        return fetched(request, b"".join(left[:2]))

    return handle


def read(broker: ScriptedBroker, start: int, end: int, **settings: Any) -> list[int]:
    """The base offsets of the batches that a reader sees."""
    config = broker.config(fetch_wait_ms=0, **settings)
    with Cluster(config, still_time()) as cluster:
        return [one.base_offset for stretch in read_range(cluster, T0, start, end) for one in stretch.batches]


def offsets_asked(broker: ScriptedBroker) -> list[int]:
    return [request.topics[0].partitions[0].fetch_offset for request in broker.requests[FETCH]]


def test_a_range_is_read_to_its_end_and_not_beyond() -> None:
    log = [batch(n) for n in range(0, 20, 2)]
    with ScriptedBroker({FETCH: from_log(*log)}) as broker:
        assert read(broker, 0, 20) == list(range(0, 20, 2))
        assert offsets_asked(broker) == [0, 4, 8, 12, 16]
    with ScriptedBroker({FETCH: from_log(*log)}) as broker:
        assert read(broker, 5, 9) == [4, 6, 8]
        assert offsets_asked(broker) == [5, 8]


@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
def test_every_generation_of_fetch_is_spoken(version: int) -> None:
    with ScriptedBroker({FETCH: from_log(batch(0), batch(2))}, highest={FETCH: version}) as broker:
        assert read(broker, 0, 4) == [0, 2]
        topic = broker.requests[FETCH][0].topics[0]
        assert topic.topic_id == TOPIC_ID.bytes if version >= 13 else topic.name == "t"
        epoch = topic.partitions[0].current_leader_epoch
        assert epoch == (broker.leader_epoch if version >= 9 else -1)


def test_a_topic_without_an_id_is_fetched_by_name() -> None:
    with ScriptedBroker({FETCH: from_log(batch(0))}, highest={METADATA: 9}) as broker:
        assert read(broker, 0, 2) == [0]
        assert broker.requests[FETCH][0].topics[0].name == "t"


def test_gaps_that_the_cleaner_left_are_passed_over() -> None:
    with ScriptedBroker({FETCH: from_log(batch(0), batch(50), batch(90))}) as broker:
        assert read(broker, 0, 60) == [0, 50]
    with ScriptedBroker({FETCH: from_log(batch(0), batch(90))}) as broker:
        assert read(broker, 10, 60) == []


def test_a_moved_leader_is_found_and_the_reading_goes_on() -> None:
    moved = [ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch]
    serve = from_log(batch(0), batch(2), batch(4), batch(6))
    with ScriptedBroker() as broker:

        def handle(version: int, request: FetchRequest) -> Any:
            if moved and request.topics[0].partitions[0].fetch_offset == 4:
                broker.leader_epoch += 1
                return fetched(request, error_code=moved.pop())
            return serve(version, request)

        broker.handlers[FETCH] = handle
        assert read(broker, 0, 8) == [0, 2, 4, 6]
        epochs = [request.topics[0].partitions[0].current_leader_epoch for request in broker.requests[FETCH]]
        assert epochs == [3, 3, 4, 5, 6]


def test_a_broken_connection_is_replaced_where_the_reading_stood() -> None:
    serve = from_log(batch(0), batch(2), batch(4), batch(6))
    breaks = [True]
    with ScriptedBroker() as broker:

        def handle(version: int, request: FetchRequest) -> Any:
            if breaks and request.topics[0].partitions[0].fetch_offset == 4:
                breaks.clear()
                return None
            return serve(version, request)

        broker.handlers[FETCH] = handle
        assert read(broker, 0, 8) == [0, 2, 4, 6]


def test_an_error_that_stays_is_raised_with_broker_and_partition() -> None:
    def refuse(_version: int, request: FetchRequest) -> Any:
        return fetched(request, error_code=ErrorCode.topic_authorization_failed)

    with ScriptedBroker({FETCH: refuse}) as broker, pytest.raises(AnswerError) as refusal:
        read(broker, 7, 8)
    assert str(refusal.value) == (f"broker {broker.address}, Fetch of t-0 at offset 7: TOPIC_AUTHORIZATION_FAILED")


def test_an_error_that_could_pass_is_raised_when_the_time_is_over() -> None:
    def refuse(_version: int, request: FetchRequest) -> Any:
        return fetched(request, error_code=ErrorCode.not_leader_or_follower)

    with ScriptedBroker({FETCH: refuse}) as broker, pytest.raises(AnswerError, match="NOT_LEADER_OR_FOLLOWER"):
        read(broker, 0, 8, api_timeout_ms=3000)


def test_a_topic_made_anew_is_not_taken_for_the_old_one() -> None:
    serve = from_log(batch(0), batch(2), batch(4))
    with ScriptedBroker() as broker:

        def handle(version: int, request: FetchRequest) -> Any:
            if request.topics[0].partitions[0].fetch_offset < 4:
                return serve(version, request)
            broker.topic_id = UUID(int=8)
            return fetched(request, error_code=ErrorCode.unknown_topic_id)

        broker.handlers[FETCH] = handle
        with pytest.raises(UnknownTopicError, match="t was deleted and made anew while t-0"):
            read(broker, 0, 6)


def offsets_handler(starts: dict[int, int]) -> Callable[[int, Any], Any]:
    def handle(version: int, request: Any) -> Any:
        shape = codec(LIST_OFFSETS, version).response
        topics = []
        for topic in request.topics:
            partitions = tuple(
                shape.topics.partitions.make(
                    partition_index=entry.partition_index,
                    error_code=ErrorCode.none,
                    timestamp=-1,
                    offset=starts[entry.timestamp],
                    leader_epoch=0,
                )
                for entry in topic.partitions
            )
            topics.append(shape.topics.make(name=topic.name, partitions=partitions))
        return shape.make(throttle_time=timedelta(), topics=tuple(topics))

    return handle


def test_an_offset_that_is_gone_is_told_with_the_range_that_is_there() -> None:
    def refuse(_version: int, request: FetchRequest) -> Any:
        return fetched(request, error_code=ErrorCode.offset_out_of_range)

    handlers = {FETCH: refuse, LIST_OFFSETS: offsets_handler({EARLIEST: 40, LATEST: 90})}
    with ScriptedBroker(handlers) as broker, pytest.raises(FetchOutOfRangeError) as refusal:
        read(broker, 7, 20)
    assert (refusal.value.log_start_offset, refusal.value.end_offset) == (40, 90)
    assert "offset 7 is outside the log's range [40, 90]" in str(refusal.value)


def test_a_partition_that_gives_nothing_is_not_waited_for_forever() -> None:
    with ScriptedBroker({FETCH: lambda _version, request: fetched(request)}) as broker:
        time = still_time()
        cluster = Cluster(broker.config(fetch_wait_ms=0), time)
        answer = broker.handlers[FETCH]

        def handle(version: int, request: Any) -> Any:
            time.sleep(40)
            return answer(version, request)

        broker.handlers[FETCH] = handle
        with cluster, pytest.raises(NoProgressError, match="t-0 gave no record at offset 3 for 120000 ms"):
            list(read_range(cluster, T0, 3, 8))
        assert 3 <= len(broker.requests[FETCH]) <= 5


def test_half_a_batch_is_asked_for_again_with_more_room() -> None:
    large = build_batch([(0, None, bytes(5000), ())])
    with ScriptedBroker() as broker:

        def handle(_version: int, request: FetchRequest) -> Any:
            return fetched(request, large[: request.topics[0].partitions[0].bytes_max])

        broker.handlers[FETCH] = handle
        assert read(broker, 0, 1, partition_bytes_max=1000) == [0]
        asked = [request.topics[0].partitions[0].bytes_max for request in broker.requests[FETCH]]
        assert asked == [1000, 2000, 4000, 8000]


def test_a_batch_that_arrives_broken_is_not_read() -> None:
    broken = bytearray(batch(2))
    broken[-1] ^= 1
    with (
        ScriptedBroker({FETCH: lambda _version, request: fetched(request, batch(0) + bytes(broken))}) as broker,
        pytest.raises(CorruptRecordError, match=r"t-0: the batch at offset 2 arrived broken: bad_crc"),
    ):
        read(broker, 0, 4)


def test_record_formats_of_old_are_refused_in_a_sentence() -> None:
    old = bytearray(batch(0))
    old[16] = 1
    with (
        ScriptedBroker({FETCH: lambda _version, request: fetched(request, bytes(old))}) as broker,
        pytest.raises(UnsupportedForMessageFormatError, match="t-0 holds records of the formats before"),
    ):
        read(broker, 0, 4)


def transaction(base_offset: int, producer_id: int) -> bytes:
    return batch(base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    return build_end_marker(commit, producer_id, 0, 0, 5, base_offset)


def test_aborted_transactions_are_left_out_for_those_who_read_committed() -> None:
    log = b"".join(
        (
            transaction(0, 7),
            transaction(2, 8),
            batch(4),
            marker(6, 7, commit=False),
            marker(7, 8, commit=True),
            transaction(8, 7),
            marker(10, 7, commit=True),
            transaction(11, 8),
            marker(13, 8, commit=False),
        )
    )
    aborted = (AbortedTransaction(8, 11), AbortedTransaction(7, 0))
    with ScriptedBroker({FETCH: lambda _version, request: fetched(request, log, aborted=aborted)}) as broker:
        assert read(broker, 0, 14, read_committed=True) == [2, 4, 8]
        assert broker.requests[FETCH][-1].isolation_level == 1
    with ScriptedBroker({FETCH: lambda _version, request: fetched(request, log)}) as broker:
        assert read(broker, 0, 14) == [0, 2, 4, 8, 11]
        assert broker.requests[FETCH][-1].isolation_level == 0


def test_a_transaction_that_began_before_the_stretch_is_left_out_too() -> None:
    log = transaction(20, 7) + marker(22, 7, commit=False) + transaction(23, 7)
    aborted = (AbortedTransaction(7, 3),)
    with ScriptedBroker({FETCH: lambda _version, request: fetched(request, log, aborted=aborted)}) as broker:
        assert read(broker, 20, 25, read_committed=True) == [23]


def test_offsets_are_listed_again_when_a_leader_moves() -> None:
    answer = offsets_handler({EARLIEST: 2, LATEST: 9})
    errors = [ErrorCode.not_leader_or_follower]

    def handle(version: int, request: Any) -> Any:
        good = answer(version, request)
        if not errors:
            return good
        shape = codec(LIST_OFFSETS, version).response
        bad = shape.topics.partitions.make(
            partition_index=0, error_code=errors.pop(), timestamp=-1, offset=-1, leader_epoch=-1
        )
        topic = shape.topics.make(name="t", partitions=(bad, *good.topics[0].partitions[1:]))
        return shape.make(throttle_time=good.throttle_time, topics=(topic,))

    with ScriptedBroker({LIST_OFFSETS: handle}) as broker, Cluster(broker.config(), still_time()) as cluster:
        broker.topics = {"t": 2}
        wanted = {T0: LATEST, TopicPartition("t", 1): EARLIEST}
        found = list_offsets(cluster, wanted, read_committed=True)
        assert {partition: one.offset for partition, one in found.items()} == {T0: 9, TopicPartition("t", 1): 2}
        again = broker.requests[LIST_OFFSETS][1]
        assert [entry.partition_index for entry in again.topics[0].partitions] == [0]
        assert again.isolation_level == 1


def test_a_partition_that_the_topic_lacks_is_named() -> None:
    with (
        ScriptedBroker() as broker,
        Cluster(broker.config(), still_time()) as cluster,
        pytest.raises(UnknownTopicError, match="topic t has 1 partition, t-4 is not among them"),
    ):
        list_offsets(cluster, {TopicPartition("t", 4): LATEST})


def test_a_batch_is_produced_once_the_leader_is_found() -> None:
    errors = [ErrorCode.not_leader_or_follower]

    def handle(_version: int, request: Any) -> Any:
        code = int(errors.pop()) if errors else 0
        topic = request.topics[0]
        assert bytes(topic.partitions[0].records) == batch(0)
        return ProduceAnswer([ProducedTopic(topic.name, topic.topic_id, [ProducedPartition(0, code, 42, -1, 0)])])

    with ScriptedBroker({PRODUCE: handle}) as broker, Cluster(broker.config(), still_time()) as cluster:
        assert produce(cluster, T0, batch(0)) == (42, -1)
        assert len(broker.requests[PRODUCE]) == 2
