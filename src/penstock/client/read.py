"""Reading one partition: a range of offsets as stretches of batches, the next Fetch always on the way.

When an answer arrives its batch headers are scanned, which gives the next offset; the next request leaves before the
batches are handed out, so that the broker reads while the caller decodes. A leader that moves, a connection that breaks
and an epoch that changes are met by asking for the metadata again and going on where the reading stood.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import CorruptRecordError, UnsupportedForMessageFormatError
from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster, Leader
from penstock.client.committed import committed_batches, data_batches
from penstock.client.connection import Connection
from penstock.client.errors import (
    AnswerError,
    ClientError,
    FetchOutOfRangeError,
    NoProgressError,
    UnknownTopicError,
    UnreachableError,
)
from penstock.client.fetch_codec import (
    HIGHEST,
    KEY,
    LOWEST,
    FetchCall,
    FetchFound,
    decode_fetch_answer,
    encode_fetch_call,
)
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.protocol.fetch import FLEXIBLE_FROM, TOPIC_ID_FROM
from penstock.records.batch import Batch, Stop, scan

NO_TOPIC_ID = bytes(16)
FETCH_BYTES_MIN = 64 * 1024
RECORD_BYTES_GUESS = 1024
STALL_MS = 120_000


class Stretch(NamedTuple):
    """What one answer held: the batches a reader may see, as places in `data`. The offsets up to end_offset are done with."""

    data: memoryview
    batches: list[Batch]
    end_offset: int


class _Way(NamedTuple):
    """The connection in use and what is sent over it."""

    connection: Connection
    leader: Leader
    version: int


def read_range(
    cluster: Cluster,
    partition: TopicPartition,
    start_offset: int,
    end_offset: int,
    *,
    topic_id: bytes = NO_TOPIC_ID,
    stall_ms: int = STALL_MS,
) -> Iterator[Stretch]:
    """The batches that hold offsets of [start_offset, end_offset), in order.

    The first and the last batch may hold offsets outside of the range, which the caller leaves out. With a topic id
    the reading fails once the name means another topic. FetchOutOfRangeError says that the log begins later, or
    ends before the offset where the reading stands; NoProgressError that nothing came for stall_ms.
    """
    return _RangeReader(cluster, partition, start_offset, end_offset, topic_id, stall_ms).run()


class _RangeReader:
    def __init__(
        self, cluster: Cluster, partition: TopicPartition, offset: int, end_offset: int, topic_id: bytes, stall_ms: int
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._offset = offset
        self._end_offset = end_offset
        self._topic_id = topic_id
        self._stall_ms = stall_ms
        self._bytes_per_offset = RECORD_BYTES_GUESS
        self._bytes_max = cluster.config.partition_bytes_max
        self._progress_ms = cluster.time.clock.monotonic_ms()

    def run(self) -> Iterator[Stretch]:
        attempts = self._cluster.attempts()
        while self._offset < self._end_offset:
            stood_at = self._offset
            try:
                with contextlib.ExitStack() as stack:
                    yield from self._read_from(self._find_way(stack))
            except (AnswerError, UnreachableError) as error:
                self._cluster.forget(self._partition.topic)
                if self._offset > stood_at:
                    attempts = self._cluster.attempts()
                attempts.failed(error)

    def _find_way(self, stack: contextlib.ExitStack) -> _Way:
        leader = self._cluster.leader(self._partition)
        if self._topic_id == NO_TOPIC_ID:
            self._topic_id = leader.topic_id
        if leader.topic_id not in (NO_TOPIC_ID, self._topic_id):
            # What is remembered may be older than what the caller was told.
            self._cluster.forget(self._partition.topic)
            leader = self._cluster.leader(self._partition)
        if leader.topic_id not in (NO_TOPIC_ID, self._topic_id):
            raise UnknownTopicError(
                f"topic {self._partition.topic} was deleted and made anew while {self._partition} was being read"
            )
        connection = stack.enter_context(self._cluster.connection(leader.node))
        highest = HIGHEST if leader.topic_id != NO_TOPIC_ID else TOPIC_ID_FROM - 1
        return _Way(connection, leader, connection.version(KEY, "Fetch", LOWEST, highest))

    def _read_from(self, way: _Way) -> Iterator[Stretch]:
        self._ask(way)
        while True:
            answer = way.connection.receive(wait_ms=self._cluster.config.fetch_wait_ms)
            found = decode_fetch_answer(answer.frame, answer.position, way.version)
            if found.error_code:
                raise self._refused(found.error_code, way)
            stretch = self._take(found)
            is_done = self._offset >= self._end_offset
            if not is_done:
                self._ask(way)
            if stretch.batches:
                yield stretch
            if is_done:
                return

    def _ask(self, way: _Way) -> None:
        likely_bytes = (self._end_offset - self._offset) * self._bytes_per_offset + FETCH_BYTES_MIN
        call = FetchCall(
            self._partition.topic,
            way.leader.topic_id,
            self._partition.partition,
            way.leader.epoch,
            self._offset,
            min(self._bytes_max, likely_bytes),
            self._cluster.config.fetch_wait_ms,
            self._cluster.config.read_committed,
        )
        body = encode_fetch_call(call, way.version)
        way.connection.send(KEY, way.version, body, is_flexible=way.version >= FLEXIBLE_FROM)

    def _take(self, found: FetchFound) -> Stretch:
        """Moves on past the batches that arrived whole."""
        data = found.records
        scanned = scan(data, check_crc=self._cluster.config.check_crcs)
        if scanned.stop is Stop.OLD_MAGIC:
            raise UnsupportedForMessageFormatError(
                f"{self._partition} holds records of the formats before Kafka 0.11 at offset {self._offset}"
            )
        if scanned.stop not in (Stop.COMPLETE, Stop.INCOMPLETE):
            after = scanned.batches[-1].end_offset if scanned.batches else self._offset
            raise CorruptRecordError(
                f"{self._partition}: the batch at offset {after} arrived broken: {scanned.stop.name.lower()}"
            )
        if not scanned.batches:
            self._wait_on(found)
            return Stretch(data, [], self._offset)
        start_offset, self._offset = self._offset, scanned.batches[-1].end_offset
        self._bytes_per_offset = 1 + scanned.end // max(1, self._offset - start_offset)
        self._progress_ms = self._cluster.time.clock.monotonic_ms()
        wanted = [batch for batch in scanned.batches if start_offset <= batch.last_offset]
        if self._cluster.config.read_committed:
            visible = committed_batches(data, wanted, found.aborted)
        else:
            visible = data_batches(wanted)
        return Stretch(data, [batch for batch in visible if batch.base_offset < self._end_offset], self._offset)

    def _wait_on(self, found: FetchFound) -> None:
        if len(found.records):
            self._bytes_max *= 2  # half a batch: an old broker cuts where the limit is
        elif self._cluster.time.clock.monotonic_ms() - self._progress_ms >= self._stall_ms:
            raise NoProgressError(
                f"{self._partition} gave no record at offset {self._offset} for {self._stall_ms} ms, though its end was "
                f"{self._end_offset}; now its high watermark is {found.high_watermark} and its last stable offset "
                f"{found.last_stable_offset}"
            )

    def _refused(self, error_code: int, way: _Way) -> ClientError:
        where = f"broker {way.connection.address}, Fetch of {self._partition} at offset {self._offset}"
        if error_code != ErrorCode.offset_out_of_range:
            return AnswerError(where, error_code)
        ends = [
            list_offsets(self._cluster, {self._partition: which})[self._partition].offset
            for which in (EARLIEST, LATEST)
        ]
        return FetchOutOfRangeError(where, self._offset, *ends)
