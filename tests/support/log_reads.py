"""A consumer in a few lines: what a client makes of what a log gives it. Independent of the kernels' Arrow path."""

from __future__ import annotations

import struct

from penstock.records import payload
from penstock.records.batch import Batch, scan
from penstock.storage.answers import Bound
from penstock.storage.cleaner import uncompressed
from penstock.storage.partition_log import PartitionLog
from tests.support.kafka_reads import ReadRecord
from tests.support.log_checks import field_of, rows_in


def read_records(log: PartitionLog, bound: Bound) -> list[ReadRecord]:
    """Every data record below the bound; of aborted transactions none where the bound is LAST_STABLE."""
    rows: list[ReadRecord] = []
    offset = log.log_start_offset
    aborting: set[int] = set()
    while True:
        result = log.read(offset, bytes_max=3_000, bound=bound)
        if result.slice is None:
            return rows
        data = result.slice.read()
        waiting = sorted(result.aborted or [], key=lambda entry: entry.first_offset)
        batches = scan(data).batches
        assert batches, "a read gives one whole batch at least"
        for batch in batches:
            while waiting and waiting[0].first_offset <= batch.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if batch.is_control:
                if _is_abort(data, batch):
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                rows += [row for row in _rows(data, batch) if row.offset >= offset]
        offset = batches[-1].last_offset + 1


def _is_abort(data: bytes, batch: Batch) -> bool:
    if not batch.record_count:
        return False
    body, start, end = uncompressed(data, batch)
    rows = payload.columns(body, start, end, 1)
    _, kind = struct.unpack_from(">hh", memoryview(body), rows.key_start[0])
    return bool(kind == 0)


def _rows(data: bytes, batch: Batch) -> list[ReadRecord]:
    body, start, end = uncompressed(data, batch)
    columns = payload.columns(body, start, end, batch.record_count)
    view = memoryview(body)
    return [
        ReadRecord(
            offset=row.offset,
            timestamp_type=2 if batch.is_log_append_time else 1,
            timestamp=row.timestamp,
            key=row.key,
            value=row.value,
            headers=_headers(view, columns.headers_start[slot], columns.headers_count[slot]),
        )
        for slot, row in enumerate(rows_in(data, batch))
    ]


def _headers(view: memoryview, position: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    headers = []
    for _ in range(count):
        length, position = _varint(view, position)
        name = bytes(view[position : position + length]).decode()
        position += length
        length, position = _varint(view, position)
        headers.append((name, field_of(view, position, length)))
        position += max(length, 0)
    return tuple(headers)


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position
