# The kernel as its callers see it, compiled or interpreted; the C types stand in produce_kernels.py.
from typing import TypeVar

from _typeshed import ReadableBuffer

_Batch = TypeVar("_Batch", bound=tuple[object, ...])

def plain_batches(
    records: ReadableBuffer,
    oldest_ms: int,
    newest_ms: int,
    bytes_max: int,
    require_keys: bool,
    is_client: bool,
    batch_class: type[_Batch],
) -> tuple[list[_Batch], list[int]] | None: ...
def placed_batch(
    frame: bytes,
    start: int,
    end: int,
    oldest_ms: int,
    newest_ms: int,
    bytes_max: int,
    require_keys: bool,
    base_offset: int,
    leader_epoch: int,
    batch_class: type[_Batch],
) -> tuple[bytes, int, int, _Batch | None] | None: ...
