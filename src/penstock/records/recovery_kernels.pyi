# The kernel as its callers see it, compiled or interpreted; the C types stand in recovery_kernels.py.
from _typeshed import ReadableBuffer, WriteableBuffer

STATE_NUMBERS: int
NOTE_NUMBERS: int
KEPT_NOTES: int
SLOT_NUMBERS: int

def collect(
    chunk: ReadableBuffer,
    start: int,
    position: int,
    base_offset: int,
    last_offset_max: int,
    producers_from: int,
    interval: int,
    state: WriteableBuffer,
    offset_entries: WriteableBuffer,
    time_entries: WriteableBuffer,
    epochs: WriteableBuffer,
    events: WriteableBuffer,
    table: WriteableBuffer,
) -> tuple[int, int, int, int, int, int]: ...
