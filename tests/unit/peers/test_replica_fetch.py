"""A follower's Fetch against kio's schemas, both ways."""

import io
import uuid
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.base.errors import OffsetOutOfRangeError
from penstock.base.ids import TopicPartition
from penstock.peers import replica_fetch
from penstock.peers.errors import PeerRefusedError
from penstock.peers.replica_fetch import FetchLimits, FetchSession
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.schemas import Shape
from penstock.replication.fetch_sessions import FetchSessionNotFoundError
from penstock.replication.fetcher import Asked, Got

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
LIMITS = FetchLimits(500, 1, 10_000, 1_000)
ASKED = [
    Asked(TopicPartition("a", 0), FIRST.bytes, 3, 10, 2, 5),
    Asked(TopicPartition("a", 1), FIRST.bytes, 4, 0, -1, 0),
    Asked(TopicPartition("b", 7), SECOND.bytes, 0, 1 << 40, 0, 6),
]
NAMES = {FIRST.bytes: "a", SECOND.bytes: "b"}


def read_request(named: list[Asked], forgotten: list[tuple[bytes, int]], session: FetchSession) -> Any:
    body = replica_fetch.encode(named, forgotten, session, 2, 77, LIMITS)
    read: Any = entity_reader(load_request_schema(1, 17))
    request, size = read(body, 0)
    assert size == len(body)
    return request


def test_a_request_is_what_kio_reads() -> None:
    request = read_request(*FetchSession().ask(ASKED), FetchSession())
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 77)
    assert (request.max_wait, request.min_bytes, request.max_bytes) == (timedelta(milliseconds=500), 1, 10_000)
    assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, 0, ())
    found = [
        (
            topic.topic_id,
            one.partition,
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.log_start_offset,
            one.partition_max_bytes,
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    assert found == [
        (FIRST, 0, 3, 10, 2, 5, 1_000),
        (FIRST, 1, 4, 0, -1, 0, 1_000),
        (SECOND, 7, 0, 1 << 40, 0, 6, 1_000),
    ]


def answer(error_code: ErrorCode = ErrorCode.none) -> bytes:
    shape = Shape(load_response_schema(1, 17))
    part = shape.responses.partitions
    common = {"last_stable_offset": -1, "aborted_transactions": None, "preferred_read_replica": -1}
    partitions = (
        part.make(
            partition_index=0,
            error_code=ErrorCode.none,
            high_watermark=9,
            log_start_offset=4,
            records=b"records",
            **common,
        ),
        part.make(
            partition_index=1,
            error_code=ErrorCode.none,
            high_watermark=1,
            log_start_offset=0,
            records=None,
            diverging_epoch=part.diverging_epoch.make(epoch=6, end_offset=60),
            **common,
        ),
    )
    refused = part.make(
        partition_index=7,
        error_code=ErrorCode.offset_out_of_range,
        high_watermark=-1,
        log_start_offset=-1,
        records=b"",
        **{**common, "aborted_transactions": ()},
    )
    response = shape.make(
        throttle_time=timedelta(),
        error_code=error_code,
        session_id=9,
        responses=(
            shape.responses.make(topic_id=FIRST, partitions=partitions),
            shape.responses.make(topic_id=SECOND, partitions=(refused,)),
        ),
    )
    buffer = io.BytesIO()
    entity_writer(type(response))(buffer, response)
    return b"head" + buffer.getvalue()


def test_an_answer_is_what_kio_writes() -> None:
    session_id, (first, second, third) = replica_fetch.decode(answer(), 4, NAMES)
    assert session_id == 9
    assert (first.topic_partition, first.error, first.high_watermark, first.log_start_offset) == (("a", 0), None, 9, 4)
    assert bytes(first.records) == b"records"
    assert second.diverging == (6, 60)
    assert len(second.records) == 0
    assert third.topic_partition == ("b", 7)
    assert isinstance(third.error, OffsetOutOfRangeError)


def test_an_error_of_the_whole_answer_is_raised() -> None:
    with pytest.raises(PeerRefusedError):
        replica_fetch.decode(answer(ErrorCode.unknown_server_error), 4, NAMES)


def test_an_answer_that_is_cut_short_is_malformed() -> None:
    whole = answer()
    for length in range(4, len(whole) - 1, 7):
        with pytest.raises(MalformedMessageError):
            replica_fetch.decode(whole[:length], 4, NAMES)


# Sessions.
def got(one: Asked, records: bytes = b"", error: Any = None) -> Got:
    return Got(one.topic_partition, error, 0, 0, None, records)


def test_a_session_names_what_is_asked_anew_and_forgets_what_is_not_asked_any_more() -> None:
    session = FetchSession()
    assert session.ask(ASKED) == (ASKED, [])
    session.answered(9, [got(one) for one in ASKED])
    assert (session.session_id, session.epoch) == (9, 1)
    assert session.ask(ASKED) == ([], [])
    session.answered(9, [])
    further = ASKED[0]._replace(offset=11)
    assert session.ask([further, ASKED[2]]) == ([further], [(FIRST.bytes, 1)])
    request = read_request([further], [(FIRST.bytes, 1)], session)
    assert (request.session_id, request.session_epoch) == (9, 2)
    ((topic_id, partitions),) = [(one.topic_id, one.partitions) for one in request.forgotten_topics_data]
    assert (topic_id, partitions) == (FIRST, (1,))
    session.answered(9, [])
    assert session.ask([further, ASKED[1], ASKED[2]]) == ([ASKED[1]], []), "and names it when it is back"


def test_what_was_answered_with_something_is_asked_anew_though_nothing_came_of_it() -> None:
    session = FetchSession()
    session.ask(ASKED)
    session.answered(9, [got(ASKED[0], b"records"), got(ASKED[1], error=OffsetOutOfRangeError(0, 0, 0)), got(ASKED[2])])
    assert session.ask(ASKED) == (ASKED[:2], [])
    session.answered(9, [got(ASKED[0], b"records")])
    assert session.ask(ASKED[1:]) == ([], [(FIRST.bytes, 0)]), "the leader has it still"


def test_a_topic_that_was_made_again_takes_the_place_of_the_old_one() -> None:
    session = FetchSession()
    session.ask(ASKED)
    session.answered(9, [])
    again = ASKED[2]._replace(topic_id=FIRST.bytes)
    assert session.ask([*ASKED[:2], again]) == ([again], [(SECOND.bytes, 7)])


def test_a_leader_without_room_is_asked_for_everything_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.ask(ASKED) == (ASKED, [])
        session.answered(0, [])
        assert (session.session_id, session.epoch) == (0, 0)


def test_a_lost_session_is_told_apart_from_other_errors() -> None:
    for code in (ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch):
        with pytest.raises(FetchSessionNotFoundError):
            replica_fetch.decode(answer(code), 4, NAMES)
