# The kernel as its callers see it, compiled or interpreted; the C types stand in build_kernels.py.
from _typeshed import ReadableBuffer, WriteableBuffer

def size(
    first: int,
    count: int,
    timestamps: ReadableBuffer,
    key_ends: ReadableBuffer,
    key_data: ReadableBuffer,
    key_valid: ReadableBuffer,
    value_ends: ReadableBuffer,
    value_data: ReadableBuffer,
    value_valid: ReadableBuffer,
    list_ends: ReadableBuffer,
    name_ends: ReadableBuffer,
    name_data: ReadableBuffer,
    content_ends: ReadableBuffer,
    content_data: ReadableBuffer,
    content_valid: ReadableBuffer,
) -> tuple[int, int]: ...
def encode(
    first: int,
    count: int,
    timestamps: ReadableBuffer,
    key_ends: ReadableBuffer,
    key_data: ReadableBuffer,
    key_valid: ReadableBuffer,
    value_ends: ReadableBuffer,
    value_data: ReadableBuffer,
    value_valid: ReadableBuffer,
    list_ends: ReadableBuffer,
    name_ends: ReadableBuffer,
    name_data: ReadableBuffer,
    content_ends: ReadableBuffer,
    content_data: ReadableBuffer,
    content_valid: ReadableBuffer,
    target: WriteableBuffer,
    at: int,
) -> int: ...
