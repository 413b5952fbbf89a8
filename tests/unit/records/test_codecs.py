"""Codecs: what each client writes is read, bombs cost an error, and no broken frame leaks another exception."""

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.base.errors import CorruptRecordError, MessageTooLargeError
from penstock.records import codec_frames
from penstock.records.batch import Codec
from penstock.records.codec_frames import (
    EXPANDED_BYTES_FLOOR,
    EXPANDED_BYTES_MAX,
    GZIP_MEMBERS_MAX,
    PIECES_MAX,
    expanded_bytes_max,
)
from penstock.records.codecs import compress, decompress

COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]
TEXT = b"".join(b'{"user": %d, "page": "/article/%d"}\n' % (i * 7 % 100, i * i % 1000) for i in range(6000))
NOISE = random.Random(1).randbytes(150_000)


def zstd_stream(data: bytes) -> bytes:
    """A frame without content size, as a stream writer makes it."""
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


WRITTEN = {
    "gzip of two members": (Codec.GZIP, zlib.compress(TEXT[:9], wbits=31) + zlib.compress(TEXT[9:], wbits=31)),
    "raw snappy (librdkafka)": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "xerial snappy, another version": (
        Codec.SNAPPY,
        b"\x82SNAPPY\0" + struct.pack(">ii", 2, 1) + compress(Codec.SNAPPY, TEXT)[16:],
    ),
    "xerial snappy, two streams in a row": (
        Codec.SNAPPY,
        compress(Codec.SNAPPY, TEXT[:50]) + compress(Codec.SNAPPY, TEXT[50:]),
    ),
    "lz4 with linked blocks and checksums": (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))),
    "lz4 by liblz4's frame writer": (Codec.LZ4, pa.compress(TEXT, codec="lz4", asbytes=True)),
    "lz4 of two frames": (Codec.LZ4, compress(Codec.LZ4, TEXT[:70]) + compress(Codec.LZ4, TEXT[70:])),
    "zstd with content size": (Codec.ZSTD, pa.compress(TEXT, codec="zstd", asbytes=True)),
    "zstd without content size": (Codec.ZSTD, zstd_stream(TEXT)),
    "zstd of two frames": (Codec.ZSTD, zstd_stream(TEXT[:5]) + compress(Codec.ZSTD, TEXT[5:])),
    "zstd after a skippable frame": (Codec.ZSTD, struct.pack("<II", 0x184D2A53, 4) + b"skip" + zstd_stream(TEXT)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_clients_write_is_read(name: str) -> None:
    codec, payload = WRITTEN[name]
    assert bytes(decompress(codec, payload)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    "data", [b"", b"a", TEXT, NOISE, bytes(500_000)], ids=["empty", "one", "text", "noise", "zeroes"]
)
def test_round_trip(codec: Codec, data: bytes) -> None:
    for level in (None, 1, 9):
        assert bytes(decompress(codec, compress(codec, data, level))) == data


def test_no_codec_is_a_view() -> None:
    assert decompress(Codec.NONE, TEXT) == TEXT
    assert compress(Codec.NONE, TEXT) == TEXT


def test_lz4_frames_are_the_java_clients() -> None:
    frame = compress(Codec.LZ4, NOISE[:70_000])
    assert frame[:7] == bytes.fromhex("04224d18604082")  # its reader refuses linked blocks
    assert struct.unpack_from("<I", frame, 7)[0] == 65536 | 0x80000000  # incompressible blocks stand as they are
    assert frame[-4:] == bytes(4)
    assert pa.decompress(frame, decompressed_size=70_000, codec="lz4").to_pybytes() == NOISE[:70_000]


def test_snappy_is_framed_as_the_java_client_frames_it() -> None:
    payload = compress(Codec.SNAPPY, TEXT)
    assert payload[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    (size,) = struct.unpack_from(">i", payload, 16)
    assert cramjam.snappy.decompress_raw_len(payload[20 : 20 + size]) == 32 * 1024


def test_the_limit_grows_with_the_payload_between_a_floor_and_a_ceiling() -> None:
    assert expanded_bytes_max(1) == EXPANDED_BYTES_FLOOR
    assert expanded_bytes_max(200_000) == 20_000_000
    assert expanded_bytes_max(1 << 30) == EXPANDED_BYTES_MAX


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_limit_is_exact(codec: Codec) -> None:
    # A4
    payload = compress(codec, TEXT)
    assert bytes(decompress(codec, payload, bytes_max=len(TEXT))) == TEXT
    with pytest.raises(MessageTooLargeError):
        decompress(codec, payload, bytes_max=len(TEXT) - 1)


def zstd_bomb() -> bytes:
    """A frame without content size whose run-length blocks claim 128 KiB for four bytes each: 40,000 to 1."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    last = (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"x"
    return struct.pack("<IBB", 0xFD2FB528, 0, 0x58) + block * 15_000 + last


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip 1000:1": (Codec.GZIP, lambda: compress(Codec.GZIP, bytes(100 << 20), 9)),
    "xerial snappy": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, bytes(32 << 20)) * 3),
    "lz4 255:1": (Codec.LZ4, lambda: compress(Codec.LZ4, bytes(100 << 20))),
    "zstd with content size": (Codec.ZSTD, lambda: compress(Codec.ZSTD, bytes(100 << 20))),
    "zstd run-length blocks": (Codec.ZSTD, zstd_bomb),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_an_error_and_no_larger_buffers_than_the_limit(name: str) -> None:
    # A4, A20
    codec, make = BOMBS[name]
    payload = make()
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLargeError):
            decompress(codec, payload)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes <= 2.1 * expanded_bytes_max(len(payload))


CORRUPT = {
    "gzip: empty": (Codec.GZIP, b""),
    "gzip: cut off": (Codec.GZIP, compress(Codec.GZIP, TEXT)[:-9]),
    "gzip: wrong checksum": (Codec.GZIP, compress(Codec.GZIP, TEXT)[:-8] + bytes(8)),
    "gzip: bytes after it": (Codec.GZIP, compress(Codec.GZIP, TEXT) + b"after"),
    "snappy: empty": (Codec.SNAPPY, b""),
    "snappy: claims 4 GiB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"a" * 20),
    "snappy: chunk of -1 bytes (CVE-2023-34455)": (Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:16] + b"\xff" * 40),
    "snappy: chunk of -4 bytes, which would be read for ever": (
        Codec.SNAPPY,
        compress(Codec.SNAPPY, b"")[:16] + b"\xff\xff\xff\xfc" + bytes(40),
    ),
    "snappy: chunk of 2 GiB": (Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:16] + b"\x7f\xff\xff\xff" + bytes(40)),
    "snappy: header cut off": (Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:12]),
    "lz4: empty": (Codec.LZ4, b""),
    "lz4: no frame": (Codec.LZ4, TEXT),
    "lz4: cut off": (Codec.LZ4, compress(Codec.LZ4, TEXT)[:-5]),
    "lz4: no end mark": (Codec.LZ4, compress(Codec.LZ4, TEXT)[:-4]),
    "lz4: block of 2 GiB": (Codec.LZ4, bytes.fromhex("04224d18604082 ffffff7f") + bytes(50)),
    "lz4: wrong header checksum": (Codec.LZ4, bytes.fromhex("04224d18604083") + compress(Codec.LZ4, TEXT)[7:]),
    "zstd: empty": (Codec.ZSTD, b""),
    "zstd: no frame": (Codec.ZSTD, TEXT),
    "zstd: cut off": (Codec.ZSTD, compress(Codec.ZSTD, TEXT)[:-3]),
    "zstd: window of 2 GiB": (Codec.ZSTD, struct.pack("<IBB", 0xFD2FB528, 0, 21 << 3) + b"\x01\0\0"),
    "zstd: claims less than it holds": (
        Codec.ZSTD,
        struct.pack("<IBB", 0xFD2FB528, 0x20, 3) + (5 << 3 | 1).to_bytes(3, "little") + b"hello",
    ),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_a_corrupt_payload_is_a_corrupt_record(name: str) -> None:
    # A4
    # KAFKA-765, KAFKA-4776
    codec, payload = CORRUPT[name]
    with pytest.raises((CorruptRecordError, MessageTooLargeError)) as caught:
        decompress(codec, payload)
    assert caught.type is (MessageTooLargeError if "4 GiB" in name else CorruptRecordError)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_random_damage_raises_only_declared_errors(codec: Codec) -> None:
    # A4
    generator = random.Random(codec)
    payloads = [compress(codec, data) for data in (b"", b"a", TEXT[:2000], NOISE[:500], bytes(70_000))]
    payloads += [payload[:3000] for kind, payload in WRITTEN.values() if kind == codec]
    for _ in range(4000):
        payload = bytearray(generator.choice(payloads))
        for _ in range(generator.randint(1, 4)):
            if payload:
                at = generator.randrange(min(len(payload), generator.choice([20, 10_000])))
                payload[at] = generator.choice([0, 0xFF, generator.randrange(256)])
        if generator.random() < 0.3:
            del payload[generator.randrange(len(payload) + 1) :]
        try:
            out = decompress(codec, payload, bytes_max=1 << 20)
            assert len(out) <= 1 << 20
        except (CorruptRecordError, MessageTooLargeError):
            continue


def _zstd_of_empty_blocks(count: int) -> bytes:
    blocks = [(0).to_bytes(3, "little")] * (count - 1) + [(1).to_bytes(3, "little")]
    return struct.pack("<I", 0xFD2FB528) + bytes((0x00, 0x58)) + b"".join(blocks)


MANY_PIECES: dict[str, tuple[Codec, Callable[[int], bytes], int]] = {
    "gzip members": (Codec.GZIP, lambda count: compress(Codec.GZIP, b"") * count, GZIP_MEMBERS_MAX),
    "xerial chunks": (
        Codec.SNAPPY,
        lambda count: compress(Codec.SNAPPY, b"x")[:16] + (b"\0\0\0\1\0" * count),
        PIECES_MAX,
    ),
    "lz4 frames": (Codec.LZ4, lambda count: compress(Codec.LZ4, b"") * count, PIECES_MAX),
    "lz4 blocks": (
        Codec.LZ4,
        lambda count: compress(Codec.LZ4, b"")[:7] + struct.pack("<IB", 0x80000001, 7) * count + bytes(4),
        PIECES_MAX,
    ),
    "skippable frames": (Codec.ZSTD, lambda count: struct.pack("<II", 0x184D2A50, 0) * count, PIECES_MAX),
    "zstd blocks": (Codec.ZSTD, _zstd_of_empty_blocks, PIECES_MAX),
}


@pytest.mark.parametrize("name", MANY_PIECES)
def test_a_payload_of_very_many_pieces_costs_an_error_and_not_its_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A4
    codec, make, limit = MANY_PIECES[name]
    with pytest.raises(CorruptRecordError, match=r"pieces|members"):
        decompress(codec, make(limit * 2 + 2))
    monkeypatch.setattr(codec_frames, "PIECES_MAX", 10)
    monkeypatch.setattr(codec_frames, "GZIP_MEMBERS_MAX", 10)
    with pytest.raises(CorruptRecordError, match=r"pieces|members"):
        decompress(codec, make(24))


def test_as_many_pieces_as_are_allowed_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_frames, "GZIP_MEMBERS_MAX", 10)
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"ab") * 10) == b"ab" * 10
    monkeypatch.setattr(codec_frames, "PIECES_MAX", 4)
    data = random.Random(1).randbytes(3 * 32 * 1024 + 5)
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, data)) == data


@pytest.mark.parametrize("size", [0, 5, 16 * 1024, 60_000])
def test_members_that_follow_are_read_whatever_their_size(size: int) -> None:
    parts = [random.Random(number).randbytes(size) for number in range(3)]
    payload = b"".join(compress(Codec.GZIP, part) for part in parts)
    assert decompress(Codec.GZIP, payload) == b"".join(parts)
    for cut in (1, 8, size // 2 + 5):
        with pytest.raises(CorruptRecordError):
            decompress(Codec.GZIP, payload[:-cut])
    if size:
        with pytest.raises(MessageTooLargeError):
            decompress(Codec.GZIP, payload, bytes_max=3 * size - 1)
