"""What is known of a log beside its records when it is opened: producers, aborted transactions, epochs, ids (row S15, pitfalls 1, 4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.log_checks import check_log
from tests.support.log_world import LogWorld, kill
from tests.unit.storage.disk import (
    PATH,
    T0,
    listing,
    new_disk,
    open_log,
    path_of,
    produced,
    put_file,
    records,
)
from tests.unit.storage.test_load import bases_of, written

from penstock.records.batch import Batch
from penstock.storage import checkpoints, names
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producer_snapshot import encode
from penstock.storage.producer_state import Producer, ProducerBatch
from penstock.storage.segment import Segment


# Aborted transactions.
@pytest.mark.parametrize("damage", [b"", b"\0" * 33, b"\0\7" + bytes(32), bytes(34), b"twice"])
def test_a_transaction_index_that_cannot_be_right_is_made_anew(damage: bytes) -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    end, aborted = log.end_offset, log.aborted_transactions(0, log.end_offset)
    base = next(base for base in bases_of(log)[:-1] if files.exists(path_of(base, ".txnindex")))
    log.abandon()
    put_file(files, path_of(base, ".txnindex"), damage.replace(b"twice", 2 * files.read(path_of(base, ".txnindex"))))
    log, report = open_log(files, clean=True)
    if damage:
        assert report.recovered[0].base_offset == base
        assert files.size(path_of(base, ".txnindex")) == 34
        assert log.aborted_transactions(0, end) == aborted
        check_log(log, files)
    assert log.end_offset == end


# Producers.
def test_a_clean_start_takes_the_producers_from_the_last_snapshot() -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    end = log.end_offset
    log.abandon()
    other = Producer(77, 3)
    other.batches.append(ProducerBatch(4, 5, 0, T0))
    put_file(files, path_of(end, ".snapshot"), encode([other]))
    log, _ = open_log(files, clean=True)
    assert [producer.producer_id for producer in log.producers.values()] == [77]


def test_a_snapshot_above_the_recovery_point_is_not_believed() -> None:
    # KAFKA-5829: it may tell of batches that a crash took back, or of a history that was cut.
    files = written()
    log, _ = open_log(files, clean=True)
    bases, state = bases_of(log), [producer.state() for producer in log.producers.values()]
    log.abandon()
    liar = Producer(7, 0)
    liar.batches.append(ProducerBatch(1000, 1000, 0, T0))
    put_file(files, path_of(bases[-1], ".snapshot"), encode([liar]))
    log, _ = open_log(files, recovery_point=bases[2] + 1)
    assert [producer.state() for producer in log.producers.values()] == state
    log.truncate(bases[-1] + 2)
    known = log.producers.get(7)
    assert known is not None
    assert known.last_sequence < 1000, "nor later, when the log is cut back to it"
    check_log(log, files)


def test_snapshots_below_the_recovery_point_are_kept() -> None:
    # KAFKA-5829: only what lies beyond it is doubtful.
    files = written()
    log, _ = open_log(files, clean=True)
    bases = bases_of(log)
    log.abandon()
    log, _ = open_log(files, recovery_point=bases[3] + 1)
    assert set(bases[1:4]) <= set(log.snapshots.offsets)


def test_recovered_segments_get_the_snapshots_that_belong_to_them() -> None:
    # KAFKA-5249: named for the offset before which the state is that.
    files = written()
    log, _ = open_log(files, clean=True)
    bases = bases_of(log)
    before = {base: files.read(path_of(base, ".snapshot")) for base in bases[1:]}
    log.abandon()
    for base in bases[1:]:
        files.remove(path_of(base, ".snapshot"))
    log, _ = open_log(files)
    assert log.snapshots.offsets == bases[1:]
    assert {base: files.read(path_of(base, ".snapshot")) for base in bases[1:]} == before


def test_a_snapshot_that_no_segment_begins_at_is_removed() -> None:
    files = written()
    put_file(files, path_of(3, ".snapshot"), encode([]))
    log, _ = open_log(files, clean=True)
    assert 3 not in log.snapshots.offsets
    assert not files.exists(path_of(3, ".snapshot"))


def test_without_any_snapshot_the_producers_come_from_the_log() -> None:
    # KAFKA-5747
    files = written()
    log, _ = open_log(files, clean=True)
    state = sorted(producer.state() for producer in log.producers.values())
    log.abandon()
    for name in listing(files):
        if name.endswith(".snapshot"):
            files.remove(f"{PATH}/{name}")
    log, _ = open_log(files, clean=True)
    assert sorted(producer.state() for producer in log.producers.values()) == state


def test_a_sealed_segment_that_cannot_be_replayed_does_not_stop_the_start() -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    end = log.end_offset
    log.abandon()
    for name in listing(files):
        if name.endswith(".snapshot"):
            files.remove(f"{PATH}/{name}")
    files.open(path_of(0)).pwrite(b"\xff" * 61, 0)
    for clean in (True, False):
        log, _ = open_log(files, clean=clean, recovery_point=end)
        assert log.end_offset == end


# Epochs, the topic's id.
@pytest.mark.parametrize("data", [b"0\n9\n0 0\n", b"rubbish", b"1\n0\n"])
def test_leader_epochs_that_cannot_be_read_come_from_the_batches(data: bytes) -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    wanted = log.leader_epochs.entries
    assert len(wanted) > 2
    log.abandon()
    put_file(files, f"{PATH}/leader-epoch-checkpoint", data)
    log, _ = open_log(files, clean=True)
    assert log.leader_epochs.entries == wanted
    assert log.leader_epochs.dirty


def test_epochs_of_what_recovery_cut_go_with_it() -> None:
    files = written()
    log, _ = open_log(files, clean=True)
    last = bases_of(log)[-1]
    wanted = LeaderEpochs(log.leader_epochs.entries)
    wanted.truncate_from_end(last)
    log.abandon()
    files.truncate(path_of(last), 20)
    log, _ = open_log(files, recovery_point=last)
    assert log.end_offset == last
    assert log.leader_epochs.entries == wanted.entries


def test_a_topic_id_that_cannot_be_read_does_not_stop_the_start() -> None:
    files = written()
    put_file(files, f"{PATH}/partition.metadata", b"version: 0\ntopic_id: nonsense\n")
    log, _ = open_log(files)
    assert log.topic_id is None


def test_the_world_agrees() -> None:
    """The same through a log directory: recovery after a kill equals the list of what was written."""
    world = LogWorld()
    for number in range(40):
        world.append([(T0 + number, b"k", b"v" * 30, ())], producer_id=3, epoch=number // 9)
    world.crash(kill, keeps_cache=True)
    world.check()


@pytest.mark.parametrize(
    "left", [None, b"", b"0\n0\n", b"nonsense"], ids=["missing", "of no bytes", "empty", "unreadable"]
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_epoch_history_is_made_again_from_the_batches(left: bytes | None, clean: bool) -> None:
    # KAFKA-10432: epoch 0 too
    files = new_disk()
    log, _ = open_log(files)
    for epoch in (0, 0, 3, 3, 7):
        log.append_as_leader(produced(records(2, size=150)), leader_epoch=epoch)
    wanted, end_offset = log.leader_epochs.entries, log.end_offset
    assert len(wanted) == 3
    log.close()
    path = f"{PATH}/{names.LEADER_EPOCHS}"
    if left is None:
        files.remove(path)
    else:
        put_file(files, path, left)
    log, _ = open_log(files, clean=clean, recovery_point=end_offset)
    assert log.leader_epochs.entries == wanted
    log.flush()
    assert tuple(checkpoints.read_epochs(files, path)) == wanted, "and the next flush writes it"


def test_recovered_segments_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their reports have the epochs, also where no checkpoint was ever written."""
    files = new_disk()
    log, _ = open_log(files)
    for epoch in range(30):
        log.append_as_leader(produced(records(2, size=150)), leader_epoch=epoch)
    assert len(log.log.segments) > 5
    wanted = log.leader_epochs.entries
    walked: list[int] = []
    headers = Segment.headers

    def watched(segment: Segment, position: int, end: int | None = None) -> Iterator[Batch]:
        walked.append(position)
        return headers(segment, position, end)

    monkeypatch.setattr(Segment, "headers", watched)
    log, report = open_log(files)
    assert len(report.recovered) == len(log.log.segments)
    assert log.leader_epochs.entries == wanted
    assert len(walked) < len(log.log.segments) // 2, "the places of some offsets, nothing else"
