"""One partition's log: offsets, transactions, producers (rows S10 to S13, S20, pitfalls 3, 4)."""

from __future__ import annotations

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import check_log
from tests.support.log_world import kill
from tests.unit.storage.disk import (
    PATH,
    fail_when,
    listing,
    marker,
    new_disk,
    open_log,
    path_of,
    produced,
    records,
    small_config,
)

from penstock.base.clock import ManualClock
from penstock.base.errors import (
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PenstockError,
    StorageError,
    TransactionCoordinatorFencedError,
)
from penstock.records.batch import scan
from penstock.storage import producer_replay
from penstock.storage.answers import Bound
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.transaction_index import AbortedTransaction
from penstock.storage.upkeep import retain

EVERYTHING = 10**6


def a_log(files: ForgetfulFiles | None = None, **config: object) -> PartitionLog:
    return open_log(files or new_disk(), config=small_config(**config))[0]


def put(log: PartitionLog, count: int = 1, *, commit: bool = True, **producer: int) -> int:
    """Appends, and moves the high watermark with it."""
    offset = log.append_as_leader(produced(records(count), **producer), leader_epoch=0).base_offset  # type: ignore[arg-type]
    if commit:
        log.set_high_watermark(log.end_offset)
    return offset


def put_in_transaction(log: PartitionLog, producer_id: int, sequence: int, *, commit: bool = True) -> int:
    data = produced(producer_id=producer_id, sequence=sequence, transactional=True)
    offset = log.append_as_leader(data, leader_epoch=0).base_offset
    if commit:
        log.set_high_watermark(log.end_offset)
    return offset


def end(
    log: PartitionLog, producer_id: int, *, commit: bool, coordinator_epoch: int = 0, replicated: bool = True
) -> int:
    data = marker(producer_id, commit=commit, coordinator_epoch=coordinator_epoch)
    offset = log.append_as_leader(data, leader_epoch=0, origin=Origin.COORDINATOR).base_offset
    if replicated:
        log.set_high_watermark(log.end_offset)
    return offset


def read(log: PartitionLog, offset: int, bound: Bound) -> tuple[list[int], list[AbortedTransaction] | None]:
    result = log.read(offset, bytes_max=EVERYTHING, bound=bound)
    found = [] if result.slice is None else [batch.base_offset for batch in scan(result.slice.read()).batches]
    return found, result.aborted


# Offsets (S12).
def test_the_high_watermark_moves_forwards_only_and_not_past_the_end() -> None:
    log = a_log()
    put(log, 3, commit=False)
    assert log.set_high_watermark(2)
    assert not log.set_high_watermark(1)
    assert log.high_watermark == 2
    assert log.set_high_watermark(100)
    assert log.high_watermark == 3


def test_the_offsets_keep_their_order_through_everything() -> None:
    log = a_log(segment_bytes=300, retention_ms=-1)
    clock = ManualClock()

    def in_order() -> None:
        assert log.log_start_offset <= log.recovery_point <= log.end_offset
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset

    for step in (
        lambda: put(log, 5),
        lambda: put_in_transaction(log, 7, 0),
        lambda: put(log, 5),
        lambda: log.delete_records(8),
        lambda: retain(log, clock),
        log.flush,
        lambda: end(log, 7, commit=True),
        lambda: log.truncate(9),
        lambda: put(log, 5),
        lambda: log.delete_records(log.high_watermark),
        lambda: log.truncate(3),
        lambda: put(log, 2),
        lambda: log.truncate_fully(40),
        lambda: put(log, 2),
    ):
        step()
        in_order()


def test_a_read_names_the_valid_range_when_it_is_outside_of_it() -> None:
    log = a_log()
    put(log, 5)
    log.delete_records(2)
    for offset in (-1, 0, 1, 6, 2**62):
        with pytest.raises(OffsetOutOfRangeError, match=r"\[2, 5\]") as refusal:
            log.read(offset, bytes_max=100)
        assert (refusal.value.log_start_offset, refusal.value.end_offset) == (2, 5)
    assert log.read(5, bytes_max=100).slice is None, "the end is a good place to wait"


def test_each_bound_shows_what_it_may() -> None:
    log = a_log(segment_bytes=10**6)
    put(log)
    put_in_transaction(log, 7, 0)
    put(log)
    put(log, commit=False)
    assert read(log, 0, Bound.LOG_END) == ([0, 1, 2, 3], None)
    assert read(log, 0, Bound.HIGH_WATERMARK) == ([0, 1, 2], None)
    assert read(log, 0, Bound.LAST_STABLE) == ([0], [])
    result = log.read(0, bytes_max=100)
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (3, 1, 0)


# Transactions (S9, S12).
def test_an_answer_to_a_committed_read_always_has_a_list_even_an_empty_one() -> None:
    # KAFKA-5376
    log = a_log()
    assert log.read(0, bytes_max=100, bound=Bound.LAST_STABLE).aborted == []
    put_in_transaction(log, 7, 0)
    assert log.read(0, bytes_max=100, bound=Bound.LAST_STABLE).aborted == []
    assert log.read(0, bytes_max=100, bound=Bound.HIGH_WATERMARK).aborted is None


def test_a_committed_read_lists_the_aborted_transactions_in_what_it_got() -> None:
    log = a_log(segment_bytes=10**6)
    put_in_transaction(log, 7, 0)
    put_in_transaction(log, 8, 0)
    end(log, 7, commit=False)
    end(log, 8, commit=True)
    put_in_transaction(log, 7, 1)
    end(log, 7, commit=False)
    first, second = AbortedTransaction(7, 0, 2, 1), AbortedTransaction(7, 4, 5, 6)
    assert read(log, 0, Bound.LAST_STABLE) == ([0, 1, 2, 3, 4, 5], [first, second])
    assert read(log, 3, Bound.LAST_STABLE)[1] == [second]
    assert log.aborted_transactions(0, 4) == [first]


def test_aborted_transactions_are_found_in_the_segment_of_their_marker() -> None:
    log = a_log(segment_bytes=200)
    put_in_transaction(log, 7, 0)
    for _ in range(6):
        put(log)
    end(log, 7, commit=False)
    assert len(log.log.segments) > 2
    assert [entry.producer_id for entry in log.aborted_transactions(0, 1)] == [7]


def test_the_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    log = a_log()
    put_in_transaction(log, 7, 0)
    end(log, 7, commit=True, replicated=False)
    assert log.last_stable_offset == 0
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == 2


def test_empty_transactions_leave_no_entries() -> None:
    # KAFKA-10702
    files = new_disk()
    log = a_log(files)
    for _ in range(5):
        end(log, 7, commit=False)
    assert log.aborted_transactions(0, log.end_offset) == []
    assert not [name for name in listing(files) if name.endswith(".txnindex")]


def test_a_transaction_index_that_cannot_be_written_freezes_the_stable_offset_and_gives_no_offset_twice() -> None:
    # KAFKA-7866
    files = new_disk()
    log = a_log(files)
    put_in_transaction(log, 7, 0)
    fail_when(files, lambda what: ".txnindex" in what)
    with pytest.raises(StorageError):
        end(log, 7, commit=False, replicated=False)
    assert log.end_offset == 2, "the marker's bytes are there, and so is its offset"
    log.set_high_watermark(2)
    assert log.last_stable_offset == 0, "nobody may read what nobody can tell to be aborted"
    with pytest.raises(StorageError):
        put(log)
    kill(files)
    fail_when(files, lambda _what: False)
    log, _ = open_log(files, high_watermark=2)
    assert [entry.last_offset for entry in log.aborted_transactions(0, 2)] == [1], "recovery writes the entry"
    assert (log.end_offset, log.last_stable_offset) == (2, 2)


def test_a_marker_of_an_older_coordinator_is_refused_and_nothing_is_written() -> None:
    # KAFKA-9144
    log = a_log()
    put_in_transaction(log, 7, 0)
    end(log, 7, commit=True, coordinator_epoch=5)
    put_in_transaction(log, 7, 1)
    with pytest.raises(TransactionCoordinatorFencedError):
        end(log, 7, commit=True, coordinator_epoch=4)
    assert log.end_offset == 3
    assert log.last_stable_offset == 2


def test_a_truncated_marker_opens_its_transaction_again() -> None:
    log = a_log()
    put_in_transaction(log, 7, 0)
    put(log)
    end(log, 7, commit=False)
    assert log.last_stable_offset == 3
    log.truncate(2)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 10) == []


# Duplicates and producers (S10).
def test_a_duplicate_is_answered_with_the_first_answers_offsets_and_not_written() -> None:
    # KAFKA-14034
    log = a_log()
    first = log.append_as_leader(produced(records(3), producer_id=7, sequence=0), leader_epoch=0)
    put(log)
    again = log.append_as_leader(produced(records(3), producer_id=7, sequence=0), leader_epoch=1)
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (0, 2)
    assert log.end_offset == 4
    assert log.leader_epochs.latest == 0


def test_a_duplicate_is_recognised_after_a_crash_too() -> None:
    files = new_disk()
    log = a_log(files)
    for number in range(8):
        put(log, producer_id=7, sequence=number)
    kill(files)
    log, _ = open_log(files)
    for number in range(3, 8):
        again = log.append_as_leader(produced(producer_id=7, sequence=number), leader_epoch=0)
        assert (again.duplicate, again.base_offset) == (True, number)
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(produced(producer_id=7, sequence=2), leader_epoch=0)


def remembered(log: PartitionLog) -> dict[int, list[tuple[int, int]]]:
    """Of each producer the sequences and offsets of the batches that it may send again."""
    return {
        one.producer_id: [(batch.base_sequence, batch.base_offset) for batch in one.batches]
        for one in log.producers.values()
    }


@pytest.mark.parametrize("segment_bytes", [200, 450, 700, 10_000])
@pytest.mark.parametrize("index_interval_bytes", [1, 100, 10_000])
@pytest.mark.parametrize("small_bytes", [0, 64 * 1024])
def test_what_a_snapshot_leaves_out_is_found_in_the_log(
    segment_bytes: int, index_interval_bytes: int, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_replay, "_SMALL_BYTES", small_bytes)
    # It keeps one batch of each producer. librdkafka sends up to five again, the oldest first, and gives up when one is refused.
    files = new_disk()
    config = small_config(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    log, _ = open_log(files, config=config)
    sequences = dict.fromkeys((7, 8, 9), 0)
    for number in range(60):
        producer_id = 9 if number == 30 else 7 if number % 5 else 8
        if number == 35:
            put(log, producer_id=8, epoch=1)
            sequences[8] = 1
        put(
            log,
            2,
            producer_id=producer_id,
            sequence=sequences[producer_id],
            epoch=int(producer_id == 8 and number > 34),
        )
        sequences[producer_id] += 2
        if number % 3 == 0:
            put_in_transaction(log, 10, number // 3)
    before, end_offset = remembered(log), log.end_offset
    assert {producer_id: len(batches) for producer_id, batches in before.items()} == {7: 5, 8: 5, 9: 1, 10: 5}
    log.close()
    log, _ = open_log(files, clean=True, config=config)
    assert remembered(log) == before, "after a clean end"
    put(log)
    log.truncate(end_offset)
    assert remembered(log) == before, "after it was cut"
    log.abandon()
    log, _ = open_log(files, recovery_point=end_offset, config=config)
    assert remembered(log) == before, "after a crash"


def test_no_more_than_a_thousand_batches_are_looked_at_for_what_a_snapshot_leaves_out() -> None:
    files = new_disk()
    config = small_config(segment_bytes=10_000_000)
    log, _ = open_log(files, config=config)
    for number in range(3):
        put(log, producer_id=7, sequence=number)
    for _ in range(500):
        put(log)
    for number in range(3):
        put(log, producer_id=8, sequence=number)
    for _ in range(495):
        put(log)
    log.close()
    log, _ = open_log(files, clean=True, config=config)
    assert remembered(log) == {7: [(1, 1), (2, 2)], 8: [(0, 503), (1, 504), (2, 505)]}


def test_a_refused_append_leaves_the_producers_as_they_were() -> None:
    # KAFKA-6683
    log = a_log()
    put_in_transaction(log, 7, 0)
    known = log.producers.get(7)
    assert known is not None
    before = known.state()
    for data in (
        produced(producer_id=7, sequence=5),
        produced(producer_id=7, sequence=1),
        produced(records(size=10**4)),
    ):
        with pytest.raises(PenstockError):
            log.append_as_leader(data, leader_epoch=0)
    with pytest.raises(InvalidTxnStateError):
        log.append_as_leader(produced(producer_id=7, sequence=1), leader_epoch=0)
    assert known.state() == before
    assert log.end_offset == 1


def test_a_failed_write_leaves_the_producers_as_they_were() -> None:
    # KAFKA-6683
    files = new_disk()
    log = a_log(files)
    put(log, producer_id=7)
    fail_when(files, lambda what: what.startswith("write"))
    with pytest.raises(StorageError):
        put(log, producer_id=7, sequence=1)
    known = log.producers.get(7)
    assert known is not None
    assert (known.last_sequence, log.end_offset) == (0, 1)


def test_any_first_sequence_is_accepted_when_retention_has_taken_the_producer() -> None:
    # KAFKA-7298, 6003
    files = new_disk()
    log = a_log(files)
    for number in range(5):
        put(log, producer_id=7, sequence=number)
    log.delete_records(5)
    log.close()
    for name in listing(files):
        if name.endswith(".snapshot"):
            files.remove(f"{PATH}/{name}")
    log, _ = open_log(files, clean=True, log_start_offset=5)
    assert log.producers.get(7) is None
    assert put(log, producer_id=7, sequence=5) == 5


def test_the_state_is_kept_until_the_id_expires_though_its_records_are_gone() -> None:
    # KAFKA-7190
    log = a_log()
    put(log, producer_id=7)
    log.delete_records(1)
    with pytest.raises(OutOfOrderSequenceError):
        put(log, producer_id=7, sequence=9)
    assert log.expire_producers(1) == 0
    assert put(log, producer_id=7, sequence=1) == 1


def test_truncation_takes_the_producers_back_to_the_end() -> None:
    # KAFKA-12153
    files = new_disk()
    log = a_log(files, segment_bytes=300)
    for number in range(12):
        put(log, producer_id=7, sequence=number)
    for offset in (11, 7, 6, 2, 1):
        log.truncate(offset)
        known = log.producers.get(7)
        assert known is not None
        assert (known.last_sequence, known.last_offset) == (offset - 1, offset - 1)
        check_log(log, files)
    log.truncate(0)
    assert log.producers.get(7) is None


def test_snapshots_are_written_when_a_segment_is_rolled_and_at_a_clean_end() -> None:
    # KAFKA-5249
    files = new_disk()
    log = a_log(files, segment_bytes=200)
    for number in range(5):
        put(log, producer_id=7, sequence=number)
    assert log.snapshots.offsets == [segment.base_offset for segment in log.log.segments][1:]
    log.close()
    assert files.exists(path_of(5, ".snapshot"))


def test_snapshots_of_removed_segments_go_with_them() -> None:
    # KAFKA-9105
    files = new_disk()
    log = a_log(files, segment_bytes=200, file_delete_delay_ms=0, retention_ms=-1)
    for number in range(6):
        put(log, producer_id=7, sequence=number)
    before = log.snapshots.offsets[:]
    log.delete_records(6)
    retain(log, ManualClock())
    assert log.snapshots.offsets == [offset for offset in before if offset >= log.log.segments[0].base_offset]
