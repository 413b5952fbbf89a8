"""Produce and fetch through the dispatcher, with real frames, in every version."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.world import Answer, World, shape

from penstock.handlers.api import CloseConnectionError
from penstock.handlers.authoriser import Action
from penstock.records.batch import Codec, scan
from penstock.records.build import build_batch

TOPIC_ID_FROM = 13


def batch(*values: bytes, **options: Any) -> bytes:
    return build_batch([(1_700_000_000_000, None, value, ()) for value in values], **options)


def seconds(ms: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=ms)


def produce(
    world: World,
    records: dict[tuple[str, int], bytes | None],
    *,
    version: int = 9,
    acks: int = 1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> Answer:
    make = shape(0, version)
    topics = []
    for name in dict.fromkeys(topic for topic, _ in records):
        partitions = tuple(
            make.topic_data.partition_data.make(index=number, records=data)
            for (topic, number), data in records.items()
            if topic == name
        )
        known = world.image.topics.get(name)
        topic_id = uuid.UUID(int=1) if known is None else known.topic_id
        topics.append(make.topic_data.make(name=name, topic_id=topic_id, partition_data=partitions))
    return world.send(
        0, version, transactional_id=transactional_id, acks=acks, timeout=seconds(timeout_ms), topic_data=tuple(topics)
    )


def fetch(
    world: World,
    wanted: dict[tuple[str, int], int],
    *,
    version: int = 12,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 2**31 - 1,
    partition_bytes_max: int = 2**31 - 1,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
    forgotten: dict[str, tuple[int, ...]] | None = None,
) -> Answer:
    make = shape(1, version)
    topics = []
    for name in dict.fromkeys(topic for topic, _ in wanted):
        partitions = tuple(
            make.topics.partitions.make(
                partition=number,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=partition_bytes_max,
            )
            for (topic, number), offset in wanted.items()
            if topic == name
        )
        known = world.image.topics.get(name)
        topic_id = uuid.UUID(int=1) if known is None else known.topic_id
        topics.append(make.topics.make(topic=name, topic_id=topic_id, partitions=partitions))
    gone = tuple(
        make.forgotten_topics_data.make(topic=name, topic_id=world.image.topics[name].topic_id, partitions=numbers)
        for name, numbers in (forgotten or {}).items()
    )
    return world.send(
        1,
        version,
        replica_id=-1,
        max_wait=seconds(wait_ms),
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=tuple(topics),
        forgotten_topics_data=gone,
        rack_id="",
    )


def codes(answer: Answer) -> list[ErrorCode]:
    entity = answer.read()
    return [
        partition.error_code
        for topic in entity.responses
        for partition in getattr(topic, "partition_responses", getattr(topic, "partitions", ()))
    ]


def only(answer: Answer) -> Any:
    (topic,) = answer.read().responses
    partitions: Any = getattr(topic, "partition_responses", None) or topic.partitions
    (partition,) = partitions
    return partition


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create_topic("t", 3)
    return made


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_produced_in_any_version_has_the_next_offsets(world: World, version: int, acks: int) -> None:
    assert only(produce(world, {("t", 0): batch(b"a", b"b")}, version=version, acks=acks)).base_offset == 0
    answer = only(produce(world, {("t", 0): batch(b"c")}, version=version, acks=acks))
    assert (answer.error_code, answer.base_offset) == (0, 2)


@pytest.mark.parametrize("version", range(4, 19))
def test_what_was_produced_is_fetched_in_any_version(world: World, version: int) -> None:
    produce(world, {("t", 1): batch(b"a", b"b")})
    found = only(fetch(world, {("t", 1): 0}, version=version))
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
    (stored,) = scan(found.records).batches
    assert (stored.base_offset, stored.last_offset, stored.leader_epoch) == (0, 1, 0)


def test_each_partition_succeeds_or_fails_on_its_own(world: World) -> None:
    corrupt = bytearray(batch(b"x"))
    corrupt[-1] ^= 1
    answer = produce(
        world,
        {
            ("t", 0): batch(b"a"),
            ("t", 1): bytes(corrupt),
            ("t", 9): batch(b"a"),
            ("t", 2): None,
            ("nowhere", 0): batch(b"a"),
        },
    )
    assert codes(answer) == [
        ErrorCode.none,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_record,
        ErrorCode.unknown_topic_or_partition,
    ]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(world: World, acks: int) -> None:
    assert codes(produce(world, {("t", 0): batch(b"a")}, acks=acks)) == [ErrorCode.invalid_required_acks]
    assert world.partitions.get("t", 0).log.end_offset == 0


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(world: World) -> None:
    answer = produce(world, {("t", 0): batch(b"a")}, acks=0)
    assert answer.is_none
    assert world.partitions.get("t", 0).log.end_offset == 1
    with pytest.raises(CloseConnectionError):
        produce(world, {("t", 0): batch(b"a"), ("t", 9): batch(b"b")}, acks=0)
    assert world.partitions.get("t", 0).log.end_offset == 2
    crafted = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(CloseConnectionError):
        produce(world, {("t", 0): crafted}, acks=0)
    assert world.partitions.get("t", 0).log.end_offset == 2


def test_internal_topics_are_not_written_by_clients(world: World) -> None:
    # KAFKA-1580
    # A11
    world.create_topic("__consumer_offsets")
    assert codes(produce(world, {("__consumer_offsets", 0): batch(b"a")})) == [ErrorCode.invalid_topic_exception]


def test_a_topic_one_may_not_write_gives_nothing_away(world: World) -> None:
    # A12
    world.authoriser.denied |= {(Action.WRITE, "t"), (Action.WRITE, "nowhere")}
    answer = produce(world, {("t", 0): batch(b"a"), ("nowhere", 0): batch(b"a")})
    assert codes(answer) == [ErrorCode.topic_authorization_failed] * 2


def test_an_unknown_topic_id_is_named_so(world: World) -> None:
    assert codes(produce(world, {("nowhere", 0): batch(b"a")}, version=13)) == [ErrorCode.unknown_topic_id]
    assert codes(fetch(world, {("nowhere", 0): 0}, version=13)) == [ErrorCode.unknown_topic_id]


def test_zstd_needs_version_7(world: World) -> None:
    squeezed = batch(b"a" * 100, codec=Codec.ZSTD)
    assert codes(produce(world, {("t", 0): squeezed}, version=6)) == [ErrorCode.unsupported_compression_type]
    assert codes(produce(world, {("t", 0): squeezed}, version=7)) == [ErrorCode.none]


@pytest.mark.parametrize("version", [4, 9, 10, 16])
def test_a_topic_of_zstd_needs_fetch_version_10(world: World, version: int) -> None:
    world.create_topic("squeezed", compression_type="zstd")
    produce(world, {("squeezed", 0): batch(b"a", codec=Codec.ZSTD)})
    expected = ErrorCode.none if version >= 10 else ErrorCode.unsupported_compression_type
    assert codes(fetch(world, {("squeezed", 0): 0}, version=version)) == [expected]


def test_an_idempotent_producers_repeat_gets_the_first_answer_again(world: World) -> None:
    first = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert only(produce(world, {("t", 0): first})).base_offset == 0
    assert only(produce(world, {("t", 0): first})).base_offset == 0
    gap = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=5)
    assert codes(produce(world, {("t", 0): gap})) == [ErrorCode.out_of_order_sequence_number]
    assert world.partitions.get("t", 0).log.end_offset == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_where_flush_messages_asks_for_it_the_answer_and_the_watermark_wait_for_the_disk(
    world: World, acks: int
) -> None:
    world.create_topic("synced", flush_messages="1")
    answer = produce(world, {("synced", 0): batch(b"a")}, acks=acks)
    log = world.partitions.get("synced", 0).log
    assert not answer.is_there
    assert (log.end_offset, log.high_watermark) == (1, 0)
    world.loop.turn()
    assert only(answer).error_code == ErrorCode.none
    assert (log.recovery_point, log.high_watermark) == (1, 1)


def test_a_second_isr_member_that_lags_lets_acks_all_time_out(world: World) -> None:
    partition = world.partitions.get("t", 0)
    partition.take_role(leader=1, leader_epoch=1, isr=(1, 2), replicas=(1, 2))
    answer = produce(world, {("t", 0): batch(b"a"), ("t", 1): batch(b"b")}, acks=-1, timeout_ms=500)
    assert not answer.is_there
    assert world.services.produce_waits.purgatory.waiting == 1
    world.loop.advance(499)
    assert not answer.is_there
    world.loop.advance(1)
    assert codes(answer) == [ErrorCode.request_timed_out, ErrorCode.none]
    assert world.services.produce_waits.purgatory.watched == 0


def test_acks_all_ends_when_the_partition_is_led_by_another(world: World) -> None:
    partition = world.partitions.get("t", 0)
    partition.take_role(leader=1, leader_epoch=1, isr=(1, 2), replicas=(1, 2))
    answer = produce(world, {("t", 0): batch(b"a")}, acks=-1)
    partition.take_role(leader=2, leader_epoch=2, isr=(2,), replicas=(1, 2))
    world.services.produce_waits.changed(partition.topic_partition)
    world.loop.turn()
    assert codes(answer) == [ErrorCode.not_leader_or_follower]


def test_too_few_in_sync_refuse_acks_all_only(world: World) -> None:
    world.create_topic("careful", min_insync_replicas="2")
    partition = world.partitions.get("careful", 0)
    partition.take_role(leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2))
    assert codes(produce(world, {("careful", 0): batch(b"a")}, acks=-1)) == [ErrorCode.not_enough_replicas]
    assert codes(produce(world, {("careful", 0): batch(b"a")}, acks=1)) == [ErrorCode.none]


def test_a_fetch_waits_for_bytes_and_is_woken_by_an_append(world: World) -> None:
    answer = fetch(world, {("t", 0): 0, ("t", 1): 0}, wait_ms=500)
    assert not answer.is_there
    produce(world, {("t", 1): batch(b"a")})
    assert not answer.is_there, "whoever appended comes first"
    world.loop.turn()
    found = [p for topic in answer.read().responses for p in topic.partitions]
    assert [len(p.records) > 0 for p in found] == [False, True]
    assert world.services.fetch_waits.purgatory.watched == 0


def test_a_fetch_waits_no_longer_than_it_said(world: World) -> None:
    answer = fetch(world, {("t", 0): 0}, wait_ms=500)
    world.loop.advance(499)
    assert not answer.is_there
    world.loop.advance(1)
    assert only(answer).records == b""


def test_a_fetch_waits_until_there_are_enough_bytes(world: World) -> None:
    size = len(batch(b"a"))
    answer = fetch(world, {("t", 0): 0, ("t", 1): 0}, wait_ms=500, bytes_min=2 * size + 1)
    for number in (0, 1):
        produce(world, {("t", number): batch(b"a")})
        world.loop.turn()
        assert not answer.is_there
    produce(world, {("t", 0): batch(b"a")})
    world.loop.turn()
    assert answer.is_there


def test_a_waiting_fetch_hears_of_a_topic_that_went(world: World) -> None:
    answer = fetch(world, {("t", 0): 0}, wait_ms=60_000)
    world.services.topics.delete(world.image.topics["t"], lambda error: None)
    world.loop.turn()
    assert codes(answer) == [ErrorCode.unknown_topic_or_partition]


def test_an_offset_outside_the_log_is_answered_at_once(world: World) -> None:
    assert codes(fetch(world, {("t", 0): 5, ("t", 1): 0}, wait_ms=500)) == [
        ErrorCode.offset_out_of_range,
        ErrorCode.none,
    ]


def test_leader_epochs_are_compared(world: World) -> None:
    world.partitions.get("t", 0).take_role(leader=1, leader_epoch=4, isr=(1,), replicas=(1,))
    assert codes(fetch(world, {("t", 0): 0}, leader_epoch=3)) == [ErrorCode.fenced_leader_epoch]
    assert codes(fetch(world, {("t", 0): 0}, leader_epoch=5)) == [ErrorCode.unknown_leader_epoch]
    assert codes(fetch(world, {("t", 0): 0}, leader_epoch=4)) == [ErrorCode.none]


def test_the_budget_goes_to_the_first_and_one_batch_always_comes(world: World) -> None:
    for number in range(3):
        produce(world, {("t", number): batch(b"x" * 200)})
    size = len(batch(b"x" * 200))
    answer = fetch(world, {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}, bytes_max=10)
    sizes = [len(p.records) for p in answer.read().responses[0].partitions]
    assert sizes[0] == size, "a first batch larger than the budget"
    assert sizes[1:] == [0, 0], "and only one"


def test_a_client_that_says_it_is_a_replica_reads_nothing(world: World) -> None:
    # A10
    produce(world, {("t", 0): batch(b"a")})
    make = shape(1, 11)
    wanted = make.topics.partitions.make(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1000
    )
    values: dict[str, Any] = {
        "replica_id": 3,
        "max_wait": seconds(0),
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": (make.topics.make(topic="t", partitions=(wanted,)),),
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    assert codes(world.send(1, 11, **values)) == [ErrorCode.not_leader_or_follower]
    world.authoriser.denied.add((Action.CLUSTER_ACTION, "kafka-cluster"))
    assert codes(world.send(1, 11, **values)) == [ErrorCode.topic_authorization_failed]


def test_a_connection_that_went_leaves_nothing_waiting(world: World) -> None:
    frame = world.frame(
        1,
        4,
        shape(1, 4).make(
            replica_id=-1,
            max_wait=seconds(5000),
            min_bytes=1,
            max_bytes=1000,
            isolation_level=0,
            topics=(
                shape(1, 4).topics.make(
                    topic="t",
                    partitions=(
                        shape(1, 4).topics.partitions.make(partition=0, fetch_offset=0, partition_max_bytes=100),
                    ),
                ),
            ),
        ),
    )
    outcome: Any = world.send_frame(frame)
    assert world.services.fetch_waits.purgatory.waiting == 1
    outcome.pending.abandon()
    assert world.services.fetch_waits.purgatory.waiting == 0


# Sessions (KIP-227).
@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_a_session_tells_only_what_changed(world: World, version: int) -> None:
    every = {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
    first = fetch(world, every, version=version, session=(0, 0)).read()
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 3
    session = first.session_id
    assert fetch(world, {}, version=version, session=(session, 1)).read().responses == ()
    produce(world, {("t", 1): batch(b"a")})
    third = fetch(world, {}, version=version, session=(session, 2)).read()
    assert [p.partition_index for p in third.responses[0].partitions] == [1]
    # The client has not moved on: the data come again. Then it has.
    fourth = fetch(world, {("t", 1): 1}, version=version, session=(session, 3)).read()
    assert fourth.responses == ()


def test_a_sessions_requests_may_not_be_lost_or_repeated(world: World) -> None:
    session = fetch(world, {("t", 0): 0}, session=(0, 0)).read().session_id
    assert fetch(world, {}, session=(session, 1)).read().error_code == ErrorCode.none
    for epoch in (1, 3):
        answer = fetch(world, {}, session=(session, epoch)).read()
        assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
    assert fetch(world, {}, session=(99, 1)).read().error_code == ErrorCode.fetch_session_id_not_found


def test_a_session_may_not_change_between_names_and_ids(world: World) -> None:
    session = fetch(world, {("t", 0): 0}, version=12, session=(0, 0)).read().session_id
    answer = fetch(world, {}, version=13, session=(session, 1)).read()
    assert answer.error_code == ErrorCode.fetch_session_topic_id_error


def test_what_a_session_forgets_is_read_no_more(world: World) -> None:
    session = fetch(world, {("t", 0): 0, ("t", 1): 0}, session=(0, 0)).read().session_id
    produce(world, {("t", 0): batch(b"a"), ("t", 1): batch(b"a")})
    answer = fetch(world, {}, session=(session, 1), forgotten={"t": (0,)}).read()
    assert [p.partition_index for p in answer.responses[0].partitions] == [1]
    emptied = fetch(world, {}, session=(session, 2), forgotten={"t": (1,)}).read()
    assert (emptied.session_id, len(world.services.fetch_sessions)) == (0, 0)


def test_a_session_reads_first_what_the_last_answer_left_out(world: World) -> None:
    for number in range(3):
        produce(world, {("t", number): batch(b"x" * 200)})
    every = {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
    first = fetch(world, every, bytes_max=10, session=(0, 0)).read()
    session = first.session_id
    served = []
    for epoch in (1, 2, 3):
        answer = fetch(world, {}, bytes_max=10, session=(session, epoch)).read()
        served += [p.partition_index for t in answer.responses for p in t.partitions if p.records]
    assert sorted(served) == [0, 1, 2]


def test_an_error_in_a_session_is_told_and_so_is_its_end(world: World) -> None:
    session = fetch(world, {("t", 0): 5}, session=(0, 0)).read().session_id
    again = fetch(world, {}, session=(session, 1))
    assert codes(again) == [ErrorCode.offset_out_of_range]
    well = fetch(world, {("t", 0): 0}, session=(session, 2))
    assert codes(well) == [ErrorCode.none]


def test_a_session_is_held_to_the_leader_epoch_it_was_told_last(world: World) -> None:
    # KAFKA-9338
    partition = world.partitions.get("t", 0)
    partition.take_role(leader=1, leader_epoch=3, isr=(1,), replicas=(1,))
    session = fetch(world, {("t", 0): 0}, session=(0, 0), leader_epoch=3).read().session_id
    partition.take_role(leader=1, leader_epoch=4, isr=(1,), replicas=(1,))
    assert codes(fetch(world, {}, session=(session, 1))) == [ErrorCode.fenced_leader_epoch]
    assert codes(fetch(world, {("t", 0): 0}, session=(session, 2), leader_epoch=4)) == [ErrorCode.none]
    assert codes(fetch(world, {}, session=(session, 3))) == []
    partition.take_role(leader=1, leader_epoch=5, isr=(1,), replicas=(1,))
    assert codes(fetch(world, {}, session=(session, 4))) == [ErrorCode.fenced_leader_epoch]


def test_a_session_goes_on_with_a_topic_whose_id_was_not_known_at_first_and_later_is_not_any_more(world: World) -> None:
    # KAFKA-13111
    soon = uuid.UUID(int=1)  # what `fetch` gives to a topic that there is not
    first = fetch(world, {("soon", 0): 0, ("t", 0): 0}, version=13, session=(0, 0))
    session = first.read().session_id
    assert codes(first) == [ErrorCode.unknown_topic_id, ErrorCode.none]
    assert codes(fetch(world, {}, version=13, session=(session, 1))) == [ErrorCode.unknown_topic_id]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.services.topics, "_new_id", lambda: soon)
        world.create_topic("soon")
    produce(world, {("soon", 0): batch(b"a")})
    found = only(fetch(world, {}, version=13, session=(session, 2)))
    assert found.error_code == ErrorCode.none
    assert found.records
    for name in ("soon", "t"):
        world.services.topics.delete(world.image.topics[name], lambda error: None)
        world.loop.turn()
        world.create_topic(name)
    others = codes(fetch(world, {}, version=13, session=(session, 3)))
    assert others == [ErrorCode.unknown_topic_id] * 2, "others of their names"


def test_sessions_are_bounded_and_only_old_or_smaller_ones_make_room(world: World) -> None:
    # KAFKA-9137: the one that was not used for longest, not the one made first
    # A14
    small = fetch(world, {("t", 0): 0}, session=(0, 0)).read().session_id
    fetch(world, {("t", 0): 0, ("t", 1): 0}, session=(0, 0))
    assert fetch(world, {("t", 0): 0}, session=(0, 0)).read().session_id == 0, "no room, nobody smaller"
    world.clock.advance(130_000)
    fetch(world, {}, session=(small, 1))
    assert fetch(world, {("t", 0): 0}, session=(0, 0)).read().session_id > 0, "the other was idle for long"
    assert len(world.services.fetch_sessions) == 2
    assert world.services.fetch_sessions.evictions == 1
    assert fetch(world, {}, session=(small, 2)).read().error_code == ErrorCode.none
