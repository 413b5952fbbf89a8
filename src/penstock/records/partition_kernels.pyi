# The kernel as its callers see it, compiled or interpreted; the C types stand in partition_kernels.py.
from _typeshed import ReadableBuffer, WriteableBuffer

def murmur2(key: ReadableBuffer) -> int: ...
def choose(
    first: int,
    count: int,
    key_ends: ReadableBuffer,
    key_data: ReadableBuffer,
    key_valid: ReadableBuffer,
    partitions: int,
    target: WriteableBuffer,
) -> None: ...
