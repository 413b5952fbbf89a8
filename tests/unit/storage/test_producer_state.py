"""Producer state: sequences, duplicates, fencing, transactions, expiry (row S10, pitfalls 3 and the log's side of 4)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import T0

from penstock.base.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from penstock.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, Batch
from penstock.storage.producer_state import EndMarker, Origin, Producer, Producers

SEQUENCE_MAX = 2**31 - 1


def data(
    sequence: int,
    offset: int,
    *,
    count: int = 1,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = T0,
) -> Batch:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    last = offset + count - 1
    return Batch(
        0, 100, offset, last, 0, 2, 0, attributes, timestamp, timestamp, producer_id, epoch, sequence, count
    )  # fmt: skip


def control(offset: int, *, producer_id: int = 7, epoch: int = 0, timestamp: int = T0) -> Batch:
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    return Batch(0, 78, offset, offset, 0, 2, 0, attributes, timestamp, timestamp, producer_id, epoch, -1, 1)


COMMIT, ABORT = EndMarker(True, 0), EndMarker(False, 0)


def accept(producers: Producers, batch: Batch, origin: Origin = Origin.CLIENT) -> None:
    assert producers.check(batch, origin) is None
    producers.update(batch)


def known(producers: Producers, producer_id: int = 7) -> Producer:
    found = producers.get(producer_id)
    assert found is not None
    return found


# Sequences.
def test_sequences_follow_one_another_and_a_gap_is_refused() -> None:
    producers = Producers()
    accept(producers, data(0, 0, count=3))
    accept(producers, data(3, 3))
    with pytest.raises(OutOfOrderSequenceError, match="sequence 5; its last batch ended at 3"):
        producers.check(data(5, 4), Origin.CLIENT)


@pytest.mark.parametrize("sequence", [0, 1, 500, SEQUENCE_MAX])
def test_with_no_state_any_first_sequence_is_accepted(sequence: int) -> None:
    # KAFKA-7298, 7190, 6003: retention may have removed what came before; UNKNOWN_PRODUCER_ID is never sent.
    for origin in Origin:
        accept(Producers(), data(sequence, 40), origin)


def test_sequences_wrap_from_the_largest_to_0() -> None:
    # KAFKA-7692
    producers = Producers()
    accept(producers, data(SEQUENCE_MAX - 1, 0, count=2))
    accept(producers, data(0, 2))
    producers = Producers()
    accept(producers, data(SEQUENCE_MAX - 1, 0, count=4))
    assert known(producers).last_sequence == 1
    assert known(producers).batches[-1].base_sequence == SEQUENCE_MAX - 1
    assert producers.check(data(SEQUENCE_MAX - 1, 9, count=4), Origin.CLIENT) is not None, (
        "a duplicate, found across the wrap"
    )
    accept(producers, data(2, 4))


def test_a_new_epoch_begins_with_sequence_0() -> None:
    producers = Producers()
    accept(producers, data(0, 0, count=5))
    with pytest.raises(OutOfOrderSequenceError, match="begins epoch 1 with sequence 5"):
        producers.check(data(5, 5, epoch=1), Origin.CLIENT)
    accept(producers, data(0, 5, epoch=1))
    assert len(known(producers).batches) == 1, "the old epoch's batches are no duplicates of the new one's"


def test_an_older_epoch_is_fenced() -> None:
    producers = Producers()
    accept(producers, data(0, 0, epoch=2))
    for origin in (Origin.CLIENT, Origin.COORDINATOR):
        with pytest.raises(InvalidProducerEpochError, match="the newest seen is 2"):
            producers.check(data(0, 1, epoch=1), origin)


def test_replication_and_the_coordinator_do_not_check_sequences() -> None:
    # KAFKA-6003
    producers = Producers()
    accept(producers, data(0, 0))
    accept(producers, data(90, 1), Origin.REPLICATION)
    accept(producers, data(5, 2), Origin.COORDINATOR)


def test_after_a_marker_with_a_new_epoch_only_sequence_0_follows() -> None:
    producers = Producers()
    accept(producers, data(0, 0, count=9, transactional=True))
    producers.update(control(9, epoch=1), ABORT)
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(data(9, 10, epoch=1), Origin.CLIENT)
    accept(producers, data(0, 10, epoch=1))


# Duplicates.
def test_each_of_the_last_five_batches_is_recognised_again_with_its_offsets() -> None:
    # KAFKA-14034: a duplicate is answered, not refused.
    producers = Producers()
    for number in range(6):
        accept(producers, data(number * 2, 100 + number * 2, count=2))
    for number in range(1, 6):
        found = producers.check(data(number * 2, 500, count=2), Origin.CLIENT)
        assert found is not None
        assert (found.base_offset, found.last_offset) == (100 + number * 2, 101 + number * 2)
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(data(0, 500, count=2), Origin.CLIENT)


def test_a_batch_that_overlaps_another_without_being_it_is_no_duplicate() -> None:
    producers = Producers()
    accept(producers, data(0, 0, count=4))
    for sequence, count in ((0, 3), (1, 3), (0, 5)):
        with pytest.raises(OutOfOrderSequenceError):
            producers.check(data(sequence, 4, count=count), Origin.CLIENT)


def test_a_check_changes_nothing() -> None:
    # KAFKA-6683
    producers = Producers()
    accept(producers, data(0, 0))
    before = known(producers).state()
    assert producers.check(data(1, 1, transactional=True), Origin.CLIENT) is None
    assert producers.check(data(0, 1, producer_id=99), Origin.CLIENT) is None
    assert known(producers).state() == before
    assert producers.get(99) is None
    assert producers.first_unstable_offset is None


# Transactions.
def test_a_transaction_begins_at_its_first_batch_and_holds_the_stable_offset() -> None:
    producers = Producers()
    accept(producers, data(0, 3, transactional=True))
    accept(producers, data(1, 4, transactional=True))
    assert producers.first_unstable_offset == 3


def test_a_completed_transaction_holds_the_stable_offset_until_its_marker_is_replicated() -> None:
    producers = Producers()
    accept(producers, data(0, 3, transactional=True))
    completed = producers.update(control(4), COMMIT)
    assert completed is not None
    producers.complete(completed)
    assert producers.first_unstable_offset == 3
    producers.passed_high_watermark(4)
    assert producers.first_unstable_offset == 3, "the marker itself lies at 4"
    producers.passed_high_watermark(5)
    assert producers.first_unstable_offset is None


def test_the_oldest_of_open_and_unreplicated_transactions_decides() -> None:
    producers = Producers()
    accept(producers, data(0, 3, transactional=True))
    accept(producers, data(0, 5, producer_id=8, transactional=True))
    completed = producers.update(control(6), ABORT)
    assert completed is not None
    assert producers.last_stable_offset_after(completed) == 5
    producers.complete(completed)
    producers.passed_high_watermark(7)
    assert producers.first_unstable_offset == 5
    last = producers.update(control(7, producer_id=8), ABORT)
    assert last is not None
    assert producers.last_stable_offset_after(last) == 8


def test_a_batch_outside_the_open_transaction_is_refused() -> None:
    producers = Producers()
    accept(producers, data(0, 0, transactional=True))
    with pytest.raises(InvalidTxnStateError):
        producers.check(data(1, 1), Origin.CLIENT)


def test_an_empty_transaction_leaves_no_entry() -> None:
    # KAFKA-10702
    producers = Producers()
    assert producers.update(control(0), ABORT) is None
    accept(producers, data(0, 1, transactional=True))
    assert producers.update(control(2), ABORT) is not None
    assert producers.update(control(3), ABORT) is None


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    # KAFKA-9144: the coordinator's epoch does not go back.
    producers = Producers()
    producers.update(control(0), EndMarker(True, 5))
    with pytest.raises(TransactionCoordinatorFencedError, match="coordinator epoch 4; the newest seen is 5"):
        producers.check_marker(control(1), EndMarker(True, 4))
    producers.check_marker(control(1), EndMarker(True, 5))


def test_a_marker_keeps_its_producer_alive() -> None:
    # KAFKA-9144
    producers = Producers()
    accept(producers, data(0, 0, transactional=True))
    completed = producers.update(control(1, timestamp=T0 + 5000), COMMIT)
    assert completed is not None
    producers.complete(completed)
    assert producers.expire(T0 + 9_999, 5_000) == 0
    assert producers.expire(T0 + 10_000, 5_000) == 1


def test_a_marker_alone_makes_its_producer_known() -> None:
    producers = Producers()
    producers.update(control(0, epoch=3), COMMIT)
    assert known(producers).epoch == 3
    with pytest.raises(InvalidProducerEpochError):
        producers.check(data(0, 1, epoch=2), Origin.CLIENT)


# Expiry.
def test_a_silent_producer_is_forgotten_unless_its_transaction_is_open() -> None:
    producers = Producers()
    accept(producers, data(0, 0))
    accept(producers, data(0, 1, producer_id=8, transactional=True))
    assert producers.expire(T0 + 999, 1_000) == 0
    assert producers.expire(T0 + 1_000, 1_000) == 1
    assert producers.get(7) is None
    assert producers.get(8) is not None


def test_a_clock_that_goes_back_expires_nobody() -> None:
    producers = Producers()
    accept(producers, data(0, 0))
    assert producers.expire(T0 - 10**12, 1) == 0


def test_a_hundred_thousand_producers_expire_in_one_pass() -> None:
    # A14
    # KAFKA-16229: a second look at every producer for each one that goes would not end within the test's time.
    producers = Producers()
    for producer_id in range(100_000):
        producers.update(data(0, producer_id, producer_id=producer_id, timestamp=T0 + producer_id % 2))
    assert producers.expire(T0 + 1_000, 1_000) == 50_000
    assert producers.expire(T0 + 1_001, 1_000) == 50_000


# The log's head goes.
def test_producers_stay_when_the_log_loses_its_head() -> None:
    # KAFKA-7190: the state is kept until the id expires.
    producers = Producers()
    accept(producers, data(0, 0))
    producers.forget_below(1)
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(data(5, 1), Origin.CLIENT)


def test_a_transaction_that_ended_below_the_start_holds_nothing_back() -> None:
    producers = Producers()
    accept(producers, data(0, 0, transactional=True))
    completed = producers.update(control(1), COMMIT)
    assert completed is not None
    producers.complete(completed)
    producers.forget_below(1)
    assert producers.first_unstable_offset == 0, "its marker is still there"
    producers.forget_below(2)
    assert producers.first_unstable_offset is None


def test_a_restored_state_has_its_transactions_in_offset_order() -> None:
    first, second = Producer(1, 0), Producer(2, 0)
    first.transaction_first_offset, second.transaction_first_offset = 50, 20
    producers = Producers()
    producers.restore([first, second])
    assert producers.first_unstable_offset == 20
    assert list(producers.open_transactions) == [20, 50]
