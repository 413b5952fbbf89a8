"""Snapshots of producer state: bytes, and bytes that are not one (row S10)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import PATH, new_disk, put_file

from penstock.base.errors import CorruptFileError
from penstock.storage.producer_replay import restore_snapshot
from penstock.storage.producer_snapshot import Snapshots, decode, encode
from penstock.storage.producer_state import Producer, ProducerBatch, Producers

GOLDEN = bytes.fromhex(
    "0001 dca47543 00000001"
    "0000000000000009 0002 0000001d 0000000000000063 00000009 0000018bcfe56800 00000005 0000000000000032"
)


def producer() -> Producer:
    made = Producer(9, 2)
    made.batches.append(ProducerBatch(19, 89, 9, 1_600_000_000_000))
    made.batches.append(ProducerBatch(29, 99, 9, 1_700_000_000_000))
    made.last_timestamp = 1_700_000_000_000
    made.coordinator_epoch = 5
    made.transaction_first_offset = 50
    return made


def test_a_snapshot_is_version_crc_count_and_46_bytes_for_each_producer() -> None:
    data = encode([producer()])
    assert data[:2] + data[6:] == GOLDEN[:2] + GOLDEN[6:]
    assert data == GOLDEN


def test_what_is_read_is_what_was_written() -> None:
    quiet = Producer(10, 0)
    quiet.last_timestamp = 5
    read = decode(encode([producer(), quiet]), "x")
    assert [found.state() for found in read] == [producer().state(), quiet.state()]
    assert not read[1].batches


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOLDEN[:9],
        GOLDEN[:-1],
        GOLDEN[:-46],
        GOLDEN + bytes(46),
        b"\0\2" + GOLDEN[2:],
        GOLDEN[:-1] + b"\0",
        bytes(56),
    ],
)
def test_a_torn_or_damaged_snapshot_is_an_error(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="x"):
        decode(data, "x")


def test_a_damaged_snapshot_is_removed_and_an_older_one_is_used() -> None:
    # KAFKA-5747
    files = new_disk()
    snapshots = Snapshots(files, PATH, [])
    snapshots.write(10, [producer()])
    put_file(files, snapshots.path(20), GOLDEN[:-3])
    snapshots = Snapshots(files, PATH, [10, 20])
    producers = Producers()
    assert restore_snapshot(producers, snapshots, 25) == 10
    assert [found.producer_id for found in producers.values()] == [9]
    assert not files.exists(snapshots.path(20))
    assert snapshots.offsets == [10]


def test_without_a_good_snapshot_nothing_is_known_from_offset_0() -> None:
    files = new_disk()
    put_file(files, f"{PATH}/00000000000000000020.snapshot", b"")
    producers = Producers()
    producers.restore([producer()])
    assert restore_snapshot(producers, Snapshots(files, PATH, [20]), 25) == 0
    assert list(producers.values()) == []


def test_a_snapshot_beyond_the_end_is_not_used() -> None:
    files = new_disk()
    snapshots = Snapshots(files, PATH, [])
    snapshots.write(10, [producer()])
    assert restore_snapshot(Producers(), snapshots, 9) == 0
