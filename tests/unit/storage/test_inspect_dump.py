import os
from pathlib import Path

import pytest
from tests.unit.storage.inspection import (
    FILES,
    NOW_MS,
    PLAIN_RECORDS,
    flip,
    logs_of,
    make_directory,
    make_old_directory,
)

from penstock.base.errors import LogDirectoryError
from penstock.records.batch import read_header
from penstock.records.build import build_batch
from penstock.storage.inspect.dump import DumpOptions, dump_file
from penstock.storage.inspect.items import (
    BatchItem,
    CheckpointItem,
    ControlRecordItem,
    Item,
    OffsetIndexItem,
    ProblemItem,
    ProducerSnapshotItem,
    RecordItem,
    TimeIndexItem,
    TransactionIndexItem,
)
from penstock.storage.inspect.places import DirectoryPlace, FilePlace, PartitionPlace, files_of, find_place


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "logs")


def dump(path: Path, **options: object) -> list[Item]:
    chosen = DumpOptions(**options)  # type: ignore[arg-type]
    return [item for file in files_of(FILES, find_place(FILES, str(path))) for item in dump_file(FILES, file, chosen)]


def test_batches_and_every_record_are_shown_as_written(directory: Path) -> None:
    items = dump(directory / "plain-0", deep=True)
    batches = [item for item in items if isinstance(item, BatchItem)]
    records = [item for item in items if isinstance(item, RecordItem)]
    assert [batch.base_offset for batch in batches] == list(range(0, PLAIN_RECORDS, 5))
    assert {batch.compress_codec for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert all(batch.is_valid and batch.last_offset == batch.base_offset + 4 for batch in batches)
    for number, record in enumerate(records):
        assert (record.offset, record.timestamp) == (number, NOW_MS + number)
        assert (record.key, record.value) == (b"key %d" % number, b"value %d" % number)
        assert [(header.key, header.value) for header in record.headers] == [("h", b"x"), ("null", None)]
    assert len(records) == PLAIN_RECORDS


def test_without_deep_no_record_is_shown(directory: Path) -> None:
    assert not any(isinstance(item, RecordItem | ControlRecordItem) for item in dump(directory))


def test_markers_say_how_a_transaction_ended_and_by_whom(directory: Path) -> None:
    items = dump(directory / "transactions-3", deep=True)
    markers = [item for item in items if isinstance(item, ControlRecordItem)]
    ends = [(marker.type, marker.producer_id, marker.coordinator_epoch) for marker in markers]
    assert ends == [("ABORT", 7, 5), ("COMMIT", 7, 5)] * 3 + [("ABORT", 8, 6)]
    aborted = [item for item in items if isinstance(item, TransactionIndexItem)]
    assert [entry.last_offset for entry in aborted] == [marker.offset for marker in markers if marker.type == "ABORT"]


def test_sequences_and_nulls_are_shown(directory: Path) -> None:
    records = [item for item in dump(directory / "transactions-3", deep=True) if isinstance(item, RecordItem)]
    assert [record.sequence for record in records[:10]] == list(range(10))
    assert (records[0].key, records[0].key_size, records[0].value_size) == (None, -1, 3)
    assert (records[1].value, records[1].value_size) == (None, -1)


def test_index_entries_point_at_batches_that_are_shown(directory: Path) -> None:
    items = dump(directory / "plain-0")
    places = {(item.last_offset, item.position) for item in items if isinstance(item, BatchItem)}
    entries = [item for item in items if isinstance(item, OffsetIndexItem)]
    assert entries
    assert {(entry.offset, entry.position) for entry in entries} <= places
    times = [item for item in items if isinstance(item, TimeIndexItem)]
    assert all(entry.timestamp == NOW_MS + entry.offset for entry in times)
    assert times


def test_snapshots_and_checkpoints_are_shown(directory: Path) -> None:
    items = dump(directory)
    (last,) = {item.file for item in items if isinstance(item, ProducerSnapshotItem) and item.last_offset > 300}
    producers = [item for item in items if isinstance(item, ProducerSnapshotItem) and item.file == last]
    assert {(item.producer_id, item.coordinator_epoch, item.transaction_first_offset) for item in producers} == {
        (7, 5, -1),
        (8, 6, -1),
    }
    points = {
        (item.topic, item.partition, item.offset)
        for item in items
        if isinstance(item, CheckpointItem) and item.file.endswith("/recovery-point-offset-checkpoint")
    }
    assert ("plain", 0, PLAIN_RECORDS) in points


def test_a_dump_goes_on_behind_a_bad_batch(directory: Path) -> None:
    log = logs_of(directory / "plain-0")[0]
    second = read_header(log.read_bytes()).size_bytes
    flip(log, second + 70)
    items = dump(log, deep=True)
    (problem,) = [item for item in items if isinstance(item, ProblemItem)]
    assert (problem.file, problem.position, problem.offset) == (str(log), second, 5)
    batches = [item for item in items if isinstance(item, BatchItem)]
    assert [batch.base_offset for batch in batches if not batch.is_valid] == [5]
    assert [batch.base_offset for batch in batches][:4] == [0, 5, 10, 15]
    assert not any(isinstance(item, RecordItem) and 5 <= item.offset < 10 for item in items)


def test_every_kind_of_small_file_may_be_garbage(directory: Path) -> None:
    for path in [*directory.glob("*-checkpoint"), *directory.glob("*/*")]:
        if path.suffix == ".log":
            continue
        good = path.read_bytes()
        path.write_bytes(b"\xff\xfe garbage")
        problems = [item for item in dump(path) if isinstance(item, ProblemItem)]
        assert [problem.file for problem in problems] == [str(path)], path.name
        path.write_bytes(good)


def test_a_decoder_is_chosen_by_the_partitions_name_and_says_why_it_gave_up(tmp_path: Path) -> None:
    partition = tmp_path / "__consumer_offsets-4"
    partition.mkdir()
    key = b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x02"
    records = [(1, key, None, ()), (1, b"\x00\x63", b"?", ()), (1, None, b"?", ())]
    (partition / f"{0:020d}.log").write_bytes(build_batch(records))
    decoded, unknown, keyless = [item for item in dump(partition, deep=True) if isinstance(item, RecordItem)]
    assert decoded.key == {"type": "offset_commit", "version": 1, "group": "g", "topic": "t", "partition": 2}
    assert (decoded.value, decoded.decode_error) == (None, None)
    assert (unknown.key, unknown.decode_error) == (b"\x00\x63", "key version 99 is not known (0 to 2 are)")
    assert keyless.decode_error == "the record has no key"


def test_batches_and_bytes_may_be_bounded(directory: Path) -> None:
    log = logs_of(directory / "plain-0")[0]
    assert len(dump(log, batches_max=3)) == 3
    some = dump(log, bytes_max=1000)
    assert 1 <= len(some) < len(dump(log))
    assert not any(isinstance(item, ProblemItem) for item in some)


def test_old_formats_are_named_once_a_file(tmp_path: Path) -> None:
    directory = make_old_directory(tmp_path / "old")
    (problem,) = dump(directory / "old-0")
    assert isinstance(problem, ProblemItem)
    assert "format 0 or 1" in problem.reason


def test_a_large_log_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    batch = bytearray(build_batch([(1, b"k", os.urandom(10_000), ())] * 10))
    with path.open("wb") as file:
        for number in range(200):
            batch[:8] = (number * 10).to_bytes(8, "big")
            file.write(batch)
    import tracemalloc

    place = find_place(FILES, str(path))
    assert isinstance(place, FilePlace)
    tracemalloc.start()
    for _ in dump_file(FILES, place, DumpOptions(deep=True)):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000 < path.stat().st_size


def test_places_are_told_apart(directory: Path) -> None:
    assert isinstance(find_place(FILES, str(directory)), DirectoryPlace)
    assert isinstance(find_place(FILES, f"{directory}/"), DirectoryPlace)
    assert isinstance(find_place(FILES, str(directory / "plain-0")), PartitionPlace)
    for name, base, suffix in (
        (f"{5:020d}.log", 5, ""),
        (f"{5:020d}.log.17.cut", 5, ".17.cut"),
        (f"{5:020d}.log.cut", 5, ".cut"),
        (f"{5:020d}.timeindex.deleted", 5, ".deleted"),
        (f"{5:020d}.index.swap", 5, ".swap"),
        (f"{5:020d}.log.cleaned", 5, ".cleaned"),
    ):
        (directory / name).write_bytes(b"")
        place = find_place(FILES, str(directory / name))
        assert isinstance(place, FilePlace)
        assert (place.base_offset, place.suffix) == (base, suffix)


def test_a_foreign_place_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "photo.jpg").write_bytes(b"")
    (tmp_path / "etc" / "dbus-1").mkdir(parents=True)
    (tmp_path / "mixed" / "topic-0").mkdir(parents=True)
    (tmp_path / "mixed" / "topic-0" / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / "mixed" / "holidays").mkdir()
    for name in ("empty", "photo.jpg", "etc", "mixed"):
        with pytest.raises(LogDirectoryError, match=name):
            find_place(FILES, str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        find_place(FILES, str(tmp_path / "missing"))
