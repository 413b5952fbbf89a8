"""The sink: rows into topics, at least once, or exactly once by transactions that tasks fill and the driver ends.

Exactly once, a task begins with InitProducerId, which shuts out an earlier attempt and aborts what it left; then it looks at
its marker, a group offset written in the transaction itself: if that says that this very batch is committed, nothing is
written. The driver commits when every task has succeeded. Whoever dies before that leaves transactions open, which the
next attempt, or their timeout, aborts; a driver that dies between two commits finds one half by its markers. A batch with
a name gets one more marker when all of it is committed: whoever runs it again may divide its rows among other tasks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.base.errors import ConfigError, PenstockError
from penstock.base.ids import TopicPartition
from penstock.client import producer as transactions
from penstock.client.cluster import Cluster
from penstock.client.errors import AnswerError, ClientError, UnreachableError
from penstock.client.groups import committed_offsets, set_offsets
from penstock.client.produce import produce
from penstock.client.produce_window import ProduceWindow
from penstock.client.producer import Producer
from penstock.client.transactions import wait_for_markers
from pyspark_penstock.clusters import cluster_of
from pyspark_penstock.sink_columns import BadRowError, RowBatch, Stamp, batches_of, parts_of
from pyspark_penstock.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

MARKERS_MS_MAX = 5_000

_SENT: set[Producer] = set()
"""Transactions whose commit this process has sent: an abort that follows a failed commit leaves them alone."""


_REFUSED = (
    ErrorCode.message_too_large,
    ErrorCode.record_list_too_large,
    ErrorCode.invalid_record,
    ErrorCode.invalid_timestamp,
)


class RolledBackError(PenstockError):
    """A checkpoint is older than what its query has written."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task leaves to the driver. No producer: there is nothing to end."""

    rows: int
    producer: Producer | None = None
    topic: str = field(default="", compare=False)
    """One that was written, now or before; its first partition is where markers stand."""


@dataclass(frozen=True)
class _Unit:
    """What is written once: a transactional id, which is its marker's group too, and the number that marks it as done."""

    transactional_id: str
    number: int | None
    """None: nobody could do it a second time."""
    whole: str = ""
    """The group whose marker says that all tasks of this number are committed."""


class _Task:
    """One task's writing. Sequences are counted by partition, as the leader does."""

    def __init__(self, options: SinkOptions, cluster: Cluster, name: str, turn: int) -> None:
        self._options = options
        self._cluster = cluster
        self._name = name
        self._turn = turn
        self._producer: Producer | None = None
        self._window: ProduceWindow | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}
        self.rows = 0

    def write_once(self, batches: Iterable[pa.RecordBatch], unit: _Unit) -> Written:
        if unit.whole and (place := self._marked(unit.whole, unit.number)):
            return Written(0, topic=place.topic)
        timeout_ms = self._options.transaction_timeout_ms
        self._producer = transactions.begin(self._cluster, unit.transactional_id, timeout_ms)
        try:
            if place := self._marked(unit.transactional_id, unit.number):
                return Written(0, topic=place.topic)
            self._write_all(batches)
            if not self._sequences:
                return Written(0)
            # Kafka refuses an offset of a partition that does not exist; partition 0 of a topic written does.
            place = TopicPartition(min(partition.topic for partition in self._sequences), 0)
            if unit.number is not None:
                marker = {place: unit.number + 1}
                transactions.add_offsets(self._cluster, self._producer, unit.transactional_id, marker)
        except BaseException:
            self._abort()
            raise
        return Written(self.rows, self._producer, place.topic)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """At least once; unless it was switched off, a leader takes each batch of this task once and in order."""
        if self._options.is_idempotent:
            self._producer = transactions.begin_idempotent(self._cluster)
        self._write_all(batches)
        return Written(self.rows)

    def _write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        if self._producer is not None:
            self._window = ProduceWindow(self._cluster, transactional_id=self._transactional_id)
        try:
            for batch in batches:
                if batch.num_rows:
                    self._write(batch)
            self._finish()
        except BadRowError as error:
            raise BadRowError(f"{self._name}: {error}") from error
        finally:
            if self._window is not None:
                self._window.abandon()

    @property
    def _transactional_id(self) -> str | None:
        return None if self._producer is None else self._producer.transactional_id or None

    def _marked(self, group_id: str, number: int | None) -> TopicPartition | None:
        """Where the group's marker stands, if it says that this number is done."""
        if number is None:
            return None
        marks = committed_offsets(self._cluster, group_id, is_stable=True)
        place = max(marks, key=lambda one: marks[one], default=None)
        if place is None or marks[place] <= number:
            return None
        if marks[place] > number + 1:
            raise RolledBackError(
                f"{group_id} has written number {marks[place] - 1} already and is asked for number {number}: its "
                "checkpoint was rolled back, or another query uses it"
            )
        return place

    def _abort(self) -> None:
        assert self._producer is not None
        try:
            transactions.abort(self._cluster, self._producer)
        except ClientError:
            return  # it was never begun, or its timeout ends it

    def _write(self, rows: pa.RecordBatch) -> None:
        options = self._options
        now_ms = time.time_ns() // 1_000_000
        parts = list(parts_of(rows, options.topic, self._count_of, self.rows, self._turn))
        self._turn += 1
        new = [part.partition for part in parts if part.partition not in self._sequences]
        if self._producer is not None and self._producer.transactional_id and new:
            transactions.add_partitions(self._cluster, self._producer, new)
        for part in parts:
            self._sequences.setdefault(part.partition, 0)
            stamp = partial(self._stamp, part.partition)
            for batch in batches_of(part, options.codec, options.request_bytes_max, now_ms, stamp):
                self._send(batch)
        self.rows += rows.num_rows

    def _send(self, batch: RowBatch) -> None:
        if self._window is None:
            self._send_alone(batch)
            return
        try:
            self._window.send(batch)
        except (AnswerError, UnreachableError):
            self._send_again()

    def _finish(self) -> None:
        if self._window is None:
            return
        try:
            self._window.flush()
        except (AnswerError, UnreachableError):
            self._send_again()

    def _send_again(self) -> None:
        """What is not acknowledged, one after another, as long as it takes; leaders know what they have already."""
        assert self._window is not None
        for batch in self._window.abandon():
            assert isinstance(batch, RowBatch)
            self._send_alone(batch)

    def _send_alone(self, batch: RowBatch) -> None:
        """A batch that is refused is sent again in halves: they may be small enough, or one row is found to be at fault."""
        try:
            produce(
                self._cluster,
                batch.partition,
                batch.data,
                acks=self._options.acks,
                transactional_id=self._transactional_id,
            )
        except AnswerError as error:
            if error.code not in _REFUSED:
                raise
            if batch.count == 1:
                raise BadRowError(f"the broker refuses row {batch.place}, of {batch.size} bytes: {error}") from error
            for half in batch.halves():
                self._send_alone(half)

    def _stamp(self, partition: TopicPartition, count: int) -> Stamp:
        if self._producer is None:
            return Stamp()
        sequence = self._sequences[partition]
        self._sequences[partition] = (sequence + count) % (1 << 31)
        is_transactional = bool(self._producer.transactional_id)
        return Stamp(self._producer.producer_id, self._producer.epoch, sequence, transactional=is_transactional)

    def _count_of(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(self._cluster.topics([topic])[topic].partitions)
        return self._counts[topic]


class _Writer:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._unique = uuid.uuid4().hex

    def _task(self, name: str, number: int) -> _Task:
        return _Task(self._options, cluster_of(self._options.client), name, number)

    def _commit(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Committed is what was sent, whatever is answered; then the rows are waited for, so that whoever reads next has them."""
        cluster = cluster_of(self._options.client)
        producers = [one.producer for one in messages if isinstance(one, Written) and one.producer is not None]
        for producer in producers:
            _SENT.add(producer)
            transactions.commit(cluster, producer)
        for producer in producers:
            wait_for_markers(cluster, producer.transactional_id, MARKERS_MS_MAX)

    def _abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        cluster = cluster_of(self._options.client)
        for message in messages:
            if isinstance(message, Written) and message.producer is not None and message.producer not in _SENT:
                try:
                    transactions.abort(cluster, message.producer)
                except ClientError:
                    continue  # its timeout ends it


class BatchWriter(_Writer, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: write to it with mode append")
        super().__init__(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        task = self._task(f"task {number}", number)
        if not self._options.is_exactly_once:
            return task.write(iterator)
        if self._options.application is None:
            return task.write_once(iterator, _Unit(f"penstock-{self._unique}-{number}", None))
        name = f"penstock-{self._options.application}"
        return task.write_once(iterator, _Unit(f"{name}-{number}", self._options.version, f"{name}-all"))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)
        topics = [one.topic for one in messages if isinstance(one, Written) and one.topic]
        if self._options.application is not None and topics:
            done = {TopicPartition(min(topics), 0): self._options.version + 1}
            set_offsets(cluster_of(self._options.client), f"penstock-{self._options.application}-all", done)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Spark means to overwrite where the output mode is complete; a topic gets the whole result again with each batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "streams are written by tasks"
        number = context.partitionId()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        task = self._task(f"batch {batch}, task {number}", number)
        if not self._options.is_exactly_once:
            return task.write(iterator)
        assert query is not None, "a stream's tasks know their query"
        assert batch is not None, "a stream's tasks know their batch"
        return task.write_once(iterator, _Unit(f"penstock-{query}-{number}", int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)
