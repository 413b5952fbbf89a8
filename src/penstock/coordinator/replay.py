"""A shard filled from its log, batch by batch, so that the caller may pause between two."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.protocol.errors import MalformedMessageError
from penstock.records import codecs, payload
from penstock.records.batch import HEADER_BYTES, Batch, Codec, scan
from penstock.records.build import read_control


class Replay:
    """Feeds a shard. `next_offset` is where the next bytes are to begin. A coordinator says what a record means to it."""

    def __init__(self, first_offset: int) -> None:
        self.next_offset = first_offset
        self.passed_over = 0
        """Records that are none of ours: of newer protocols, or not readable."""

    def feed(self, data: bytes) -> Iterator[int]:
        """Takes whole batches; yields the number of records after each."""
        for batch in scan(data).batches:
            if batch.last_offset >= self.next_offset:
                self._batch(batch, data)
                self.next_offset = batch.last_offset + 1
                yield batch.record_count

    def _batch(self, batch: Batch, data: bytes) -> None:
        if batch.record_count == 0:
            return
        start, end = batch.position + HEADER_BYTES, batch.position + batch.size_bytes
        if batch.is_control:
            self.control(batch, read_control(data, start, end)[1])
            return
        body = data
        if batch.codec is not Codec.NONE:
            body = bytes(codecs.decompress(batch.codec, memoryview(data)[start:end]))
            start, end = 0, len(body)
        rows = payload.columns(body, start, end, batch.record_count)
        for index in range(batch.record_count):
            if batch.base_offset + rows.offset_delta[index] < self.next_offset:
                continue
            key = _field(body, rows.key_start[index], rows.key_length[index])
            value = _field(body, rows.value_start[index], rows.value_length[index])
            try:
                taken = key is not None and self.record(batch, key, value)
            except MalformedMessageError:
                taken = False
            if not taken:
                self.passed_over += 1

    def record(self, batch: Batch, key: bytes, value: bytes | None) -> bool:
        """Takes one record; says whether it was one of this coordinator's."""
        raise NotImplementedError

    def control(self, batch: Batch, control_type: int) -> None:
        """A transaction of the batch's producer ended."""


def _field(data: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else data[start : start + length]
