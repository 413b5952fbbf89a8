"""Compression of a payload. What does it is `codec_frames`, imported with the first compressed payload: it brings a library
along, which a broker whose clients compress nothing can start and run without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.records.batch import Codec

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def decompress(
    codec: Codec, payload: ReadableBuffer, *, bytes_max: int | None = None
) -> bytes | bytearray | memoryview:
    """The payload, uncompressed; with Codec.NONE a view of it. It may hold `bytes_max`, or what its size allows."""
    view = memoryview(payload).cast("B")
    if codec == Codec.NONE:
        return view
    from penstock.records.codec_frames import decompress_frames

    return decompress_frames(codec, view, bytes_max)


def compress(codec: Codec, data: ReadableBuffer, level: int | None = None) -> bytes:
    """The data, compressed as Kafka's Java client frames it. The level means what the codec's own means."""
    view = memoryview(data).cast("B")
    if codec == Codec.NONE:
        return bytes(view)
    from penstock.records.codec_frames import compress_frames

    return compress_frames(codec, view, level)
