# The kernel as its callers see it, compiled or interpreted; the C types stand in kernels.py.
from typing import TypeVar

from _typeshed import ReadableBuffer, WriteableBuffer

_Batch = TypeVar("_Batch", bound=tuple[object, ...])
_Scan = TypeVar("_Scan", bound=tuple[object, ...])

COMPILED: bool
HARDWARE_CRC: bool

def crc32c(data: ReadableBuffer, start: int, end: int, before: int = 0) -> int: ...
def crc32c_portable(data: ReadableBuffer) -> int: ...
def scan(
    data: ReadableBuffer,
    start: int,
    end: int,
    check_crc: bool,
    batches_max: int,
    batch_class: type[_Batch],
    scan_class: type[_Scan],
    stops: tuple[object, ...],
) -> _Scan: ...
def assigned(
    data: WriteableBuffer,
    at: int,
    base_offset: int,
    leader_epoch: int,
    timestamp_type: int,
    max_timestamp: int,
    batch_class: type[_Batch],
) -> _Batch: ...
def write_header(
    data: WriteableBuffer,
    at: int,
    size: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None: ...
def search_offset_index(data: ReadableBuffer, entries: int, relative_target: int) -> int: ...
def search_time_index(data: ReadableBuffer, entries: int, timestamp: int) -> int: ...
