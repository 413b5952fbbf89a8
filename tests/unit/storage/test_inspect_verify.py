import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.inspection import (
    FILES,
    PLAIN,
    PLAIN_RECORDS,
    flip,
    logs_of,
    make_directory,
    make_old_directory,
    problems_of,
    verify_path,
)

from penstock.records.batch import Codec, read_header
from penstock.records.build import assemble, build_batch
from penstock.storage import checkpoints
from penstock.storage.inspect.places import find_place
from penstock.storage.inspect.problems import Cure
from penstock.storage.inspect.verify import verify


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "logs")


@pytest.fixture
def plain(directory: Path) -> Path:
    return directory / "plain-0"


@pytest.fixture
def transactions(directory: Path) -> Path:
    return directory / "transactions-3"


def test_what_the_log_wrote_is_without_fault(directory: Path) -> None:
    problems, summaries = verify_path(directory)
    assert problems == []
    plain, transactions = summaries
    assert (plain.start_offset, plain.end_offset) == (0, PLAIN_RECORDS)
    assert sum(segment.records for segment in plain.segments) == PLAIN_RECORDS
    assert len(plain.segments) > 2
    assert sum(segment.index_entries for segment in plain.segments) > 10
    assert sum(segment.time_entries for segment in plain.segments) > 10
    assert sum(segment.aborted for segment in transactions.segments) == 4
    assert [(entry.epoch, entry.start_offset) for entry in plain.epochs] == [(0, 0), (1, 300)]


def test_every_bit_of_a_log_counts(plain: Path) -> None:
    """The CRC covers all but offset, length and leader epoch, and those are checked too; the epoch's low bits may be news."""
    log = logs_of(plain)[1]
    good = log.read_bytes()
    batch = read_header(good)
    for position in range(batch.size_bytes):
        flip(log, position)
        if not 12 <= position < 16:
            assert problems_of(plain), f"nobody saw byte {position}"
        log.write_bytes(good)


def test_a_bad_batch_is_named_by_file_position_and_offset(plain: Path) -> None:
    log = logs_of(plain)[0]
    second = read_header(log.read_bytes()).size_bytes
    flip(log, second + 70)
    (problem,) = problems_of(plain)
    assert (problem.path, problem.position, problem.offset, problem.cure) == (str(log), second, 5, Cure.CUT)
    assert "CRC" in problem.reason


def rewritten(log: Path, change: Callable[[bytes], bytes]) -> None:
    """Puts another batch, with a good CRC, in the place of a log's first."""
    data = log.read_bytes()
    size = read_header(data).size_bytes
    log.write_bytes(change(data[:size]) + data[size:])


def with_payload(batch: bytes, payload: bytes, **changes: int) -> bytes:
    header = read_header(batch)
    fields = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "attributes": header.attributes,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": header.record_count,
    }
    return assemble(payload, **{**fields, **changes})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda batch: with_payload(batch, batch[61:-1] + b"\x7f"), "malformed"),
        (lambda batch: with_payload(batch, batch[61:] + b"more"), "left after the last record"),
        (lambda batch: with_payload(batch, batch[61:], record_count=4), "left after the last record"),
        (lambda batch: with_payload(batch, batch[61:], record_count=6), "over fewer offsets"),
        (lambda batch: with_payload(batch, batch[61:], last_offset=3, record_count=4), "left after"),
        (lambda batch: with_payload(batch, batch[61:], attributes=Codec.GZIP), "gzip"),
        (lambda batch: with_payload(batch, batch[61:], attributes=6), "codec"),
        (lambda batch: with_payload(batch, batch[61:], max_timestamp=1), "timestamp"),
        (lambda batch: with_payload(batch, b"junk", record_count=0), "counts no records"),
    ],
)
def test_a_good_crc_over_bad_records_does_not_pass(plain: Path, change: Callable[[bytes], bytes], reason: str) -> None:
    log = logs_of(plain)[0]
    rewritten(log, change)
    bad = [problem for problem in problems_of(plain) if problem.path == str(log)]
    assert reason in bad[0].reason
    assert (bad[0].position, bad[0].offset) == (0, 0)


def test_offsets_that_do_not_rise_are_seen_within_a_log_and_between_logs(plain: Path) -> None:
    first, second = logs_of(plain)[:2]
    data = first.read_bytes()
    first.write_bytes(data + data)
    assert "do not rise" in problems_of(plain)[0].reason
    first.write_bytes(data + second.read_bytes())
    assert any("begins at offset" in problem.reason for problem in problems_of(plain))
    first.write_bytes(data)
    lower = build_batch([(1, None, b"v", ())], base_offset=1)
    second.write_bytes(lower)
    assert "below the segment's base" in problems_of(plain)[0].reason


def index_of(log: Path, suffix: str = ".index") -> Path:
    return log.with_suffix(suffix)


def test_every_offset_entry_is_held_against_the_log(plain: Path) -> None:
    log = logs_of(plain)[0]
    index = index_of(log)
    good = index.read_bytes()
    for position in range(len(good)):
        flip(index, position)
        (problem,) = problems_of(plain)
        assert (problem.path, problem.cure) == (str(index), Cure.INDEXES)
        index.write_bytes(good)


def test_an_entry_that_points_into_a_batch_is_told_from_one_beyond_the_end(plain: Path) -> None:
    index = index_of(logs_of(plain)[0])
    good = index.read_bytes()
    index.write_bytes(good[:7] + bytes([good[7] + 1]) + good[8:])
    assert "where no batch begins" in problems_of(plain)[0].reason
    index.write_bytes(good[:-4] + struct.pack(">i", 1_000_000))
    assert "beyond the log's last batch" in problems_of(plain)[0].reason


def test_an_entry_for_a_whole_append_as_kafka_wrote_it_passes(plain: Path) -> None:
    index = index_of(logs_of(plain)[0])
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    assert len(entries) > 3
    (_, position), (later, _) = entries[1], entries[2]
    index.write_bytes(
        b"".join(struct.pack(">ii", *entry) for entry in (entries[0], (later - 1, position), *entries[2:]))
    )
    assert problems_of(plain) == []
    beyond = struct.pack(">ii", 10_000, entries[-1][1])
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries[:-1]) + beyond)
    assert "beyond" in problems_of(plain)[0].reason


def test_every_time_entry_is_a_true_maximum(plain: Path) -> None:
    index = index_of(logs_of(plain)[0], ".timeindex")
    good = index.read_bytes()
    for slot in range(len(good) // 12):
        for position in (
            slot * 12 + 7,
            slot * 12 + 10,
        ):  # the timestamp's low byte; the offset's, for which there is room
            flip(index, position)
            assert [problem.path for problem in problems_of(plain)] == [str(index)]
            index.write_bytes(good)
    index.write_bytes(good[:-12])
    assert "largest" in problems_of(plain)[0].reason


def test_indexes_that_are_missing_torn_or_untrimmed_are_seen(plain: Path) -> None:
    log = logs_of(plain)[0]
    for suffix in (".index", ".timeindex"):
        index = index_of(log, suffix)
        good = index.read_bytes()
        for bad, reason in ((None, "has no"), (good[:-1], "multiple"), (good + bytes(120), "zeroes")):
            if bad is None:
                index.unlink()
            else:
                index.write_bytes(bad)
            (problem,) = problems_of(plain)
            assert reason in problem.reason
            assert problem.cure is Cure.INDEXES
        index.write_bytes(good)
    assert problems_of(plain) == []


def test_the_active_index_may_be_preallocated_unless_the_log_was_closed(plain: Path, directory: Path) -> None:
    for suffix in (".index", ".timeindex"):
        index = index_of(logs_of(plain)[-1], suffix)
        index.write_bytes(index.read_bytes() + bytes(1200))
    assert [problem.cure for problem in problems_of(plain)] == [Cure.INDEXES] * 2
    assert problems_of(plain, live=True) == []
    (directory / ".kafka_cleanshutdown").unlink()
    assert problems_of(plain) == []


def test_a_transaction_index_is_held_against_the_markers(transactions: Path) -> None:
    index = sorted(transactions.glob("*.txnindex"))[0]
    good = index.read_bytes()
    for position in (1, 9, 14, 23, 30):  # version, producer, first, last, last stable offset
        flip(index, position)
        assert {problem.path for problem in problems_of(transactions)} == {str(index)}, position
        index.write_bytes(good)
    index.unlink()
    assert {problem.path for problem in problems_of(transactions)} == {str(index)}


def test_a_snapshot_is_held_against_its_crc_and_its_name(transactions: Path) -> None:
    snapshot = sorted(transactions.glob("*.snapshot"))[-1]
    good = snapshot.read_bytes()
    flip(snapshot, -1)
    (problem,) = problems_of(transactions)
    assert (problem.path, problem.cure) == (str(snapshot), Cure.REMOVE)
    snapshot.write_bytes(good)
    snapshot.rename(snapshot.with_name(f"{3:020d}.snapshot"))
    assert "beyond the snapshot" in problems_of(transactions)[0].reason


def test_checkpoints_are_readable_and_within_their_logs(directory: Path) -> None:
    path = directory / "recovery-point-offset-checkpoint"
    checkpoints.write_offsets(FILES, str(path), {PLAIN: PLAIN_RECORDS + 1})
    (problem,) = problems_of(directory)
    assert (problem.path, problem.offset, problem.cure) == (str(path), PLAIN_RECORDS + 1, Cure.CHECKPOINT)
    path.write_text("7\n0\n")
    assert "version" in problems_of(directory)[0].reason
    path.write_text("")  # as Kafka makes it
    assert problems_of(directory) == []


def test_an_epoch_history_is_held_against_the_batches(plain: Path) -> None:
    path = plain / "leader-epoch-checkpoint"
    for text in ("0\n2\n0 0\n", "0\n2\n1 0\n0 300\n", "0\n2\n0 0\n1 301\n", "0\n2\n0 0\n1 99999\n", "\xff"):
        path.write_text(text)
        assert problems_of(plain)[0].path == str(path), text
    path.write_text("0\n2\n0 0\n1 299\n")  # an epoch may begin before its first batch
    assert problems_of(plain) == []


def test_names_that_belong_to_nobody_are_told(plain: Path) -> None:
    orphan, foreign = plain / f"{99_999:020d}.index", plain / "holiday.jpg"
    swap, cut = plain / f"{0:020d}.log.swap", plain / f"{0:020d}.log.17.cut"
    for path in (orphan, foreign, swap, cut):
        path.write_bytes(b"")
    found = {problem.path: problem.cure for problem in problems_of(plain)}
    assert found == {str(orphan): Cure.REMOVE, str(foreign): Cure.NONE, str(swap): Cure.LEFTOVERS}


def test_a_torn_tail_is_a_problem_unless_a_writer_is_at_work(plain: Path) -> None:
    log = logs_of(plain)[-1]
    log.write_bytes(log.read_bytes() + b"torn")
    (problem,) = problems_of(plain)
    assert (problem.path, problem.cure) == (str(log), Cure.TAIL)
    assert problems_of(plain, live=True) == []


def test_a_torn_tail_hides_no_other_fault(plain: Path) -> None:
    log = logs_of(plain)[-1]
    log.write_bytes(log.read_bytes() + b"torn")
    flip(index_of(log), 3)
    assert {problem.path for problem in problems_of(plain)} == {str(log), str(index_of(log))}


def test_a_sealed_segment_has_no_excuse_for_a_torn_tail(plain: Path) -> None:
    log = logs_of(plain)[0]
    log.write_bytes(log.read_bytes() + b"torn")
    assert [problem.cure for problem in problems_of(plain)] == [Cure.CUT]
    assert problems_of(plain, live=True) != []


def test_one_file_is_checked_alone(plain: Path) -> None:
    log = logs_of(plain)[0]
    flip(log, 70)
    flip(index_of(logs_of(plain)[1]), 3)
    assert [problem.path for problem in problems_of(log)] == [str(log)]
    assert [problem.path for problem in problems_of(index_of(logs_of(plain)[1]))] == [str(index_of(logs_of(plain)[1]))]
    assert problems_of(index_of(logs_of(plain)[1], ".timeindex")) == []


def test_old_formats_are_one_sentence_a_segment(tmp_path: Path) -> None:
    (problem,) = problems_of(make_old_directory(tmp_path / "old"))
    assert "format 0 or 1" in problem.reason
    assert problem.cure is Cure.NONE


def test_a_segment_that_retention_took_is_no_problem_in_a_live_directory(plain: Path, directory: Path) -> None:
    class Vanishing(type(FILES)):  # type: ignore[misc]
        def open_read(self, path: str) -> object:
            if path == str(logs_of(plain)[0]):
                raise FileNotFoundError(path)
            return super().open_read(path)

    problems: list[object] = []
    verify(Vanishing(), find_place(FILES, str(directory)), problems.append, live=True)
    assert problems == []
    with pytest.raises(FileNotFoundError):
        verify(Vanishing(), find_place(FILES, str(directory)), problems.append)


def test_looking_changes_nothing(directory: Path) -> None:
    for path in directory.rglob("*.index"):
        path.write_bytes(path.read_bytes() + b"x")
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    assert problems_of(directory)
    assert before == {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
