"""A shard filled from its log, batch by batch, so that the caller may pause between two."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.coordinator.groups.messages import Record
from penstock.coordinator.groups.shard import Shard
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.group_records import OffsetKey, decode_group_value, decode_key, decode_offset_value
from penstock.records import codecs, payload
from penstock.records.batch import HEADER_BYTES, Batch, Codec, scan
from penstock.records.build import ControlType, read_control


class Replay:
    """Feeds a shard. `next_offset` is where the next bytes are to begin."""

    def __init__(self, shard: Shard, first_offset: int) -> None:
        self.shard = shard
        self.next_offset = first_offset
        self.passed_over = 0
        """Records that are none of ours: of newer protocols, or not readable."""
        self.open_transactions: dict[int, list[Record]] = {}
        """Offsets committed in transactions that have not ended, by producer id."""

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
            self._end_transaction(batch.producer_id, read_control(data, start, end)[1])
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
            record = self._decode(key, value)
            if record is None:
                self.passed_over += 1
            elif batch.is_transactional:
                self.open_transactions.setdefault(batch.producer_id, []).append(record)
            else:
                self.shard.replay(*record)

    @staticmethod
    def _decode(key: bytes | None, value: bytes | None) -> Record | None:
        if key is None:
            return None
        try:
            found = decode_key(key)
            if found is None:
                return None
            if value is None:
                return found, None
            return found, decode_offset_value(value) if isinstance(found, OffsetKey) else decode_group_value(value)
        except MalformedMessageError:
            return None

    def _end_transaction(self, producer_id: int, control_type: int) -> None:
        records = self.open_transactions.pop(producer_id, [])
        if control_type == ControlType.COMMIT:
            for record in records:
                self.shard.replay(*record)


def _field(data: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else data[start : start + length]
