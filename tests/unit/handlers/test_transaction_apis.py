"""Transactions over the wire, in a broker without sockets: verification, markers, readers, answers, attacks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.support.transaction_requests import Stamp, TransactionRequests
from tests.unit.handlers.test_dynamic_configs import SET, alter
from tests.unit.handlers.test_produce_and_fetch import fetch, only
from tests.unit.handlers.world import World, shape

from penstock.base.ids import TopicPartition
from penstock.drivers.markers import Marker
from penstock.handlers.authoriser import Action
from penstock.records.build import build_batch
from penstock.replication.errors import NotLeaderOrFollowerError

T0, T1 = ("t", 0), ("t", 1)


class Served(World):
    def __init__(self, path: Path, *, verify: str = "true", flush_after: int = 2**63 - 1) -> None:
        super().__init__(
            path,
            offsets_topic_num_partitions="1",
            transaction_state_log_num_partitions="1",
            transaction_partition_verification_enable=verify,
            log_flush_interval_messages=str(flush_after),
        )
        self.create_topic("t", 2)
        self.requests = TransactionRequests(self.call)
        self.requests.find_coordinator("g", 0)
        self.requests.find_coordinator("x", 1)

    def call(self, key: int, version: int, request: Any) -> Any:
        answer = self.send_entity(key, version, request)
        self.loop.turn()
        return answer.read()

    def log(self, place: tuple[str, int]) -> Any:
        return self.partitions.get(*place).log


@pytest.fixture
def world(tmp_path: Path) -> Served:
    return Served(tmp_path)


def opened(world: Served, *places: tuple[str, int]) -> Stamp:
    stamp = world.requests.init("x")
    assert set(world.requests.add_partitions("x", stamp, places or [T0]).values()) == {"none"}
    return stamp


def produce(world: Served, stamp: Stamp, place: tuple[str, int] = T0, sequence: int = 0, version: int = 11) -> str:
    return world.requests.produce("x", stamp, *place, [b"v"], sequence=sequence, version=version)[0]


# Verification before a write.
@pytest.mark.parametrize(
    ("version", "error"), [(9, "invalid_txn_state"), (10, "invalid_txn_state"), (11, "transaction_abortable")]
)
def test_a_write_to_a_partition_that_was_not_added_is_refused(world: Served, version: int, error: str) -> None:
    # KAFKA-14561
    stamp = opened(world, T0)
    assert produce(world, stamp, T1, version=version) == error
    assert world.log(T1).end_offset == 0
    assert produce(world, stamp, T0, version=version) == "none"


def test_a_late_write_cannot_open_a_transaction_that_nobody_ends(world: Served) -> None:  # KAFKA-14561, 14884
    stamp = opened(world, T0)
    assert world.requests.end("x", stamp, commit=False, version=4).error == "none"
    assert produce(world, stamp, T0) == "transaction_abortable"
    assert world.log(T0).last_stable_offset == world.log(T0).high_watermark


def test_an_answer_that_comes_after_the_marker_grants_nothing(world: Served) -> None:  # KAFKA-14904
    stamp = opened(world, T0)
    partition = world.partitions.get(*T0)
    guard = partition.verifications.begin(stamp.producer_id, stamp.epoch, 0)
    world.requests.end("x", stamp, commit=False, version=4)
    partition.verifications.begin(stamp.producer_id, stamp.epoch, 0)  # the next transaction asks too
    with pytest.raises(Exception, match="ended while it was being verified"):
        partition.verifications.grant(stamp.producer_id, stamp.epoch, guard)


def test_a_write_behind_one_that_is_still_being_verified_is_out_of_order(world: Served) -> None:  # KAFKA-14920
    stamp = opened(world, T0)
    partition = world.partitions.get(*T0)
    partition.verifications.begin(stamp.producer_id, stamp.epoch, 0)  # sequence 0 is on its way
    assert produce(world, stamp, sequence=1) == "out_of_order_sequence_number"
    assert produce(world, stamp, sequence=0) == "none"
    assert produce(world, stamp, sequence=1) == "none"


def test_a_write_that_comes_once_more_after_its_transaction_makes_the_next_one_no_less_in_order(world: Served) -> None:
    """It lay in a connection that its client gave up; it is refused, and nobody waits for it."""
    stamp = opened(world, T0)
    assert produce(world, stamp, sequence=0) == "none"
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
    assert produce(world, stamp, sequence=0) == "transaction_abortable"
    assert set(world.requests.add_partitions("x", stamp, [T0]).values()) == {"none"}
    assert produce(world, stamp, sequence=1) == "none"


def test_writing_adds_the_partition_in_the_newer_protocol(world: Served) -> None:
    stamp = world.requests.init("x")
    assert produce(world, stamp, T1, version=12) == "none"
    assert world.requests.states() == {"x": "Ongoing"}
    assert world.requests.verify("x", stamp, [T0, T1]) == {T0: "transaction_abortable", T1: "none"}
    assert produce(world, stamp, T0, sequence=3, version=12) == "out_of_order_sequence_number"


def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    world = Served(tmp_path, verify="false")
    stamp = world.requests.init("x")
    assert produce(world, stamp, T0) == "none"
    name = "transaction.partition.verification.enable"
    assert alter(world, "", (name, SET, "true")) == ErrorCode.none
    assert produce(world, stamp, T1) == "transaction_abortable", "switched on while the broker runs"
    assert alter(world, "1", (name, SET, "false")) == ErrorCode.none
    assert produce(world, stamp, T1) == "none"


def test_a_transactional_request_comes_from_one_producer(world: Served) -> None:
    # A11
    stamp = opened(world, T0, T1)
    entity = shape(0, 11)

    def data(number: int, producer_id: int) -> Any:
        records = build_batch(
            [(1_700_000_000_000, None, b"v", ())],
            producer_id=producer_id,
            producer_epoch=stamp.epoch,
            base_sequence=0,
            transactional=True,
        )
        return entity.topic_data.partition_data.make(index=number, records=records)

    topic = entity.topic_data.make(name="t", partition_data=(data(0, stamp.producer_id), data(1, 999)))
    answer = world.call(
        0, 11, entity.make(transactional_id="x", acks=-1, timeout=timedelta(seconds=1), topic_data=(topic,))
    )
    codes = [one.error_code for one in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.invalid_producer_id_mapping] * 2


# Crafted writes.
def test_the_transactional_flag_is_no_way_around_access_control(world: Served) -> None:  # CVE-2018-17196
    # A11
    stamp = opened(world, T0)
    for transactional_id in (None, "x"):
        world.authoriser.denied = {(Action.WRITE, "x")}
        said = world.requests.produce(transactional_id, stamp, *T0, [b"v"], sequence=0, version=11)
        assert said[0] == "transactional_id_authorization_failed"
    assert world.log(T0).end_offset == 0


def test_a_foreign_transactional_id_writes_nothing(world: Served) -> None:
    # A11
    stamp = opened(world, T0)
    other = world.requests.init("other")
    said = world.requests.produce("other", stamp, *T0, [b"v"], sequence=0, version=11)
    assert said[0] == "invalid_producer_id_mapping"
    assert (
        world.requests.produce("nobody", other, *T0, [b"v"], sequence=0, version=12)[0] == "invalid_producer_id_mapping"
    )
    assert world.log(T0).end_offset == 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_clients_write_no_internal_topics_in_transactions_either(world: Served, topic: str) -> None:
    # A11
    stamp = opened(world, T0)
    assert world.requests.produce("x", stamp, topic, 0, [b"v"], sequence=0, version=11)[0] == "invalid_topic_exception"
    assert world.requests.add_partitions("x", stamp, [(topic, 0)]) == {(topic, 0): "topic_authorization_failed"}


def test_markers_are_for_brokers_and_operators(world: Served) -> None:  # A10
    stamp = opened(world, T0)
    assert produce(world, stamp) == "none"
    world.authoriser.denied = {(Action.ALTER, "kafka-cluster"), (Action.CLUSTER_ACTION, "kafka-cluster")}
    assert world.requests.write_marker(stamp, T0, commit=True) == "cluster_authorization_failed"
    world.authoriser.denied = {(Action.CLUSTER_ACTION, "kafka-cluster")}
    assert world.requests.write_marker(stamp, T0, commit=True) == "none"


def test_only_brokers_ask_about_many_transactions(world: Served) -> None:
    # A10
    world.authoriser.denied = {(Action.CLUSTER_ACTION, "kafka-cluster")}
    entity = shape(24, 5)
    answer = world.call(24, 5, entity.make(transactions=()))
    assert answer.error_code == ErrorCode.cluster_authorization_failed


# Adding.
def test_one_partition_that_is_refused_keeps_all_of_them_out(world: Served) -> None:
    stamp = world.requests.init("x")
    said = world.requests.add_partitions("x", stamp, [T0, ("missing", 0)])
    assert said == {T0: "operation_not_attempted", ("missing", 0): "unknown_topic_or_partition"}
    assert world.requests.states() == {"x": "Empty"}


def test_many_transactions_are_asked_about_at_once(world: Served) -> None:
    first, second = opened(world, T0), world.requests.init("y")
    entity = shape(24, 5)

    def one(name: str, stamp: Stamp, *, verify_only: bool) -> Any:
        topics = (entity.transactions.topics.make(name="t", partitions=(0,)),)
        return entity.transactions.make(
            transactional_id=name,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.epoch,
            verify_only=verify_only,
            topics=topics,
        )

    asked = (one("x", first, verify_only=True), one("y", second, verify_only=False), one("y", second, verify_only=True))
    answer = world.call(24, 5, entity.make(transactions=asked))
    codes = {
        result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    }
    assert codes == {"x": ErrorCode.none, "y": ErrorCode.none}


@pytest.mark.parametrize(("version", "error"), [(1, "invalid_producer_epoch"), (2, "producer_fenced")])
def test_older_clients_are_told_of_a_fence_in_their_words(world: Served, version: int, error: str) -> None:
    stamp = opened(world)
    late = stamp._replace(epoch=stamp.epoch + 1)
    assert world.requests.end("x", late, commit=True, version=version).error == error
    assert world.requests.add_partitions("x", late, [T0], version=version) == {T0: error}
    assert world.requests.add_offsets("x", late, "g", version=version) == error
    assert world.requests.init("x", producer_id=999, epoch=1, version=4).error == "producer_fenced"
    assert world.requests.init("x", producer_id=999, epoch=1, version=3).error == "invalid_producer_epoch"


def test_an_empty_transactional_id_is_no_request(world: Served) -> None:
    nobody = Stamp("none", 1, 0)
    assert world.requests.init("").error == "invalid_request"
    assert world.requests.end("", nobody, commit=True, version=4).error == "invalid_request"
    assert world.requests.add_partitions("", nobody, [T0]) == {T0: "invalid_request"}
    assert world.requests.add_offsets("", nobody, "g") == "invalid_request"
    assert world.requests.init("x", producer_id=5, epoch=-1).error == "invalid_request"


# Markers.
def test_a_deleted_topic_does_not_keep_a_transaction_from_its_end(world: Served) -> None:
    # KAFKA-5610, 6052, 5202
    world.create_topic("gone", 1)
    stamp = opened(world, T0, ("gone", 0))
    world.services.topics.delete(world.image.topics["gone"], lambda error: None)
    world.loop.turn()
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
    assert world.requests.states() == {"x": "CompleteCommit"}
    assert world.requests.write_marker(stamp, ("gone", 0), commit=True) == "unknown_topic_or_partition"


def test_a_marker_that_cannot_be_written_is_tried_again_until_it_stands(
    world: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # KAFKA-10080
    stamp = opened(world, T0, T1)
    assert produce(world, stamp, T0) == "none"
    refusals = 3
    written: list[TopicPartition] = []
    write = world.services.markers.write

    def refuse(partition: TopicPartition, marker: Marker, then: Any) -> None:
        nonlocal refusals
        if partition == T1 and refusals:
            refusals -= 1
            then(NotLeaderOrFollowerError("not yet"))
            return
        written.append(partition)
        write(partition, marker, then)

    monkeypatch.setattr(world.services.markers, "write", refuse)
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
    assert world.requests.states() == {"x": "PrepareCommit"}
    assert world.requests.init("x").error == "concurrent_transactions"
    world.loop.advance(1_000)
    assert world.requests.states() == {"x": "CompleteCommit"}
    assert written == [T0, T1], "each marker once"


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_that_knows_a_newer_epoch_does_not_keep_a_transaction_from_its_end(
    world: Served, commit: bool
) -> None:
    stamp = opened(world, T0, T1)
    assert produce(world, stamp, T0) == "none"
    newer = stamp._replace(epoch=stamp.epoch + 1)
    assert world.requests.write_marker(newer, T0, commit=False) == "none"  # an operator ended it there
    assert world.requests.end("x", stamp, commit=commit, version=4).error == "none"
    world.loop.advance(1_000)
    assert world.requests.states() == {"x": "CompleteCommit" if commit else "CompleteAbort"}
    assert (world.log(T0).end_offset, world.log(T1).end_offset) == (2, 1)


def test_a_completion_that_cannot_be_written_is_tried_again_until_it_stands(
    world: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = opened(world, T0)
    assert produce(world, stamp, T0) == "none"
    coordinators = world.partitions.get("__transaction_state", 0)
    replicas, min_isr = coordinators.replicas, coordinators.min_isr
    write = world.services.markers.write

    def write_and_lose_a_replica(partition: TopicPartition, marker: Marker, then: Any) -> None:
        coordinators.replicas, coordinators.min_isr = (1, 2), 2
        write(partition, marker, then)

    monkeypatch.setattr(world.services.markers, "write", write_and_lose_a_replica)
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
    world.loop.advance(1_000)
    assert world.requests.states() == {"x": "PrepareCommit"}
    assert world.log(T0).last_stable_offset == 2, "what is decided is visible meanwhile"
    assert world.requests.init("x").error == "concurrent_transactions"
    coordinators.replicas, coordinators.min_isr = replicas, min_isr
    world.loop.advance(1_000)
    assert world.requests.states() == {"x": "CompleteCommit"}
    assert world.log(T0).end_offset == 2, "one marker"


def test_a_marker_of_the_newer_protocol_that_comes_twice_ends_no_later_transaction(world: Served) -> None:
    first = world.requests.init("x")
    assert produce(world, first, version=12) == "none"
    second = world.requests.end("x", first, commit=True, version=5)
    assert produce(world, second, version=12) == "none"
    before = world.log(T0).end_offset
    said = world.requests.write_marker(second, T0, commit=True, version=2, transaction_version=2, coordinator_epoch=9)
    assert said == "none"
    assert world.log(T0).end_offset == before
    assert world.log(T0).last_stable_offset < before


def test_a_marker_of_an_older_coordinator_is_refused(world: Served) -> None:
    stamp = opened(world)
    assert produce(world, stamp) == "none"
    assert world.requests.write_marker(stamp, T0, commit=True, coordinator_epoch=5) == "none"
    assert world.requests.write_marker(stamp, T0, commit=True, coordinator_epoch=4) == "transaction_coordinator_fenced"


@pytest.mark.parametrize("nobody", [Stamp("none", -1, -1), Stamp("none", -1, 0), Stamp("none", 1, -1)])
def test_a_marker_that_names_no_producer_is_not_written(world: Served, nobody: Stamp) -> None:
    assert world.requests.write_marker(nobody, T0, commit=True) == "invalid_request"
    assert world.log(T0).end_offset == 0


# Readers.
def test_who_reads_committed_records_is_told_what_was_aborted_and_sees_no_further_than_what_is_decided(
    world: Served,
) -> None:
    # KAFKA-9807, 5376: also where the answer had to wait; 5522: ListOffsets too.
    waiting = fetch(world, {T0: 0}, version=11, wait_ms=60_000, isolation=1)
    stamp = opened(world, T0)
    assert produce(world, stamp) == "none"
    assert not waiting.is_there, "what is open wakes nobody"
    assert only(fetch(world, {T0: 0}, version=11)).aborted_transactions is None
    nothing_yet = only(fetch(world, {T0: 0}, version=11, isolation=1))
    assert (nothing_yet.records, nothing_yet.high_watermark, nothing_yet.last_stable_offset) == (b"", 1, 0)
    assert [world.requests.end_offset(*T0, committed=committed) for committed in (False, True)] == [1, 0]
    assert world.requests.end("x", stamp, commit=False, version=4).error == "none"
    world.loop.turn()
    for answer in (waiting, fetch(world, {T0: 0}, version=11, isolation=1)):
        found = only(answer)
        assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [(stamp.producer_id, 0)]
        assert (found.high_watermark, found.last_stable_offset) == (2, 2)
    assert world.requests.end_offset(*T0, committed=True) == 2


# Answers.
def test_an_answer_leaves_when_its_record_cannot_be_lost_any_more(tmp_path: Path) -> None:
    """Here that takes a flush: the high watermark waits for it."""
    world = Served(tmp_path, flush_after=1)
    stamp = opened(world, T0)
    partition = world.partitions.get("__transaction_state", 0)
    nothing = {"transactional_id": "x", "producer_id": stamp.producer_id, "producer_epoch": stamp.epoch}
    answers = [
        world.send(
            22, 4, transactional_id="y", transaction_timeout=timedelta(seconds=1), producer_id=-1, producer_epoch=-1
        ),
        world.send(25, 3, **nothing, group_id="g"),
    ]
    assert partition.log.high_watermark < partition.log.end_offset
    assert not any(answer.is_there for answer in answers)
    world.loop.turn()
    assert [answer.read().error_code for answer in answers] == [ErrorCode.none] * 2
    ended = world.send(26, 3, **nothing, committed=True)
    assert not ended.is_there
    assert world.log(T0).end_offset == 0, "no marker before its end is decided for good"
    world.loop.turn()
    assert ended.read().error_code == ErrorCode.none
    assert world.log(T0).end_offset == 1


def test_a_step_that_is_under_way_when_the_coordinator_moves_is_not_answered_by_the_old_one(tmp_path: Path) -> None:
    world = Served(tmp_path, flush_after=1)
    stamp = opened(world, T0)
    assert produce(world, stamp) == "none"
    ended = world.send(
        26, 3, transactional_id="x", producer_id=stamp.producer_id, producer_epoch=stamp.epoch, committed=True
    )
    partition = world.partitions.get("__transaction_state", 0)
    partition.leader_epoch += 1
    world.transactions.follow({"__transaction_state"})
    world.loop.turn()
    assert ended.read().error_code == ErrorCode.not_coordinator
    assert world.requests.states() == {"x": "CompleteCommit"}, "the next one finds it decided, and finishes it"
    assert world.log(T0).end_offset == 2, "one marker"
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
