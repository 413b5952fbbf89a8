"""A small Produce has a short way and a long one: whatever is sent, both give the same answers and leave the same files."""

from __future__ import annotations

import datetime
import errno
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from tests.property.records.strategies import broken
from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.handlers.test_produce_and_fetch import fetch
from tests.unit.handlers.world import Answer, World, shape
from tests.unit.server.test_connection import FakeTransport, ManualTurn, connected, receive
from tests.unit.server.test_connection import frame as prefixed

from penstock.handlers.api import CloseConnectionError, Pending
from penstock.handlers.authoriser import Action
from penstock.protocol.errors import MalformedMessageError
from penstock.records.batch import Codec, TimestampType, crc32c
from penstock.records.build import build_batch
from penstock.replication.partition import Partition
from penstock.replication.traffic import FIELDS
from penstock.server.dispatch import Dispatcher
from penstock.server.framing import Framing

HEADER_BYTES = 11
"""Of the frames here, without tagged fields."""
STORAGE_ERROR = ErrorCode.kafka_storage_error
DIRECTORY = Path("/data")
NOW_MS = 1_700_000_000_000
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rolling": {"segment_bytes": "400"},
    "compact": {"cleanup_policy": "compact"},
    "zstd": {"compression_type": "zstd"},
    "uncompressed": {"compression_type": "uncompressed"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "flushed": {"flush_messages": "3"},
    "recent": {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "1000"},
    "limited": {"max_message_bytes": "120"},
    "guarded": {"min_insync_replicas": "2"},
    "indexed": {"index_interval_bytes": "100", "segment_index_bytes": "64"},
    "secret": {},
    "__consumer_offsets": {},
}
NAMES = [*TOPICS, *["plain"] * 8, "absent", "n" * 127, "ä"]


def world(*, is_short: bool) -> World:
    files = ForgetfulFiles()
    files.make_directory("/data")
    made = World(DIRECTORY, files=files, log_index_size_max_bytes="1024")
    for name, configs in TOPICS.items():
        made.create_topic(name, **configs)
    made.authoriser.denied.add((Action.WRITE, "secret"))
    if not is_short:
        made.dispatcher = Dispatcher({key: api._replace(short=None) for key, api in made.apis.items()}, made.services)
        made._dispatch = made.dispatcher.dispatch
    return made


TIMES = st.sampled_from([NOW_MS, NOW_MS, NOW_MS, NOW_MS - 900, NOW_MS + 1500, NOW_MS - 2**33, -1, 0, 2**60])
RECORDS = st.tuples(TIMES, st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=60), st.just(()))
PRODUCERS = st.sampled_from([(-1, -1), (-1, -1), (5, 0), (5, 1), (6, 0)])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    producer_id, epoch = draw(PRODUCERS)
    return build_batch(
        draw(st.lists(RECORDS, min_size=1, max_size=3)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1 if producer_id < 0 else draw(st.integers(0, 4)),
        codec=draw(st.sampled_from([Codec.NONE] * 8 + [Codec.GZIP])),
        timestamp_type=draw(st.sampled_from([TimestampType.CREATE_TIME] * 8 + [TimestampType.LOG_APPEND_TIME])),
        transactional=draw(st.integers(0, 9)) == 0,
        base_offset=draw(st.sampled_from([0] * 9 + [3])),
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, bytes]:
    """A version and a frame's body, as a client would make it or nearly so."""
    version = draw(st.integers(3, 13))
    make = shape(0, version)
    name, number = draw(st.sampled_from(NAMES)), draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    records = draw(st.one_of(batches(), batches(), batches(), broken(batches()), batches().map(overstated), st.none()))
    entry = make.topic_data.partition_data.make(index=number, records=records)
    ids = [uuid.UUID(int=1001), uuid.UUID(int=1002), uuid.UUID(int=9)]
    topic = make.topic_data.make(
        name=name, topic_id=draw(st.sampled_from(ids)), partition_data=(entry,) * draw(st.sampled_from([1] * 9 + [2]))
    )
    values: dict[str, Any] = {
        "transactional_id": draw(st.sampled_from([None] * 9 + ["id"])),
        "acks": draw(st.sampled_from([-1, 0, 1, 1, 2])),
        "timeout": datetime.timedelta(milliseconds=draw(st.sampled_from([0, 1000]))),
        "topic_data": (topic,) * draw(st.sampled_from([1] * 9 + [0, 2])),
    }
    return version, make.make(**values)


def overstated(records: bytes) -> bytes:
    """The same batch, but its header claims a later timestamp than any record has."""
    data = bytearray(records)
    data[35:43] = (NOW_MS + 500).to_bytes(8, "big")
    data[17:21] = crc32c(data, 21).to_bytes(4, "big")
    return bytes(data)


def answer(one: World, frame: bytes, version: int) -> Any:
    try:
        said = Answer(0, version, 9, one.send_frame(frame))
    except (MalformedMessageError, CloseConnectionError) as error:
        return type(error), str(error)
    one.loop.advance(2000)
    return said._content, [partition.log.recovery_point for partition in one.partitions]


def state(one: World) -> dict[str, Any]:
    """The logs' files, byte for byte, and what is known of them."""
    found: dict[str, Any] = {}
    for partition in one.partitions:
        directory = partition.log.directory
        for name in one.files.list(directory):
            if name.endswith((".log", ".index", ".timeindex", ".snapshot")):
                found[f"{directory}/{name}"] = one.files.read(f"{directory}/{name}")
    for partition in one.partitions:
        log, traffic = partition.log, partition.traffic
        found[str(partition.topic_partition)] = (
            log.end_offset,
            log.high_watermark,
            log.log_start_offset,
            log.log.active.largest,
            [(known.producer_id, known.epoch, list(known.batches)) for known in log.producers.values()],
            [getattr(traffic, field) for field in FIELDS],
        )
    return found


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(requests(), min_size=1, max_size=25), st.data())
def test_both_ways_lead_to_the_same(asked: list[tuple[int, Any]], data: st.DataObject) -> None:
    worlds = world(is_short=True), world(is_short=False)
    for version, request in asked:
        frame = worlds[0].frame(0, version, request)
        if data.draw(st.integers(0, 5)) == 0:  # the header stays
            frame = frame[:HEADER_BYTES] + data.draw(broken(st.just(frame[HEADER_BYTES:])))
        short, long = (answer(one, frame, version) for one in worlds)
        assert short == long
    assert state(worlds[0]) == state(worlds[1])


class Client:
    """One connection to a world, and a new one where the broker closes it."""

    def __init__(self, one: World, turn: ManualTurn) -> None:
        self._world = one
        self._turn = turn
        self.answers: list[bytes] = []
        self._connect()

    def _connect(self) -> None:
        self._transport = FakeTransport()
        self._transport.turn = self._turn
        self._connection = connected(self._world.dispatcher.dispatch, self._transport, frame_bytes_max=10_000)

    def send(self, frames: list[bytes]) -> None:
        """In one turn of the loop."""
        receive(self._connection, b"".join(map(prefixed, frames)))
        said = self._transport.sent
        self._world.loop.advance(2000)
        said = self._transport.sent
        self.answers.append(said + b"closed" if self._transport.closed else said)
        self._connect()


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.lists(requests(), min_size=1, max_size=12), min_size=1, max_size=4), st.booleans())
def test_requests_of_one_turn_lead_to_the_same_as_one_after_the_other(
    turns: list[list[tuple[int, Any]]], is_followed: bool
) -> None:
    worlds = world(is_short=True), world(is_short=False)
    if is_followed:
        for one in worlds:
            lead(one)
    gathering = ManualTurn(worlds[0].dispatcher)
    clients = Client(worlds[0], gathering), Client(worlds[1], ManualTurn())
    for asked in turns:
        frames = [worlds[0].frame(0, version, request) for version, request in asked]
        for client in clients:
            client.send(frames)
    assert clients[0].answers == clients[1].answers
    assert state(worlds[0]) == state(worlds[1])


def test_many_requests_of_one_turn_are_written_with_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = World(tmp_path)
    one.create_topic("first")
    one.create_topic("second")
    client = Client(one, ManualTurn(one.dispatcher))
    records = build_batch([(NOW_MS, None, b"v" * 100, ())])
    frames = {topic: one_batch(one, 9, topic, records, 1) for topic in ("first", "second")}
    for frame in frames.values():
        client.send([frame])  # the first batch of a segment is alone
    writes: list[int] = []
    write = os.pwrite

    def counted(descriptor: int, data: bytes, position: int) -> int:
        writes.append(len(data))
        return write(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", counted)
    client.send([frames["first"], frames["second"]] * 20)
    assert writes == [20 * len(records)] * 2
    assert [partition.log.end_offset for partition in one.partitions] == [21, 21]


def test_who_waits_for_records_has_them_in_the_turn_that_brings_them(tmp_path: Path) -> None:
    one = World(tmp_path)
    one.create_topic("t")
    waiting = fetch(one, {("t", 0): 0}, wait_ms=1000)
    was_there, asked_before = waiting.is_there, len(one.loop._soon)
    transport = FakeTransport()
    transport.turn = ManualTurn(one.dispatcher)
    records = build_batch([(NOW_MS, None, b"v", ())])
    receive(connected(one.dispatcher.dispatch, transport), prefixed(one_batch(one, 9, "t", records, 1)))
    transport.turn.end()
    assert (was_there, waiting.is_there) == (False, True)
    assert len(one.loop._soon) == asked_before, "no other turn is asked for"


def test_answers_of_a_turn_that_wait_for_a_follower_keep_their_order() -> None:
    one = world(is_short=True)
    partition = lead(one)
    transport = FakeTransport()
    transport.turn = ManualTurn(one.dispatcher)
    connection = connected(one.dispatcher.dispatch, transport)
    records = build_batch([(NOW_MS, None, b"v", ())])
    for acks in (1, -1, 1, -1):
        receive(connection, prefixed(one_batch(one, 9, "plain", records, acks)) * 2)
        transport.turn.end()
    assert len(split(transport.sent)) == 2, "those that wait for nobody, and for no answer before theirs"
    go_on(one, partition, "the follower has it")
    said = [Answer(0, 9, 9, one_said).read().responses[0].partition_responses[0] for one_said in split(transport.sent)]
    assert [(one_said.error_code, one_said.base_offset) for one_said in said] == [(0, number) for number in range(8)]


def test_a_write_that_fails_fails_the_requests_of_its_directory_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = World(tmp_path / "first", tmp_path / "second")
    one.create_topic("t", 4)
    broken = one.partitions.get("t", 1).log
    assert [Path(partition.log.directory).parent.name for partition in one.partitions] == ["first", "second"] * 2
    records = build_batch([(NOW_MS, None, b"v" * 100, ())])
    frames = [one_batch(one, 9, "t", records, 1, number) for number in (0, 1, 2, 3, 1)]
    client = Client(one, ManualTurn(one.dispatcher))
    client.send(frames[:4])  # the first batch of a segment is alone
    write, written = os.pwrite, []

    def failing(descriptor: int, data: bytes, position: int) -> int:
        written.append(descriptor)
        if descriptor == broken.log.active.file.fileno():
            raise OSError(errno.EIO, "Input/output error")
        return write(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", failing)
    client.send([*frames, frames[0]])
    logs = {number: one.partitions.get("t", number).log for number in range(4)}
    assert [log.end_offset for log in logs.values()] == [3, 1, 2, 1]
    assert len(written) == 3, "nothing is written to a directory that failed"
    said = split(client.answers[-1])
    errors = [Answer(0, 9, 9, one_said).read().responses[0].partition_responses[0].error_code for one_said in said]
    assert errors == [0, STORAGE_ERROR, 0, STORAGE_ERROR, STORAGE_ERROR, 0]


def split(answers: bytes) -> list[bytes]:
    framing = Framing(10_000)
    return [prefixed(bytes(one)) for one in framing.feed(answers)]


def one_batch(one: World, version: int, topic: str, records: bytes, acks: int, number: int = 0) -> bytes:
    make = shape(0, version)
    entry = make.topic_data.partition_data.make(index=number, records=records)
    asked = make.topic_data.make(name=topic, topic_id=one.image.topics[topic].topic_id, partition_data=(entry,))
    request = make.make(transactional_id=None, acks=acks, timeout=datetime.timedelta(seconds=1), topic_data=(asked,))
    return one.frame(0, version, request)


def alone_of_three(one: World) -> None:
    """As in a cluster whose other replicas are gone: `guarded` wants two."""
    for partition in one.partitions.of_topic("guarded"):
        partition.take_role(leader=1, leader_epoch=partition.leader_epoch, isr=(1,), replicas=(1, 2, 3))


def every_kind_of_batch() -> list[bytes]:
    return [
        build_batch([(NOW_MS, b"k", b"first", ())]),
        build_batch([(NOW_MS + 1, b"k", b"second", ()), (NOW_MS, b"k", b"third", ())]),
        build_batch([(NOW_MS, None, b"no key", ())]),
        overstated(build_batch([(NOW_MS, b"k", b"fourth", ())])),
        build_batch([(NOW_MS - 5000, b"k", b"old", ())]),
        build_batch([(NOW_MS, b"k", b"v" * 600, ())]),
        *(
            build_batch([(NOW_MS, b"k", b"%d" % n, ())], producer_id=5, producer_epoch=0, base_sequence=n)
            for n in (0, 1, 1, 3, 2)
        ),
    ]


@pytest.mark.parametrize("topic", TOPICS)
def test_requests_of_one_turn_lead_to_the_same_in_every_kind_of_topic(topic: str) -> None:
    worlds = world(is_short=True), world(is_short=False)
    gathering = ManualTurn(worlds[0].dispatcher)
    clients = Client(worlds[0], gathering), Client(worlds[1], ManualTurn())
    plain = [build_batch([(NOW_MS, b"k", b"%d" % number, ())]) for number in range(3)]
    numbered = [
        build_batch([(NOW_MS, b"k", b"v", ())], producer_id=6, producer_epoch=0, base_sequence=sequence)
        for sequence in (0, 1, 2, 2, 3, 5, 4, 5)
    ]
    frames = [
        one_batch(worlds[0], version, topic, records, acks)
        for records in [*plain, *numbered, *every_kind_of_batch(), *plain * 3]
        for version, acks in ((9, 1), (13, -1), (8, 1))[: 1 if records in numbered else 3]
    ]
    for count in (1, 2, 7, 40, 12, 60):
        turn, frames = frames[:count], frames[count:]
        for client in clients:
            client.send(turn)
    assert frames == []
    assert clients[0].answers == clients[1].answers
    assert state(worlds[0]) == state(worlds[1])


@pytest.mark.parametrize("topic", TOPICS)
def test_both_ways_lead_to_the_same_in_every_kind_of_topic(topic: str) -> None:
    worlds = world(is_short=True), world(is_short=False)
    for one in worlds:
        alone_of_three(one)
    records = every_kind_of_batch()
    for version in range(3, 14):
        for acks in (1, -1, 0):
            for data in records:
                frame = one_batch(worlds[0], version, topic, data, acks)
                short, long = (answer(one, frame, version) for one in worlds)
                assert short == long
    assert state(worlds[0]) == state(worlds[1])


def lead(one: World) -> Partition:
    """`plain`, with a follower in sync, in a new epoch."""
    partition = one.partitions.get("plain", 0)
    partition.take_role(leader=1, leader_epoch=partition.leader_epoch + 1, isr=(1, 2), replicas=(1, 2))
    return partition


def go_on(one: World, partition: Partition, then: str) -> None:
    key, epoch = partition.topic_partition, partition.leader_epoch
    if then == "the follower has it":
        partition.fetched_by(2, 1, partition.log.end_offset, 0, one.clock.monotonic_ms())
    elif then == "another leads":
        partition.take_role(leader=2, leader_epoch=epoch + 1, isr=(2,), replicas=(1, 2))
    elif then == "the follower is gone":
        partition.min_isr = 2
        partition.isr = (1,)
        partition.log.set_high_watermark(partition.log.end_offset)
    one.services.produce_waits.changed(key)
    one.loop.turn()
    one.loop.advance(2000)


@pytest.mark.parametrize("then", ["the follower has it", "another leads", "the follower is gone", "time passes"])
def test_both_ways_lead_to_the_same_where_a_follower_must_have_it_first(then: str) -> None:
    worlds = world(is_short=True), world(is_short=False)
    for version in range(3, 14):
        for acks in (-1, 1):
            found = []
            for one in worlds:
                partition = lead(one)
                records = build_batch([(NOW_MS, b"k", b"v", ()), (NOW_MS, b"k", b"w", ())])
                said = Answer(0, version, 9, one.send_frame(one_batch(one, version, "plain", records, acks)))
                go_on(one, partition, then)
                partition.min_isr = 1
                found.append(said._content)
            assert found[0] == found[1], (version, acks)
            assert found[0] is not None
    assert state(worlds[0]) == state(worlds[1])


@pytest.mark.parametrize("is_followed", [False, True])
def test_what_a_client_sends_all_day_takes_the_short_way(is_followed: bool) -> None:
    one = world(is_short=True)
    taken: list[bool] = []
    produce = one.apis[0]
    assert produce.short is not None
    way = produce.short

    def counted(*arguments: Any) -> list[bytes | Pending[Any] | None]:
        said = way(*arguments)
        taken.append(bool(said) and said[0] is not None)
        return said

    one.dispatcher = Dispatcher({0: produce._replace(short=counted)}, one.services)
    one._dispatch = one.dispatcher.dispatch
    for version in range(3, 14):
        for acks in (1, -1):
            for producer_id, sequence in ((-1, -1), (7, len(taken) // 2)):
                records = build_batch(
                    [(NOW_MS, None, b"v" * 100, ())],
                    producer_id=producer_id,
                    producer_epoch=min(sequence, 0),
                    base_sequence=sequence,
                )
                partition = lead(one) if is_followed else one.partitions.get("plain", 0)
                later = Answer(0, version, 9, one.send_frame(one_batch(one, version, "plain", records, acks)))
                go_on(one, partition, "the follower has it")
                said = later.read()
                assert said.responses[0].partition_responses[0].base_offset == len(taken) - 1
    assert len(taken) == 44
    assert all(taken)
