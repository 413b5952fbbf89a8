"""The records of the demo: record `number` stands at offset `number`, and says so, so that any of them can be checked."""

from __future__ import annotations

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.records import payload
from penstock.records.batch import Codec, scan
from penstock.records.build import build_batch
from penstock.storage.config import LogConfig, log_config


class WrongRecordError(PenstockError):
    """What was read is not what was written."""


PARTITION = TopicPartition("demo", 0)
BATCH_RECORDS = 500
_BASE_TIMESTAMP_MS = 1_700_000_000_000
_FILLING = b" rain fills the reservoir, the penstock drives the wheel, and nothing that came in is lost"


def config(records: int) -> LogConfig:
    """Segments of a size that makes about ten of them."""
    segment_bytes = max(records * 130 // 10, 100_000)
    return log_config({"segment.bytes": str(segment_bytes), "segment.index.bytes": "1048576"})


def key(number: int) -> bytes:
    return b"key %09d" % number


def value(number: int) -> bytes:
    return b"%09d" % number + _FILLING


def batch(first: int, count: int) -> bytes:
    return build_batch(
        [(_BASE_TIMESTAMP_MS + number, key(number), value(number), ()) for number in range(first, first + count)],
        codec=Codec.NONE,
    )


def check(data: bytes, expected: int) -> int:
    """Checks every record of whole batches, the first of which begins with number `expected`; the number after them.

    Raises WrongRecordError at the first that is not as it was written.
    """
    for found in scan(data).batches:
        start, end = found.position + 61, found.end_position
        rows = payload.columns(data, start, end, found.record_count)
        for index in range(found.record_count):
            offset = found.base_offset + rows.offset_delta[index]
            key_start, value_start = rows.key_start[index], rows.value_start[index]
            same = (
                offset == expected
                and data[key_start : key_start + rows.key_length[index]] == key(expected)
                and data[value_start : value_start + rows.value_length[index]] == value(expected)
            )
            if not same:
                raise WrongRecordError(
                    f"the proof failed: record {expected} is not at offset {offset} as it was written"
                )
            expected += 1
    return expected
