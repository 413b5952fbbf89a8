"""What a broker's process asks of the allocator: to keep some of what was freed, and not to clear what is filled anyway.

A broker needs a megabyte for each request, each piece of a file that it sends and each batch that it decompresses, and gives
it back within the millisecond. By default the C library hands such pieces back to the system, which has to find, clear
and map every page anew for the next one: half of the processor time of a broker that takes large requests.
"""

from __future__ import annotations

import cython

MAPPED_FROM_BYTES = 8 * 1024 * 1024
"""Larger pieces are the system's, and go back to it at once. Also what compressed records may hold at the least."""
KEPT_BYTES = 16 * 1024 * 1024
"""As much as this is kept at the end of the heap. It was used before: a broker that was never busy keeps nothing."""


def keep_freed_memory() -> bool:
    """Once, at the start of a broker's process. False where the kernels are interpreted or the C library has no such wish."""
    return bool(penstock_keep_freed(MAPPED_FROM_BYTES, KEPT_BYTES)) if cython.compiled else False  # noqa: F821 (declared in memory_kernels.pxd)


def unfilled(length: int) -> bytearray:
    """So many bytes, of which nobody knows what they are: for those who fill all of them, or cut off the rest."""
    return penstock_unfilled(length) if cython.compiled else bytearray(length)  # noqa: F821
