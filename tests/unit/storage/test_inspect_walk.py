import random
import struct
from pathlib import Path

import pytest
from tests.unit.storage.inspection import old_message

from penstock.base.files import SystemFiles
from penstock.records.build import build_batch
from penstock.storage.inspect.walk import Broken, Found, LogWalk
from penstock.storage.stretches import STRETCH_BYTES


def batches(count: int, *, value: bytes = b"v" * 100) -> list[bytes]:
    return [build_batch([(1, b"k", value, ())] * 4, base_offset=4 * number) for number in range(count)]


def walk(path: Path, data: bytes, base_offset: int = 0) -> list[Found | Broken]:
    path.write_bytes(data)
    file = SystemFiles().open_read(str(path))
    try:
        return list(LogWalk(file, base_offset))
    finally:
        file.close()


def offsets(pieces: list[Found | Broken]) -> list[int]:
    return [piece.batch.base_offset for piece in pieces if isinstance(piece, Found)]


def broken(pieces: list[Found | Broken]) -> list[Broken]:
    return [piece for piece in pieces if isinstance(piece, Broken)]


def covers(pieces: list[Found | Broken], size: int) -> bool:
    """The pieces lie back to back over the whole file."""
    at = 0
    for piece in pieces:
        start = piece.batch.position if isinstance(piece, Found) else piece.position
        if start != at:
            return False
        at = piece.batch.end_position if isinstance(piece, Found) else piece.end_position
    return at == size


def test_every_batch_of_a_good_file_is_found_with_its_bytes(tmp_path: Path) -> None:
    made = batches(50)
    pieces = walk(tmp_path / "log", b"".join(made))
    assert offsets(pieces) == list(range(0, 200, 4))
    assert [piece.data[piece.start : piece.start + piece.batch.size_bytes] for piece in pieces] == made  # type: ignore[union-attr]


def test_a_bad_crc_costs_one_batch(tmp_path: Path) -> None:
    made = batches(5)
    made[2] = made[2][:-1] + b"!"
    pieces = walk(tmp_path / "log", b"".join(made))
    assert offsets(pieces) == [0, 4, 12, 16]
    (bad,) = broken(pieces)
    assert (bad.position, bad.size_bytes) == (len(made[0]) * 2, len(made[2]))
    assert bad.header is not None
    assert bad.header.base_offset == 8
    assert not bad.is_tail


@pytest.mark.parametrize("length", [0, 13, 48, 2**31 - 1, -1], ids=str)
def test_a_length_that_lies_costs_one_batch(tmp_path: Path, length: int) -> None:
    made = batches(5)
    made[2] = made[2][:8] + struct.pack(">i", length) + made[2][12:]
    pieces = walk(tmp_path / "log", b"".join(made))
    assert offsets(pieces) == [0, 4, 12, 16]
    assert covers(pieces, sum(map(len, made)))


def test_a_length_that_swallows_good_batches_is_seen_through(tmp_path: Path) -> None:
    made = batches(6)
    made[1] = made[1][:8] + struct.pack(">i", 3 * len(made[1]) - 12) + made[1][12:]
    pieces = walk(tmp_path / "log", b"".join(made))
    assert offsets(pieces)[:1] == [0]
    assert offsets(pieces)[-2:] == [16, 20]
    assert covers(pieces, sum(map(len, made)))


def test_a_torn_tail_is_a_tail_and_zeroes_are(tmp_path: Path) -> None:
    made = batches(3)
    for tail in (made[2][:-1], made[2][:61], made[2][:5], bytes(7), bytes(5000)):
        pieces = walk(tmp_path / "log", made[0] + made[1] + tail)
        assert offsets(pieces) == [0, 4]
        (bad,) = broken(pieces)
        assert bad.is_tail
        assert bad.size_bytes == len(tail)


def test_a_bad_crc_at_the_end_is_no_torn_tail(tmp_path: Path) -> None:
    made = batches(3)
    pieces = walk(tmp_path / "log", made[0] + made[1] + made[2][:-1] + b"!")
    assert [bad.is_tail for bad in broken(pieces)] == [False]


def test_zeroes_in_the_middle_are_stepped_over(tmp_path: Path) -> None:
    made = batches(4)
    pieces = walk(tmp_path / "log", made[0] + bytes(3 * STRETCH_BYTES) + made[2] + made[3])
    assert offsets(pieces) == [0, 8, 12]
    assert [bad.is_tail for bad in broken(pieces)] == [False]


def test_a_batch_larger_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    made = batches(3, value=bytes(STRETCH_BYTES // 3))
    pieces = walk(tmp_path / "log", b"".join(made))
    assert offsets(pieces) == [0, 4, 8]
    assert not broken(pieces)


def test_a_batch_in_a_broken_payload_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    inner = build_batch([(1, None, b"inner", ())], base_offset=3)
    made = [build_batch([(1, None, inner, ())], base_offset=offset) for offset in (10, 11, 12)]
    made[1] = b"\0" * 20 + made[1][20:]
    pieces = walk(tmp_path / "log", b"".join(made), 10)
    assert offsets(pieces) == [10, 12]


def test_old_formats_are_told_by_their_own_crc(tmp_path: Path) -> None:
    old = [old_message(magic, offset, b"value") for offset, magic in enumerate((0, 1))]
    pieces = walk(tmp_path / "log", b"".join(old) + build_batch([(1, None, b"new", ())], base_offset=2))
    assert [bad.is_old_format for bad in broken(pieces)] == [True, True]
    assert offsets(pieces) == [2]
    damaged = old[0][:-1] + b"!"
    assert [bad.is_old_format for bad in broken(walk(tmp_path / "log", damaged))] == [False]


def test_any_damage_leaves_every_byte_accounted_for_and_every_good_batch_found(tmp_path: Path) -> None:
    chance = random.Random(1)
    made = batches(40)
    size = len(made[0])
    for _ in range(150):
        data = bytearray(b"".join(made))
        start = chance.randrange(len(data))
        length = min(chance.choice((1, 1, 3, 70, 700)), len(data) - start)
        data[start : start + length] = chance.choice((chance.randbytes(length), bytes(length)))
        pieces = walk(tmp_path / "log", bytes(data))
        assert covers(pieces, len(data))
        untouched = {4 * slot for slot in range(40) if bytes(data[slot * size : slot * size + size]) == made[slot]}
        assert untouched <= set(offsets(pieces))
