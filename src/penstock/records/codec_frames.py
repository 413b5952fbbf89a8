"""The frames that compressed payloads come in, within a bound known before the first byte is decompressed.

Read is what Kafka's clients write: gzip (also members in a row); snappy in xerial's framing (Java) and raw
(librdkafka); LZ4 and zstd frames with or without content size, checksums and linked blocks. Written is what the
Java client writes: gzip, xerial snappy in 32 KiB chunks, LZ4 frames of independent 64 KiB blocks without
checksums, zstd.

A frame's own headers give an upper bound of its content; the output buffer is that bound or the caller's limit,
whichever is less, and never grows. Content beyond the limit raises MessageTooLargeError, any other fault
CorruptRecordError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam

from penstock.base.errors import CorruptRecordError, MessageTooLargeError
from penstock.base.memory_kernels import unfilled
from penstock.records.batch import Codec

EXPANSION_MAX = 100
"""A payload may grow by this factor …"""
EXPANDED_BYTES_FLOOR = 8 * 1024 * 1024
"""… or to this size (a short payload of equal records compresses better than that) …"""
EXPANDED_BYTES_MAX = 64 * 1024 * 1024
"""… but to no more than this."""
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024
"""What zstd's decoder itself takes by default, and the most that Kafka's highest level writes."""

PIECES_MAX = 16_384
"""Blocks, chunks and frames that a payload may consist of: walking them takes time, however little they hold."""
GZIP_MEMBERS_MAX = 1_024
"""The same for gzip, whose members cost more to begin."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_CHUNK_BYTES = 32 * 1024
_LZ4_MAGIC = 0x184D2204
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # independent blocks of 64 KiB, nothing optional; 82 checks the two flags
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_RAW_BIT = 0x80000000
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_SKIPPABLE_FIRST, _SKIPPABLE_LAST = 0x184D2A50, 0x184D2A5F

_GZIP_PIECE_BYTES = 16 * 1024

_BE_INT32 = struct.Struct(">i")
_LE_UINT32 = struct.Struct("<I")


def expanded_bytes_max(payload_bytes: int) -> int:
    """How large a payload of this size may become: min(64 MiB, max(8 MiB, 100 times its size))."""
    return min(EXPANDED_BYTES_MAX, max(EXPANDED_BYTES_FLOOR, EXPANSION_MAX * payload_bytes))


def decompress_frames(codec: Codec, view: memoryview, bytes_max: int | None) -> bytes | bytearray:
    """The payload, uncompressed. bytes_max is expanded_bytes_max() unless given."""
    limit = expanded_bytes_max(len(view)) if bytes_max is None else bytes_max
    try:
        return _DECOMPRESSORS[codec](view, limit)
    except (struct.error, zlib.error, cramjam.DecompressionError) as error:
        raise CorruptRecordError(f"{codec.name.lower()} payload of {len(view)} bytes is broken: {error}") from error


def compress_frames(codec: Codec, view: memoryview, level: int | None) -> bytes:
    """The data, compressed as Kafka's Java client frames it. The level means what the codec's own means."""
    if codec == Codec.GZIP:
        deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return deflate.compress(view) + deflate.flush()
    if codec == Codec.SNAPPY:
        return _compress_snappy(view)
    if codec == Codec.LZ4:
        return _compress_lz4(view, level)
    assert codec == Codec.ZSTD
    return bytes(cramjam.zstd.compress(view, level=3 if level is None else level))


def _too_many_pieces() -> CorruptRecordError:
    return CorruptRecordError(f"compressed records come in more than {PIECES_MAX} pieces")


def _too_large(limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"compressed records hold more than the {limit} bytes allowed")


def _decompress_gzip(view: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    at = members = 0
    while at < len(view) or not members:
        members += 1
        if members > GZIP_MEMBERS_MAX:
            raise CorruptRecordError(f"gzip payload has more than {GZIP_MEMBERS_MAX} members")
        inflate = zlib.decompressobj(31)
        while not inflate.eof:
            # Nearly always there is one member. What follows a member is copied, so the others get little at a time.
            piece = view[at:] if members == 1 else view[at : at + _GZIP_PIECE_BYTES]
            if not piece:
                raise CorruptRecordError("gzip payload ends in the middle of a member")
            part = inflate.decompress(piece, left + 1)  # 0 would mean no limit
            left -= len(part)
            if left < 0:
                raise _too_large(limit)
            parts.append(part)
            at += len(piece) - len(inflate.unused_data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(view: memoryview, limit: int) -> bytearray:
    if bytes(view[:8]) != _XERIAL_MAGIC:
        chunks = [view]
    else:
        chunks = list(_xerial_chunks(view))
    sizes = [cramjam.snappy.decompress_raw_len(chunk) for chunk in chunks]
    if sum(sizes) > limit:
        raise _too_large(limit)
    out = bytearray(sum(sizes))
    target = memoryview(out)
    for chunk, size in zip(chunks, sizes, strict=True):
        written = cramjam.snappy.decompress_raw_into(chunk, target[:size])
        if written != size:
            raise CorruptRecordError(f"snappy chunk holds {written} bytes, its header says {size}")
        target = target[size:]
    return out


def _xerial_chunks(view: memoryview) -> list[memoryview]:
    """The raw snappy chunks of a xerial stream. A stream may follow a stream: their magic is no valid length."""
    chunks: list[memoryview] = []
    at = 0
    while at < len(view):
        if view[at : at + 8] == _XERIAL_MAGIC:
            if len(view) - at < len(_XERIAL_HEADER):
                raise CorruptRecordError("snappy payload ends within its header")
            at += len(_XERIAL_HEADER)
            continue
        (size,) = _BE_INT32.unpack_from(view, at)
        at += 4
        if not 0 < size <= len(view) - at:  # CVE-2023-34455: the length is checked before it is used
            raise CorruptRecordError(f"snappy chunk of {size} bytes in the {len(view) - at} that are left")
        chunks.append(view[at : at + size])
        at += size
        if len(chunks) > PIECES_MAX:
            raise _too_many_pieces()
    return chunks


def _compress_snappy(view: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_CHUNK_BYTES]))
        parts += (_BE_INT32.pack(len(chunk)), chunk)
    return b"".join(parts)


def _decompress_lz4(view: memoryview, limit: int) -> bytearray:
    return _into(cramjam.lz4.decompress_into, view, _lz4_bound(view), limit)


def _lz4_bound(view: memoryview) -> int:
    """The most that the frames can hold: raw blocks as they are, others the frame's block size or 255 times theirs."""
    at = bound = pieces = 0
    while at < len(view):
        pieces += 1
        if pieces > PIECES_MAX:
            raise _too_many_pieces()
        (magic,) = _LE_UINT32.unpack_from(view, at)
        if _SKIPPABLE_FIRST <= magic <= _SKIPPABLE_LAST:
            at += 8 + _LE_UINT32.unpack_from(view, at + 4)[0]
            continue
        if magic != _LZ4_MAGIC:
            raise CorruptRecordError(f"no LZ4 frame starts with {magic:#010x}")
        flags, block_descriptor = struct.unpack_from("BB", view, at + 4)
        if flags >> 6 != 1 or not 4 <= block_descriptor >> 4 & 7 <= 7:
            raise CorruptRecordError("LZ4 frame of an unknown version or block size")
        block_bytes_max = 1 << (8 + 2 * (block_descriptor >> 4 & 7))
        at += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        while True:
            (size,) = _LE_UINT32.unpack_from(view, at)
            at += 4
            if size == 0:
                break
            pieces += 1
            if pieces > PIECES_MAX:
                raise _too_many_pieces()
            content = size & ~_LZ4_RAW_BIT
            if content > block_bytes_max or content > len(view) - at:
                raise CorruptRecordError("LZ4 block runs past its frame")
            bound += content if size & _LZ4_RAW_BIT else min(block_bytes_max, 255 * content)
            at += content + (4 if flags & 0x10 else 0)
        at += 4 if flags & 0x04 else 0
    return bound


def _compress_lz4(view: memoryview, level: int | None) -> bytes:
    parts = [_LZ4_HEADER]
    for at in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[at : at + _LZ4_BLOCK_BYTES]
        if level is None:
            block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        else:
            block = bytes(cramjam.lz4.compress_block(raw, mode="high_compression", compression=level, store_size=False))
        if len(block) < len(raw):
            parts += (_LE_UINT32.pack(len(block)), block)
        else:
            parts += (_LE_UINT32.pack(len(raw) | _LZ4_RAW_BIT), bytes(raw))
    parts.append(_LE_UINT32.pack(0))
    return b"".join(parts)


def _decompress_zstd(view: memoryview, limit: int) -> bytearray:
    return _into(cramjam.zstd.decompress_into, view, _zstd_bound(view), limit)


def _zstd_bound(view: memoryview) -> int:
    """The most that the frames can hold: the size they state, else what their blocks can be (RFC 8878, 3.1.1)."""
    at = bound = pieces = 0
    while at < len(view):
        pieces += 1
        if pieces > PIECES_MAX:
            raise _too_many_pieces()
        (magic,) = _LE_UINT32.unpack_from(view, at)
        if _SKIPPABLE_FIRST <= magic <= _SKIPPABLE_LAST:
            at += 8 + _LE_UINT32.unpack_from(view, at + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptRecordError(f"no zstd frame starts with {magic:#010x}")
        at, content, checksum_bytes = _zstd_header(view, at + 4)
        at, blocks, count = _zstd_blocks(view, at)
        pieces += count
        at += checksum_bytes
        bound += blocks if content is None else min(content, blocks)
    return bound


def _zstd_header(view: memoryview, at: int) -> tuple[int, int | None, int]:
    """(where the blocks start, the content size if stated, bytes of checksum at the end)."""
    (descriptor,) = struct.unpack_from("B", view, at)
    is_single_segment = bool(descriptor & 0x20)
    size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    at += 1
    window = 0
    if not is_single_segment:
        (window_descriptor,) = struct.unpack_from("B", view, at)
        base = 1 << (10 + (window_descriptor >> 3))
        window = base + base // 8 * (window_descriptor & 7)
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    if at + size_bytes > len(view):
        raise CorruptRecordError("zstd frame ends within its header")
    content = None
    if size_bytes:
        content = int.from_bytes(view[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    if window > ZSTD_WINDOW_BYTES_MAX:
        raise CorruptRecordError(f"zstd frame asks for a window of {window} bytes")
    return at + size_bytes, content, 4 if descriptor & 0x04 else 0


def _zstd_blocks(view: memoryview, at: int) -> tuple[int, int, int]:
    """(where the blocks end, the most bytes that they hold, how many they are)."""
    bound = count = 0
    while True:
        count += 1
        if count > PIECES_MAX:
            raise _too_many_pieces()
        header = int.from_bytes(view[at : at + 3], "little")
        if at + 3 > len(view):
            raise CorruptRecordError("zstd frame ends within a block")
        kind, size = header >> 1 & 3, header >> 3
        if kind == 3 or size > _ZSTD_BLOCK_BYTES_MAX:
            raise CorruptRecordError("zstd block of a reserved kind or beyond 128 KiB")
        bound += size if kind < 2 else _ZSTD_BLOCK_BYTES_MAX
        at += 3 + (1 if kind == 1 else size)
        if header & 1:
            return at, bound, count


def _into(
    decompress_into: Callable[[memoryview, bytearray], int], view: memoryview, bound: int, limit: int
) -> bytearray:
    if not view:
        raise CorruptRecordError("an empty payload is no frame")
    out = unfilled(min(bound, limit))
    try:
        size = decompress_into(view, out)
    except cramjam.DecompressionError as error:
        if bound > limit and "whole buffer" in str(error):
            raise _too_large(limit) from error
        raise
    del out[size:]
    return out


_DECOMPRESSORS: dict[Codec, Callable[[memoryview, int], bytes | bytearray]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
