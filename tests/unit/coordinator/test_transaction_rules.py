"""Every rule of states and epochs of the transaction coordinator."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_world import OTHER, PLACE, ShardWorld

from penstock.base.errors import InvalidTxnStateError, PenstockError
from penstock.coordinator.errors import CoordinatorNotAvailableError
from penstock.coordinator.transactions.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from penstock.coordinator.transactions.messages import EndTransaction, ProducerStamp
from penstock.coordinator.transactions.model import EPOCH_MAX
from penstock.protocol.transaction_records import TransactionState

STATE = TransactionState


@pytest.fixture
def world() -> ShardWorld:
    return ShardWorld()


# Producer ids and epochs.
def test_each_new_producer_of_an_id_gets_the_next_epoch(world: ShardWorld) -> None:
    assert [world.init() for _ in range(3)] == [ProducerStamp(101, epoch) for epoch in range(3)]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused_and_leaves_no_trace(world: ShardWorld, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeoutError):
        world.init(timeout_ms=timeout_ms)
    assert world.shard.transactions == {}


def test_a_producer_that_says_who_it_is_is_bumped_and_not_fenced(world: ShardWorld) -> None:
    first = world.started()
    second = world.init(first)
    assert second == ProducerStamp(first.producer_id, 1)
    assert world.init(first) == second, "asked again, the answer was lost: no second bump"


def test_a_producer_that_was_fenced_cannot_bump_itself_back(world: ShardWorld) -> None:
    first = world.started()
    world.init()
    with pytest.raises(ProducerFencedError):
        world.init(first)
    for epoch in (0, world.transaction.epoch):
        with pytest.raises(ProducerFencedError):
            world.init(ProducerStamp(999, epoch))


def test_a_lost_id_takes_whoever_comes(world: ShardWorld) -> None:
    assert world.init(ProducerStamp(55, 7)) == ProducerStamp(101, 0)


def test_exhausted_epochs_bring_a_new_producer_id(world: ShardWorld) -> None:  # KAFKA-7692, 5283
    first = world.started()
    world.transaction.epoch = EPOCH_MAX - 1
    last = ProducerStamp(first.producer_id, EPOCH_MAX - 1)
    rotated = world.init(last)
    assert rotated is not None
    assert (rotated.producer_id != first.producer_id, rotated.epoch) == (True, 0)
    assert world.init(rotated) == rotated._replace(epoch=1)


def test_a_retried_bump_over_exhausted_epochs_is_not_fenced(world: ShardWorld) -> None:
    first = world.started()
    world.transaction.epoch = EPOCH_MAX - 1
    last = ProducerStamp(first.producer_id, EPOCH_MAX - 1)
    rotated = world.init(last)
    assert world.init(last) == rotated


def test_an_open_transaction_is_aborted_before_a_new_producer_starts(world: ShardWorld) -> None:
    # KAFKA-6119, 5231: the old producer is fenced by the abort itself, not only by the next epoch.
    first = world.started()
    world.add(first)
    assert world.init() is None, "no reply: the producer is to ask again"
    assert world.transaction.epoch == first.epoch + 1
    with pytest.raises(ConcurrentTransactionsError):
        world.init()
    world.write_markers()
    assert world.written[0].commit is False
    assert world.written[0].producer == ProducerStamp(first.producer_id, 1)
    assert world.init() == ProducerStamp(first.producer_id, 2)
    with pytest.raises(ProducerFencedError):
        world.add(first)


def test_an_epoch_that_could_not_be_written_is_not_bumped_again(world: ShardWorld) -> None:
    # KAFKA-9666, 9600
    first = world.started()
    world.add(first)
    world.failure = CoordinatorNotAvailableError("the log is away")
    for _ in range(3):
        with pytest.raises(CoordinatorNotAvailableError):
            world.init()
    assert world.transaction.epoch == first.epoch
    assert world.transaction.pending is None
    world.failure = None
    world.init()
    assert world.transaction.epoch == first.epoch + 1


def test_a_fence_at_the_last_epoch_still_works_and_then_the_id_changes(world: ShardWorld) -> None:
    first = world.started()
    world.transaction.epoch = EPOCH_MAX - 1
    world.add(ProducerStamp(first.producer_id, EPOCH_MAX - 1))
    assert world.init() is None
    world.write_markers()
    assert world.transaction.epoch == EPOCH_MAX
    renewed = world.init()
    assert renewed is not None
    assert renewed.producer_id != first.producer_id
    assert renewed.epoch == 0


# Partitions.
def test_partitions_are_added_once_and_the_clock_starts_with_the_first(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer, PLACE)
    began_ms = world.transaction.start_ms
    world.clock.advance(500)
    world.add(producer, PLACE)
    written = len(world.records)
    world.add(producer, OTHER)
    assert len(world.records) == written + 1
    assert world.transaction.partitions == {PLACE, OTHER}
    assert world.transaction.start_ms == began_ms


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"producer_id": 999}, InvalidProducerIdMappingError),
        ({"epoch": 1}, ProducerFencedError),
        ({"epoch": -1}, ProducerFencedError),
    ],
)
def test_a_wrong_producer_or_epoch_is_refused_everywhere(
    world: ShardWorld, change: dict[str, int], error: type[PenstockError]
) -> None:
    producer = world.started()
    wrong = producer._replace(**change)
    with pytest.raises(error):
        world.add(wrong)
    world.add(producer)
    with pytest.raises(error):
        world.shard.verify("x", wrong, [PLACE])
    for client_version in (0, 2):
        with pytest.raises(error):
            world.prepare(wrong, client_version=client_version)
    assert world.transaction.state is STATE.ONGOING


def test_an_unknown_id_has_no_transactions(world: ShardWorld) -> None:
    producer = ProducerStamp(1, 0)
    with pytest.raises(InvalidProducerIdMappingError):
        world.add(producer)
    with pytest.raises(InvalidProducerIdMappingError):
        world.prepare(producer)
    with pytest.raises(InvalidProducerIdMappingError):
        world.shard.verify("x", producer, [PLACE])
    with pytest.raises(TransactionalIdNotFoundError):
        world.shard.describe("x")


def test_only_what_was_added_is_verified(world: ShardWorld) -> None:  # KAFKA-14561
    producer = world.started()
    world.add(producer, PLACE)
    verified = world.shard.verify("x", producer, [PLACE, OTHER])
    assert verified[PLACE] is None
    assert isinstance(verified[OTHER], TransactionAbortableError)
    world.prepare(producer)
    with pytest.raises(ConcurrentTransactionsError):
        world.shard.verify("x", producer, [PLACE])
    world.write_markers()
    assert isinstance(world.shard.verify("x", producer, [PLACE])[PLACE], TransactionAbortableError)


# Ends, in the older protocol.
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_prepared_marked_and_completed(world: ShardWorld, commit: bool) -> None:
    producer = world.started()
    world.add(producer, PLACE, OTHER)
    world.prepare(producer, commit=commit)
    with pytest.raises(ConcurrentTransactionsError):
        world.prepare(producer, commit=commit)
    with pytest.raises(ConcurrentTransactionsError):
        world.add(producer)
    world.write_markers()
    assert world.written[0].partitions == {PLACE, OTHER}
    assert world.written[0].commit is commit
    states = [value.state for _, value in world.records if value is not None]
    assert states[-2:] == (
        [STATE.PREPARE_COMMIT, STATE.COMPLETE_COMMIT] if commit else [STATE.PREPARE_ABORT, STATE.COMPLETE_ABORT]
    )
    assert world.end(producer, commit=commit) == producer, "said twice, it is answered twice"
    with pytest.raises(InvalidTxnStateError):
        world.end(producer, commit=not commit)


def test_there_is_nothing_to_end_before_a_partition_is_added(world: ShardWorld) -> None:
    producer = world.started()
    for commit in (True, False):
        with pytest.raises(InvalidTxnStateError):
            world.end(producer, commit=commit)


# Ends that raise the epoch.
def test_every_end_of_the_newer_protocol_raises_the_epoch(world: ShardWorld) -> None:
    producer = world.started()
    for number in range(3):
        world.add(producer, client_version=2)
        following = world.end(producer, commit=number != 1, client_version=2)
        assert following == ProducerStamp(producer.producer_id, producer.epoch + 1)
        assert world.written[-1].producer == following, "the marker has the raised epoch"
        producer = following


def test_a_delayed_end_cannot_decide_a_later_transaction(world: ShardWorld) -> None:  # KAFKA-17754
    first = world.started()
    world.add(first, client_version=2)
    second = world.end(first, commit=True, client_version=2)
    world.add(second, client_version=2)
    with pytest.raises(ProducerFencedError):
        world.prepare(first, commit=True, client_version=2)
    assert world.transaction.state is STATE.ONGOING


def test_an_end_of_the_newer_protocol_said_twice_is_answered_alike(world: ShardWorld) -> None:
    first = world.started()
    world.add(first, client_version=2)
    second = world.prepare(first, client_version=2)
    with pytest.raises(ConcurrentTransactionsError):
        world.prepare(first, client_version=2)
    world.write_markers()
    assert world.end(first, client_version=2) == second
    with pytest.raises(InvalidTxnStateError):
        world.end(first, commit=False, client_version=2)


def test_an_empty_transaction_of_the_newer_protocol_may_be_aborted_only(world: ShardWorld) -> None:
    first = world.started()
    with pytest.raises(InvalidTxnStateError):
        world.end(first, client_version=2)
    second = world.end(first, commit=False, client_version=2)
    assert second.epoch == first.epoch + 1
    assert world.written[-1].partitions == frozenset()
    third = world.end(second, commit=False, client_version=2)
    assert third.epoch == second.epoch + 1


def test_an_end_at_the_last_epoch_hands_over_to_a_new_producer_id(world: ShardWorld) -> None:
    first = world.started()
    world.transaction.epoch = EPOCH_MAX - 1
    last = ProducerStamp(first.producer_id, EPOCH_MAX - 1)
    world.add(last, client_version=2)
    renewed = world.prepare(last, client_version=2)
    assert (renewed.producer_id != last.producer_id, renewed.epoch) == (True, 0)
    # The next transaction may be asked for before the last is completed: not fenced, only early.
    with pytest.raises(ConcurrentTransactionsError):
        world.add(renewed, client_version=2)
    world.reload()
    world.write_markers()
    assert world.written[-1].producer == ProducerStamp(last.producer_id, EPOCH_MAX)
    assert world.end(last, client_version=2) == renewed, "said twice"
    world.add(renewed, client_version=2)


def test_the_highest_epoch_is_nobodys(world: ShardWorld) -> None:
    first = world.started()
    world.transaction.epoch = EPOCH_MAX
    with pytest.raises(ProducerFencedError):
        world.prepare(ProducerStamp(first.producer_id, EPOCH_MAX), commit=False, client_version=2)
    with pytest.raises(ProducerFencedError):
        world.add(ProducerStamp(first.producer_id, EPOCH_MAX))
    assert world.shard.ongoing == {}


def test_what_another_broker_left_open_in_the_highest_epoch_times_out_too(world: ShardWorld) -> None:
    first = world.started()
    world.add(first)
    transactional_id, value = world.records[-1]
    assert value is not None
    world.records.append((transactional_id, value._replace(producer_epoch=EPOCH_MAX)))
    world.reload()
    world.clock.advance(60_001)
    world.run_timeouts()
    assert world.written[-1].producer == ProducerStamp(first.producer_id, EPOCH_MAX)
    assert world.written[-1].client_version == 0, "its records have that epoch: not taken for written"
    renewed = world.init()
    assert renewed is not None
    assert renewed.producer_id != first.producer_id


# Time.
def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer)
    world.clock.advance(60_000)
    world.run_timeouts()
    assert set(world.shard.ongoing) == {"x"}
    world.clock.advance(1)
    world.run_timeouts()
    assert world.transaction.state is STATE.COMPLETE_ABORT
    assert world.shard.ongoing == {}
    with pytest.raises(ProducerFencedError):
        world.prepare(producer)


def test_a_producer_of_the_newer_protocol_may_still_abort_what_timed_out(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer, client_version=2)
    world.clock.advance(60_001)
    world.run_timeouts()
    assert world.end(producer, commit=False, client_version=2).epoch == producer.epoch + 1
    with pytest.raises(InvalidTxnStateError):
        world.end(producer, commit=True, client_version=2)


def test_ids_that_nobody_uses_are_forgotten_and_open_ones_never(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer)
    world.started("idle")
    world.clock.advance(world.settings.expiration_ms)
    world.run_expiry()
    assert set(world.shard.transactions) == {"x"}
    assert world.records[-1] == ("idle", None)
    world.reload()
    assert set(world.shard.transactions) == {"x"}


def test_an_expiry_that_fails_leaves_the_id_usable(world: ShardWorld) -> None:  # KAFKA-7519, 14880
    producer = world.started()
    world.clock.advance(world.settings.expiration_ms)
    world.failure = CoordinatorNotAvailableError("the log is away")
    with pytest.raises(CoordinatorNotAvailableError):
        world.run_expiry()
    world.failure = None
    world.add(producer)
    assert world.transaction.state is STATE.ONGOING


def test_an_id_whose_first_record_failed_is_not_there(world: ShardWorld) -> None:  # KAFKA-14880
    world.failure = CoordinatorNotAvailableError("the log is away")
    with pytest.raises(CoordinatorNotAvailableError):
        world.init()
    assert world.shard.transactions == {}


# Loading.
@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_is_completed_by_the_next_coordinator(
    world: ShardWorld, commit: bool, client_version: int
) -> None:
    # KAFKA-9307, 5600: the state is that of the last record, in whatever segment.
    producer = world.started()
    world.add(producer, client_version=client_version)
    world.prepare(producer, commit=commit, client_version=client_version)
    lost = world.markers[0]
    world.reload()
    (again,) = world.markers
    assert (again.producer, again.commit, again.partitions) == (lost.producer, lost.commit, lost.partitions)
    with pytest.raises(ConcurrentTransactionsError):
        world.init()
    world.write_markers()
    assert world.transaction.state is (STATE.COMPLETE_COMMIT if commit else STATE.COMPLETE_ABORT)


def test_markers_of_two_lives_do_not_mix(world: ShardWorld) -> None:  # KAFKA-16352, 10080
    producer = world.started()
    world.add(producer)
    world.prepare(producer)
    (markers,) = world.markers
    world.write_markers()
    with pytest.raises(AssertionError):
        world.shard.complete(markers)  # a second completion of the same end is nobody's to ask for
    world.add(producer)
    assert world.transaction.state is STATE.ONGOING


def test_a_completion_that_fails_is_still_to_be_done(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer)
    world.prepare(producer)
    (markers,) = world.markers
    transition = world.shard.complete(markers)
    world.shard.completion_failed(transition)
    with pytest.raises(ConcurrentTransactionsError):
        world.add(producer)
    world.carry_out(world.shard.complete(markers))
    world.add(producer)


def test_an_append_that_fails_changes_nothing(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer)
    world.failure = CoordinatorNotAvailableError("the log is away")
    for attempt in (lambda: world.add(producer, OTHER), lambda: world.prepare(producer)):
        with pytest.raises(CoordinatorNotAvailableError):
            attempt()
        assert (world.transaction.state, world.transaction.partitions) == (STATE.ONGOING, frozenset({PLACE}))
    world.failure = None
    world.end(producer)


def test_describing_shows_what_stands(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer)
    found = world.shard.describe("x")
    assert (found.state.label, found.producer, found.timeout_ms) == ("Ongoing", producer, 60_000)


def test_a_step_under_way_lets_nobody_else_through(world: ShardWorld) -> None:
    producer = world.started()
    world.add(producer)
    decision = world.shard.end(EndTransaction("x", producer, True, 0), None)
    assert decision.transition is not None
    for attempt in (lambda: world.add(producer, OTHER), lambda: world.prepare(producer), world.init):
        with pytest.raises(ConcurrentTransactionsError):
            attempt()
    world.clock.advance(100_000)
    assert list(world.shard.timed_out()) == []
