"""Rows to record batches, one for each partition they go to: Arrow's columns as they are, no object for a row."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.records import partition_kernels
from penstock.records.batch import Codec
from penstock.records.build import (
    NO_HEADERS,
    BinaryColumn,
    HeadersColumn,
    build_batch_from_columns,
    size_from_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

PartitionCount = Callable[[str], int]
"""How many partitions a topic has."""


class BadRowError(PenstockError):
    """A row that cannot be written; the text says where it stands."""


class Stamp(NamedTuple):
    """What a batch carries of its producer."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class MadeBatch(NamedTuple):
    """A batch, and where its first and its last row stand in their task."""

    data: bytes
    first_place: int
    last_place: int


class Part(NamedTuple):
    """The rows of one partition: [first, end) of `columns`."""

    partition: TopicPartition
    columns: pa.RecordBatch
    places: pa.Array
    """Where each row of the columns stands in its task."""
    first: int
    end: int


def parts_of(
    rows: pa.RecordBatch, topic: str | None, count_of: PartitionCount, first_row: int, turn: int
) -> Iterator[Part]:
    """The rows by partition, in order; `turn` says which partition of its topic takes the keyless ones."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    places = pa.array(range(first_row, first_row + rows.num_rows), pa.int64())
    for name, chosen in _by_topic(rows, topic, first_row):
        mine, at = (rows, places) if chosen is None else (rows.take(chosen), places.take(chosen))
        partitions = _partitions(mine, name, count_of(name), at, turn)
        order = pc.sort_indices(partitions)
        mine, at, partitions = mine.take(order), at.take(order), partitions.take(order)
        first = 0
        for run in pc.run_end_encode(partitions).run_ends.to_pylist():
            number = partitions[first].as_py()
            yield Part(TopicPartition(name, number), mine, at, first, run)
            first = run


def _by_topic(rows: pa.RecordBatch, topic: str | None, first_row: int) -> Iterator[tuple[str, pa.Array | None]]:
    """Each topic with the rows that go there; None for all of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if topic is not None:
        yield topic, None
        return
    topics = rows.column("topic")
    if topics.null_count:
        raise BadRowError(f"row {first_row + pc.index(pc.is_null(topics), True).as_py()} names no topic")
    for name in pc.unique(topics).to_pylist():
        yield name, pc.indices_nonzero(pc.equal(topics, pa.scalar(name, topics.type)))


def _partitions(rows: pa.RecordBatch, topic: str, count: int, places: pa.Array, turn: int) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = _binary(rows, "key")
    chosen = array("i", bytes(4 * rows.num_rows))
    partition_kernels.choose(0, rows.num_rows, *_buffers(keys), count, chosen)
    found = pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(chosen)])
    found = pc.if_else(pc.less(found, 0), pa.scalar(turn % count, pa.int32()), found)
    if "partition" in rows.schema.names:
        named = rows.column("partition")
        wrong = pc.fill_null(pc.or_(pc.less(named, 0), pc.greater_equal(named, count)), False)
        if pc.any(wrong).as_py():
            slot = pc.index(wrong, True).as_py()
            raise BadRowError(
                f"row {places[slot].as_py()} names partition {named[slot].as_py()} of topic {topic}, which has {count}"
            )
        found = pc.coalesce(named, found)
    return found


def batches_of(
    part: Part, codec: Codec, bytes_max: int, timestamp_ms: int, stamp: Callable[[int], Stamp]
) -> Iterator[MadeBatch]:
    """The part as batches of at most `bytes_max` bytes before compression. `stamp` is told how many records come next."""
    columns = part.columns
    timestamps = array("q", [timestamp_ms]) * columns.num_rows
    keys, values = BinaryColumn(*_buffers(_binary(columns, "key"))), BinaryColumn(*_buffers(_binary(columns, "value")))
    headers = _headers(columns)
    first, end = part.first, part.end
    step = max(1, bytes_max // (columns.nbytes // columns.num_rows + 16))
    while first < end:
        count = min(step, end - first)
        size = size_from_columns(timestamps, keys, values, headers, first=first, count=count)
        if size > bytes_max and count == 1:
            place = part.places[first].as_py()
            raise BadRowError(f"row {place} takes {size} bytes, more than kafka.max.request.size={bytes_max}")
        if size > bytes_max:
            step = count // 2
            continue
        data = build_batch_from_columns(
            timestamps, keys, values, headers, first=first, count=count, codec=codec, **stamp(count)._asdict()
        )
        yield MadeBatch(data, part.places[first].as_py(), part.places[first + count - 1].as_py())
        first += count


def _binary(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    import pyarrow as pa

    if name not in rows.schema.names:
        return None
    column = rows.column(name)
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _buffers(column: pa.Array | None) -> tuple[memoryview, memoryview, memoryview]:
    """Ends, data and bitmap, from row 0 on."""
    nothing = memoryview(b"")
    if column is None or len(column) == 0:
        return memoryview(array("i")), nothing, nothing
    if column.offset:
        column = _own(column)
    valid, ends, data = column.buffers()
    return (
        memoryview(ends).cast("B")[: 4 * (len(column) + 1)].cast("i"),
        nothing if data is None else memoryview(data).cast("B"),
        nothing if column.null_count == 0 else memoryview(valid).cast("B"),
    )


def _own(column: pa.Array) -> pa.Array:
    """The same items in buffers that begin with them."""
    import pyarrow as pa

    return column.take(pa.array(range(len(column)), pa.int32()))


def _headers(rows: pa.RecordBatch) -> HeadersColumn:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "headers" not in rows.schema.names or rows.column("headers").null_count == rows.num_rows:
        return NO_HEADERS
    lists = _own(rows.column("headers"))
    ends = array("i", [0])
    ends.extend(pc.cumulative_sum(lists.value_lengths().fill_null(0)).to_pylist())
    pairs = lists.flatten()
    if pairs.null_count or pairs.field(0).null_count:
        raise BadRowError("a header has no name")
    names, contents = pairs.field(0).cast(pa.binary()), pairs.field(1)
    return HeadersColumn(ends, BinaryColumn(*_buffers(names)), BinaryColumn(*_buffers(contents)))
