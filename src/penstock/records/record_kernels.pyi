# The kernel as its callers see it, compiled or interpreted; the C types stand in record_kernels.py.
from _typeshed import ReadableBuffer, WriteableBuffer

def validate(
    payload: ReadableBuffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    oldest_ms: int,
    newest_ms: int,
) -> tuple[int, int, int, int, int, int, int, int, bool, bool]: ...
def columns(
    payload: ReadableBuffer,
    start: int,
    end: int,
    count: int,
    timestamp_delta: WriteableBuffer,
    block: WriteableBuffer,
) -> tuple[int, int]: ...
def rewrite(
    payload: ReadableBuffer,
    start: int,
    end: int,
    count: int,
    keep: ReadableBuffer,
    keep_all: bool,
    timestamp_shift: int,
    renumber: bool,
    out: WriteableBuffer,
) -> tuple[int, int]: ...
