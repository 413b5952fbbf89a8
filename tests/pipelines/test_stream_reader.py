"""What a stream decides between two batches: how far to go, when to wait, what counts as lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.client.cluster import Cluster
from penstock.client.offsets import EARLIEST, LATEST
from penstock.protocol.schemas import codec
from pyspark_penstock.options import Subscription, read_stream_options
from pyspark_penstock.planning import DataLossError
from pyspark_penstock.ranges import Origin, TopicRange
from pyspark_penstock.stream import WAIT_MS, StreamReader
from pyspark_penstock.stream_offsets import CheckpointError
from tests.unit.client.scripted_broker import DESCRIBE_LOG_DIRS, LIST_OFFSETS, ScriptedBroker, still_time

ALL = ReadAllAvailable()


class World:
    """A topic `t` whose partitions begin and end where the test says."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.cluster = Cluster(broker.config(), still_time())
        self.starts = [0]
        self.ends = [0]
        broker.handlers[LIST_OFFSETS] = self._list_offsets

    def set(self, ends: list[int], starts: list[int] | None = None) -> None:
        self.ends, self.starts = ends, starts or [0] * len(ends)
        self.broker.topics = {"t": len(ends)}

    def reader(self, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": str(self.broker.address), "subscribe": "t", **options}
        cluster = self.cluster

        class Reader(StreamReader):
            @property
            def _cluster(self) -> Cluster:
                return cluster

        return Reader(read_stream_options(given))

    def _list_offsets(self, version: int, request: Any) -> Any:
        shape = codec(LIST_OFFSETS, version).response
        by_time = {EARLIEST: self.starts, LATEST: self.ends}

        def listed(name: str, entry: Any) -> Any:
            is_there = name in self.broker.topics
            return shape.topics.partitions.make(
                partition_index=entry.partition_index,
                error_code=ErrorCode.none if is_there else ErrorCode.unknown_topic_or_partition,
                timestamp=-1,
                offset=by_time[entry.timestamp][entry.partition_index] if is_there else -1,
                leader_epoch=0,
            )

        topics = tuple(
            shape.topics.make(name=topic.name, partitions=tuple(listed(topic.name, one) for one in topic.partitions))
            for topic in request.topics
        )
        return shape.make(throttle_time=timedelta(), topics=topics)

    def tell_directories(self) -> None:
        """Each leader has one of its own."""
        self.broker.highest[DESCRIBE_LOG_DIRS] = 4
        self.broker.handlers[DESCRIBE_LOG_DIRS] = self._describe_log_dirs

    def _describe_log_dirs(self, version: int, request: Any) -> Any:
        shape = codec(DESCRIBE_LOG_DIRS, version).response
        partitions = tuple(
            shape.results.topics.partitions.make(
                partition_index=number, partition_size=0, offset_lag=0, is_future_key=False
            )
            for number in request.topics[0].partitions
        )
        topics = (shape.results.topics.make(name="t", partitions=partitions),)
        directory = f"/logs/{self.broker.leader}"
        result = shape.results.make(error_code=ErrorCode.none, log_dir=directory, topics=topics)
        return shape.make(throttle_time=timedelta(), error_code=ErrorCode.none, results=(result,))


@pytest.fixture
def world() -> Iterator[World]:
    with ScriptedBroker() as broker:
        made = World(broker)
        with made.cluster:
            yield made


def spans(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    found = reader.partitions(start, end)
    return [(one.partition, one.start_offset, one.end_offset) for one in found if isinstance(one, TopicRange)]


def test_the_first_batch_says_where_it_began_and_the_next_does_not(world: World) -> None:
    world.set([5, 7])
    reader = world.reader()
    begun = reader.initialOffset()
    world.set([9, 7])
    first = reader.latestOffset(begun, ALL)
    assert first == {"t": {"0": 9, "1": 7}, "@start": {"t": {"0": 5, "1": 7}}}
    assert reader.latestOffset(first, ALL) is first
    world.set([9, 8])
    assert reader.latestOffset(first, ALL) == {"t": {"0": 9, "1": 8}}
    assert spans(reader, first, {"t": {"0": 9, "1": 8}}) == [(1, 7, 8)]


def test_a_first_batch_run_again_begins_where_it_first_began(world: World) -> None:
    world.set([5])
    first = world.reader().latestOffset(world.reader().initialOffset(), ALL)
    world.set([50])
    again = world.reader()
    assert spans(again, again.initialOffset(), first | {"t": {"0": 20}}) == [(0, 5, 20)]


def test_a_first_batch_of_another_connector_is_run_again_only_if_its_beginning_is_known(world: World) -> None:
    world.set([5])
    end = {"t": {"0": 5}}  # began at 2, which its connector keeps to itself
    for starting in ("latest", '{"t": {"0": -1}}'):
        again = world.reader(startingOffsets=starting)
        with pytest.raises(CheckpointError, match="does not say where it began"):
            again.partitions(again.initialOffset(), end)
    again = world.reader(startingOffsets='{"t": {"0": 2}}')
    assert spans(again, again.initialOffset(), end) == [(0, 2, 5)]
    again = world.reader(startingOffsets="earliest")
    assert spans(again, again.initialOffset(), end) == [(0, 0, 5)]


def test_an_idle_source_waits_but_not_for_long(world: World) -> None:
    world.set([5])
    reader, clock = world.reader(), world.cluster.time.clock
    before_ms = clock.monotonic_ms()
    assert reader.latestOffset({"t": {"0": 5}}, ALL) == {"t": {"0": 5}}
    assert WAIT_MS <= clock.monotonic_ms() - before_ms < 2 * WAIT_MS
    reader.prepareForTriggerAvailableNow()
    before_ms = clock.monotonic_ms()
    assert reader.latestOffset({"t": {"0": 5}}, ALL) == {"t": {"0": 5}}
    assert clock.monotonic_ms() == before_ms


def test_available_now_goes_to_the_end_it_found_and_no_further(world: World) -> None:
    world.set([5])
    reader = world.reader()
    reader.prepareForTriggerAvailableNow()
    world.set([50])
    assert reader.latestOffset({"t": {"0": 1}}, ReadMaxRows(3)) == {"t": {"0": 4}}
    assert reader.latestOffset({"t": {"0": 4}}, ReadMaxRows(3)) == {"t": {"0": 5}}
    assert reader.latestOffset({"t": {"0": 5}}, ReadMaxRows(3)) == {"t": {"0": 5}}


def test_too_few_records_are_waited_for_until_the_delay_is_over(world: World) -> None:
    world.set([5])
    reader = world.reader(minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    world.set([8])
    assert reader.latestOffset(first, ALL) is first
    world.set([15])
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 15}}
    world.set([16])
    assert reader.latestOffset(second, ALL) is second
    world.cluster.time.sleep(6)
    assert reader.latestOffset(second, ALL) == {"t": {"0": 16}}


def test_the_lag_is_in_the_report(world: World) -> None:
    world.set([50])
    reader = world.reader(maxOffsetsPerTrigger="10")
    assert reader.latestOffset({"t": {"0": 5}}, reader.getDefaultReadLimit()) == {"t": {"0": 15}}
    assert reader.reportLatestOffset() == {"t": {"0": 50}}


def test_a_new_partition_is_read_from_its_beginning(world: World) -> None:
    world.set([5, 3])
    reader = world.reader()
    end = reader.latestOffset({"t": {"0": 5}}, ALL)
    assert end == {"t": {"0": 5, "1": 3}}
    assert spans(reader, {"t": {"0": 5}}, end) == [(1, 0, 3)]


def test_a_new_leader_is_asked_for_its_own_directory(world: World) -> None:
    """The old one's may be there still, with records that were never agreed on."""
    world.set([5])
    world.tell_directories()
    reader, asked = world.reader(), world.broker.requests[DESCRIBE_LOG_DIRS]

    def origin() -> Origin | None:
        (planned,) = reader.partitions({"t": {"0": 0}}, {"t": {"0": 5}})
        assert isinstance(planned, TopicRange)
        return planned.origin

    assert origin() == origin() == Origin("/logs/0", "scripted", 0)
    assert len(asked) == 1, "it is remembered"
    world.broker.brokers[1], world.broker.leader = world.broker.address, 1
    assert origin() == Origin("/logs/1", "scripted", 1)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("ends", "starts", "sentence"),
    [
        ([5], [0], "t-1 can no longer be found"),
        ([5, 2], [0, 0], "t-1 was read up to 3, but now its log ends at 2"),
        ([5, 3, 9], [0, 0, 4], "t-2 is new to this stream and begins at offset 4"),
    ],
)
def test_what_is_lost_is_an_error_or_passed_over(
    world: World, ends: list[int], starts: list[int], sentence: str
) -> None:
    world.set(ends, starts)
    start = {"t": {"0": 5, "1": 3}}

    def plan(reader: StreamReader) -> None:
        reader.partitions(start, reader.latestOffset(start, ALL))

    with pytest.raises(DataLossError, match=sentence) as loss:
        plan(world.reader())
    assert str(loss.value).endswith("with failOnDataLoss=false the reading goes on with what is there")
    plan(world.reader(failOnDataLoss="false"))


def test_deleted_records_are_lost_though_they_may_stand_in_the_files(world: World) -> None:
    """As over the wire, where a broker refuses them."""
    world.set([9, 9], [6, 0])
    world.tell_directories()
    start, end = {"t": {"0": 4, "1": 2}}, {"t": {"0": 9, "1": 9}}
    with pytest.raises(DataLossError, match="t-0 was read up to 4, but now its log begins at 6"):
        world.reader().partitions(start, end)
    assert spans(world.reader(failOnDataLoss="false"), start, end) == [(0, 6, 9), (1, 2, 9)]


def test_a_topic_that_is_deleted_while_nothing_comes_is_lost_and_the_others_are_read_on(world: World) -> None:
    world.set([5])
    start = {"t": {"0": 5}, "u": {"0": 5}}
    asked = 0

    def deleted_soon(version: int, request: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 2:
            del world.broker.topics["u"]
        return world._list_offsets(version, request)

    world.broker.handlers[LIST_OFFSETS] = deleted_soon
    for reader in (world.reader(failOnDataLoss="false"), world.reader()):
        reader._options = replace(reader._options, common=replace(reader._options.common, subscription=Subscription(pattern=".")))  # fmt: skip
        asked, world.broker.topics = 0, {"t": 1, "u": 1}
        if reader._options.common.fail_on_data_loss:
            with pytest.raises(DataLossError, match="u-0 can no longer be found"):
                reader.latestOffset(start, ALL)
        else:
            assert reader.latestOffset(start, ALL) == {"t": {"0": 5}}
        assert asked > 2
