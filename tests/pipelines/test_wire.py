"""A task reads its range, and what is gone meanwhile is an error or passed over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from penstock.client.offsets import EARLIEST
from penstock.protocol.fetch import FetchRequest
from penstock.protocol.schemas import codec
from penstock.records.build import build_batch
from pyspark_penstock.options import read_common
from pyspark_penstock.planning import DataLossError
from pyspark_penstock.ranges import TopicRange
from pyspark_penstock.wire import read_wire
from tests.unit.client.scripted_broker import FETCH, LIST_OFFSETS, TOPIC_ID, ScriptedBroker, fetched

LOG_START, LOG_END = 40, 60


def serve_fetch(_version: int, request: FetchRequest) -> Any:
    offset = request.topics[0].partitions[0].fetch_offset
    if not LOG_START <= offset <= LOG_END:
        return fetched(request, error_code=ErrorCode.offset_out_of_range)
    base = offset - offset % 10
    return fetched(request, build_batch([(n, None, b"%d" % n, ()) for n in range(base, base + 10)], base_offset=base))


def serve_offsets(version: int, request: Any) -> Any:
    shape = codec(LIST_OFFSETS, version).response
    offset = LOG_START if request.topics[0].partitions[0].timestamp == EARLIEST else LOG_END
    partition = shape.topics.partitions.make(
        partition_index=0, error_code=ErrorCode.none, timestamp=-1, offset=offset, leader_epoch=0
    )
    topics = (shape.topics.make(name="t", partitions=(partition,)),)
    return shape.make(throttle_time=timedelta(), topics=topics)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({FETCH: serve_fetch, LIST_OFFSETS: serve_offsets}) as made:
        yield made


def read(broker: ScriptedBroker, start: int, end: int, **options: str) -> list[int]:
    given = {"kafka.bootstrap.servers": str(broker.address), "subscribe": "t", "columns": "offset", **options}
    wanted = TopicRange("t", 0, TOPIC_ID.bytes, start, end)
    return [offset for rows in read_wire(wanted, read_common(given)) for offset in rows.column("offset").to_pylist()]


def test_a_range_within_batches_is_cut_to_the_offset(broker: ScriptedBroker) -> None:
    assert read(broker, 43, 57) == list(range(43, 57))


def test_an_empty_range_asks_nobody(broker: ScriptedBroker) -> None:
    assert read(broker, 43, 43) == []
    assert broker.connections == 0


def test_records_deleted_before_they_were_read_are_an_error(broker: ScriptedBroker) -> None:
    with pytest.raises(DataLossError) as loss:
        read(broker, 5, 50)
    assert "offsets 5 to 49 of t-0 were to be read, but its log now holds [40, 60)" in str(loss.value)


def test_or_they_are_passed_over(broker: ScriptedBroker) -> None:
    assert read(broker, 5, 50, failOnDataLoss="false") == list(range(40, 50))
    assert read(broker, 5, 20, failOnDataLoss="false") == []
    assert read(broker, 70, 90, failOnDataLoss="false") == []


def test_a_topic_deleted_before_it_was_read_is_an_error_or_passed_over(broker: ScriptedBroker) -> None:
    broker.topics = {}
    impatient = {"kafka.default.api.timeout.ms": "20"}
    with pytest.raises(DataLossError, match="has no topic t; with failOnDataLoss=false"):
        read(broker, 40, 50, **impatient)
    assert read(broker, 40, 50, failOnDataLoss="false", **impatient) == []
