# The kernel as its callers see it, compiled or interpreted; the C types stand in key_kernels.py.
from _typeshed import ReadableBuffer, WriteableBuffer

def put_batch(
    payload: ReadableBuffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    from_offset: int,
    words: WriteableBuffer,
    keys_left: int,
    seed0: int,
    seed1: int,
) -> tuple[int, int, int]: ...
def latest(key: ReadableBuffer, words: WriteableBuffer, seed0: int, seed1: int) -> int: ...
def hash_key(key: ReadableBuffer, seed0: int, seed1: int) -> tuple[int, int]: ...
def select(
    payload: ReadableBuffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    latest_offset: int,
    retain_tombstones: bool,
    words: WriteableBuffer,
    seed0: int,
    seed1: int,
    keep: WriteableBuffer,
) -> tuple[int, int, int, int, int, int]: ...
