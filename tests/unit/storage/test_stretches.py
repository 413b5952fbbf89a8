"""A file of batches, stretch by stretch: every batch once, whatever the stretches' size."""

from __future__ import annotations

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.storage.disk import batch_at, new_disk, path_of, put_file

from penstock.base.files import File
from penstock.records.batch import Stop
from penstock.storage import stretches
from penstock.storage.stretches import GoodBatches, crc_is_good

BATCHES = [batch_at(number, size=40 * number) for number in range(12)]
DATA = b"".join(BATCHES)


def opened(data: bytes) -> tuple[ForgetfulFiles, File]:
    files = new_disk()
    put_file(files, path_of(0), data)
    return files, files.open_read(path_of(0))


@pytest.mark.parametrize("stretch_bytes", [1, 12, 61, 100, 1000, 10**6])
def test_every_batch_is_met_once_at_its_place(stretch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STRETCH_BYTES", stretch_bytes)
    _, file = opened(DATA)
    found = GoodBatches(file, len(DATA))
    placed = [
        (position + batch.position, data[batch.position : batch.end_position])
        for data, position, batches in found
        for batch in batches
    ]
    assert b"".join(part for _, part in placed) == DATA
    assert [DATA[at : at + len(part)] for at, part in placed] == BATCHES
    assert (found.stop, found.position) == (Stop.COMPLETE, len(DATA))


@pytest.mark.parametrize("stretch_bytes", [61, 10**6])
@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (BATCHES[3][:-1], Stop.INCOMPLETE),
        (b"\0" * 40, Stop.ZEROES),
        (BATCHES[3][:-1] + b"x", Stop.BAD_CRC),
        (b"\xff" * 100, Stop.BAD_SIZE),
    ],
)
def test_a_walk_says_why_and_where_it_ended(
    tail: bytes, stop: Stop, stretch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "STRETCH_BYTES", stretch_bytes)
    _, file = opened(DATA + tail)
    found = GoodBatches(file, len(DATA + tail))
    assert sum(len(batches) for _, _, batches in found) == len(BATCHES)
    assert (found.stop, found.position) == (stop, len(DATA))


def test_a_file_that_became_shorter_is_not_a_whole_one() -> None:
    _, file = opened(DATA)
    found = GoodBatches(file, len(DATA) + 500)
    assert sum(len(batches) for _, _, batches in found) == len(BATCHES)
    assert found.stop is Stop.INCOMPLETE


def test_a_crc_is_checked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 7)
    _, file = opened(DATA)
    start = len(BATCHES[0])
    assert crc_is_good(file, start, len(BATCHES[1]))
    assert not crc_is_good(file, start, len(BATCHES[1]) + 1)
    assert not crc_is_good(file, start + 1, len(BATCHES[1]))
    assert not crc_is_good(file, len(DATA) - 10, 100)
