# The kernel as its callers see it, compiled or interpreted; the C types stand in arrow_kernels.py.
from _typeshed import ReadableBuffer, WriteableBuffer

def fill(
    payload: ReadableBuffer,
    group: ReadableBuffer,
    bounds: ReadableBuffer,
    offsets: WriteableBuffer,
    timestamps: WriteableBuffer,
    types: WriteableBuffer,
    key_ends: WriteableBuffer,
    key_data: WriteableBuffer,
    key_valid: WriteableBuffer,
    value_ends: WriteableBuffer,
    value_data: WriteableBuffer,
    value_valid: WriteableBuffer,
    state: WriteableBuffer,
) -> tuple[int, int]: ...
def fill_headers(
    payload: ReadableBuffer,
    group: ReadableBuffer,
    bounds: ReadableBuffer,
    row: int,
    header: int,
    list_ends: WriteableBuffer,
    list_valid: WriteableBuffer,
    key_ends: WriteableBuffer,
    key_data: WriteableBuffer,
    value_ends: WriteableBuffer,
    value_data: WriteableBuffer,
    value_valid: WriteableBuffer,
    state: WriteableBuffer,
) -> tuple[int, int]: ...
