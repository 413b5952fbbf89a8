"""Rows to record batches, one for each partition they go to: Arrow's columns as they are, no object for a row."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.errors import AnswerError, UnknownTopicError
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
        count = count_of(name) if chosen is None else _count_named(name, count_of, at)
        partitions = _partitions(mine, name, count, at, turn)
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


def _count_named(topic: str, count_of: PartitionCount, places: pa.Array) -> int:
    """How many partitions a topic has that rows name; they are at fault if there is no such topic."""
    try:
        return count_of(topic)
    except (UnknownTopicError, AnswerError) as error:
        if isinstance(error, AnswerError) and error.is_retriable:
            raise  # it is the broker that is at fault
        raise BadRowError(f"row {places[0].as_py()} names the topic {topic!r}: {error}") from error


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


class Rows:
    """The rows of a part, ready to be made into batches: whole or any stretch of it."""

    def __init__(self, part: Part, codec: Codec, timestamp_ms: int) -> None:
        columns = part.columns
        self.partition = part.partition
        self._places = part.places
        self._codec = codec
        self._timestamps = array("q", [timestamp_ms]) * columns.num_rows
        self._keys = BinaryColumn(*_buffers(_binary(columns, "key")))
        self._values = BinaryColumn(*_buffers(_binary(columns, "value")))
        self._headers = _headers(columns, part.places)
        self.row_bytes = columns.nbytes // columns.num_rows + 16

    def place(self, row: int) -> int:
        """Where a row stands in its task."""
        return int(self._places[row].as_py())

    def size(self, first: int, count: int) -> int:
        """Before compression."""
        return size_from_columns(self._timestamps, self._keys, self._values, self._headers, first=first, count=count)

    def build(self, first: int, count: int, stamp: Stamp) -> bytes:
        return build_batch_from_columns(
            self._timestamps,
            self._keys,
            self._values,
            self._headers,
            first=first,
            count=count,
            codec=self._codec,
            **stamp._asdict(),
        )


class RowBatch:
    """A batch and the rows it was made of, so that it can be made again in halves."""

    def __init__(self, rows: Rows, first: int, count: int, stamp: Stamp) -> None:
        self.partition = rows.partition
        self.data = rows.build(first, count, stamp)
        self.count = count
        self._rows = rows
        self._first = first
        self._stamp = stamp

    @property
    def place(self) -> int:
        """Of its first row."""
        return self._rows.place(self._first)

    @property
    def size(self) -> int:
        return self._rows.size(self._first, self.count)

    def halves(self) -> tuple[RowBatch, RowBatch]:
        half = self.count // 2
        sequence = self._stamp.base_sequence
        later = self._stamp if sequence < 0 else self._stamp._replace(base_sequence=(sequence + half) % (1 << 31))
        return (
            RowBatch(self._rows, self._first, half, self._stamp),
            RowBatch(self._rows, self._first + half, self.count - half, later),
        )


def batches_of(
    part: Part, codec: Codec, bytes_max: int, timestamp_ms: int, stamp: Callable[[int], Stamp]
) -> Iterator[RowBatch]:
    """The part as batches of at most `bytes_max` bytes before compression. `stamp` is told how many records come next."""
    rows = Rows(part, codec, timestamp_ms)
    first, end = part.first, part.end
    step = max(1, bytes_max // rows.row_bytes)
    while first < end:
        count = min(step, end - first)
        size = rows.size(first, count)
        if size > bytes_max and count == 1:
            raise BadRowError(
                f"row {rows.place(first)} takes {size} bytes, more than kafka.max.request.size={bytes_max}"
            )
        if size > bytes_max:
            step = count // 2
            continue
        yield RowBatch(rows, first, count, stamp(count))
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


def _headers(rows: pa.RecordBatch, places: pa.Array) -> HeadersColumn:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "headers" not in rows.schema.names or rows.column("headers").null_count == rows.num_rows:
        return NO_HEADERS
    lists = _own(rows.column("headers"))
    ends = array("i", [0])
    ends.extend(pc.cumulative_sum(lists.value_lengths().fill_null(0)).to_pylist())
    pairs = lists.flatten()
    if pairs.null_count or pairs.field(0).null_count:
        nameless = pc.index(pc.or_(pairs.is_null(), pairs.field(0).is_null()), True).as_py()
        raise BadRowError(f"row {places[bisect_right(ends, nameless) - 1].as_py()} has a header without a name")
    names, contents = pairs.field(0).cast(pa.binary()), pairs.field(1)
    return HeadersColumn(ends, BinaryColumn(*_buffers(names)), BinaryColumn(*_buffers(contents)))
