"""Transactions over the wire, in a broker without sockets: verification, offsets, markers, operators, attacks."""

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
from penstock.protocol.group_records import OffsetKey, OffsetValue
from penstock.protocol.transaction_records import (
    TransactionState,
    TransactionValue,
    encode_transaction_key,
    encode_transaction_value,
)
from penstock.records.build import build_batch
from penstock.replication.errors import NotLeaderOrFollowerError
from penstock.replication.partition import ACKS_ALL
from penstock.storage.producer_state import Origin

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


# Offsets in transactions.
def test_offsets_in_a_transaction_are_unstable_until_it_ends(world: Served) -> None:
    stamp = world.requests.init("x")
    assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=3) == "invalid_txn_state"
    assert world.requests.add_offsets("x", stamp, "g") == "none"
    assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=3) == "none"
    assert world.requests.committed("g", T0, require_stable=True) == ("unstable_offset_commit", -1)
    assert world.requests.committed("g", T0, require_stable=False) == ("none", -1)
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
    assert world.requests.committed("g", T0, require_stable=True) == ("none", 5)


def test_what_an_aborted_transaction_committed_never_counts(world: Served) -> None:
    stamp = world.requests.init("x")
    stamp = world.requests.end("x", stamp, commit=False, version=5)
    assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=5) == "none"
    stamp = world.requests.end("x", stamp, commit=False, version=5)
    assert world.requests.committed("g", T0, require_stable=True) == ("none", -1)
    assert "g" not in world.groups.find("g").shard.groups, "a group that never was leaves nothing"


def test_a_note_that_is_too_long_leaves_nothing_pending(world: Served) -> None:  # KAFKA-16371, 15784
    stamp = world.requests.init("x")
    said = world.requests.commit_offset("x", stamp, "g", T0, 5, version=5, metadata="m" * 5000)
    assert said == "offset_metadata_too_large"
    assert world.requests.committed("g", T0, require_stable=True) == ("none", -1)


def test_the_offset_written_last_counts_whichever_transaction_ends_last(world: Served) -> None:
    first, second = world.requests.init("x"), world.requests.init("y")
    assert world.requests.commit_offset("x", first, "g", T0, 1, version=5) == "none"
    assert world.requests.commit_offset("y", second, "g", T0, 2, version=5) == "none"
    world.requests.end("y", second, commit=True, version=5)
    assert world.requests.committed("g", T0, require_stable=True)[0] == "unstable_offset_commit"
    world.requests.end("x", first, commit=True, version=5)
    assert world.requests.committed("g", T0, require_stable=True) == ("none", 2)


def test_a_plain_commit_beats_what_a_transaction_wrote_before(world: Served) -> None:
    stamp = world.requests.init("x")
    assert world.requests.commit_offset("x", stamp, "g", T0, 1, version=5) == "none"
    shard = world.groups.find("g").shard
    shard.replay(OffsetKey("g", *T0), OffsetValue(9, -1, "", 0))
    world.requests.end("x", stamp, commit=True, version=5)
    assert world.requests.committed("g", T0, require_stable=True) == ("none", 9)


def test_a_member_of_another_generation_commits_nothing_in_a_transaction(world: Served) -> None:  # KIP-447
    stamp = world.requests.init("x")
    said = world.requests.commit_offset("x", stamp, "g", T0, 1, version=5, generation=3, member_id="m")
    assert said == "illegal_generation"
    assert world.requests.committed("g", T0, require_stable=True) == ("none", -1)


def test_a_fenced_producer_commits_no_offsets(world: Served) -> None:
    stamp = world.requests.init("x")
    world.requests.init("x")
    assert world.requests.commit_offset("x", stamp, "g", T0, 1, version=5) == "invalid_producer_epoch"


@pytest.mark.parametrize("version", [3, 5])
def test_a_group_without_a_name_has_no_offsets_in_transactions(world: Served, version: int) -> None:
    stamp = opened(world, T0)
    assert world.requests.add_offsets("x", stamp, "") == "none"
    assert world.requests.commit_offset("x", stamp, "", T0, 1, version=version) == "invalid_group_id"
    assert world.log(("__consumer_offsets", 0)).end_offset == 0


def test_a_missing_partition_has_no_offset(world: Served) -> None:
    stamp = world.requests.init("x")
    said = world.requests.commit_offset("x", stamp, "g", ("t", 7), 1, version=5)
    assert said == "unknown_topic_or_partition"


@pytest.mark.parametrize("committed_before", [False, True])
@pytest.mark.parametrize("deleted", ["topic", "group", "offset"])
def test_what_is_deleted_in_the_middle_of_a_transaction_is_not_brought_back_by_its_commit(
    world: Served, deleted: str, committed_before: bool
) -> None:
    world.create_topic("gone", 1)
    stamp, place = world.requests.init("x"), ("gone", 0)
    if committed_before:
        assert world.requests.commit_offset("x", stamp, "g", place, 3, version=5) == "none"
        stamp = world.requests.end("x", stamp, commit=True, version=5)
    assert world.requests.commit_offset("x", stamp, "g", place, 5, version=5) == "none"
    assert world.requests.commit_offset("x", stamp, "g", T0, 6, version=5) == "none"
    led = world.groups.find("g")
    if deleted == "topic":
        world.services.topics.delete(world.image.topics["gone"], lambda error: None)
        world.loop.turn()
    elif deleted == "group":
        world.groups.run(led, led.shard.delete("g"))
    else:
        world.groups.run(led, led.shard.delete_offsets("g", [place])[0])
    assert world.requests.committed("g", place, require_stable=True) == ("none", -1), "nothing is under way there"
    assert world.requests.end("x", stamp, commit=True, version=5).error == "none"
    kept = -1 if deleted == "group" else 6
    for _ in ("as it stands", "as the log is read again"):
        assert world.requests.committed("g", place, require_stable=True) == ("none", -1)
        assert world.requests.committed("g", T0, require_stable=True) == ("none", kept)
        world.partitions.get("__consumer_offsets", 0).leader_epoch += 1
        world.groups.follow({"__consumer_offsets"})
        world.loop.turn()


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


# Operators.
def test_producers_of_a_partition_are_described(world: Served) -> None:
    stamp = opened(world)
    assert produce(world, stamp) == "none"
    entity = shape(61, 0)
    topic = entity.topics.make(name="t", partition_indexes=(0, 9))
    found, missing = world.call(61, 0, entity.make(topics=(topic,))).topics[0].partitions
    (one,) = found.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (stamp.producer_id, stamp.epoch, 0)
    assert one.current_txn_start_offset == 0
    assert missing.error_code == ErrorCode.unknown_topic_or_partition


def listed(world: Served, **filters: Any) -> list[str]:
    entity = shape(66, 2)
    given = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None}
    answer = world.call(66, 2, entity.make(**{**given, **filters}))
    assert answer.error_code == ErrorCode.none
    return sorted(one.transactional_id for one in answer.transaction_states)


def test_transactions_are_listed_by_state_producer_age_and_pattern(world: Served) -> None:
    stamp = opened(world)
    world.requests.init("y-1")
    assert listed(world) == ["x", "y-1"]
    assert listed(world, state_filters=("Ongoing",)) == ["x"]
    assert listed(world, producer_id_filters=(stamp.producer_id,)) == ["x"]
    world.clock.advance(1_000)
    assert listed(world, duration_filter=999, state_filters=("Ongoing",)) == ["x"]
    assert listed(world, duration_filter=1_000, state_filters=("Ongoing",)) == []
    assert listed(world, transactional_id_pattern="y-[0-9]+") == ["y-1"]
    assert listed(world, transactional_id_pattern="x|.*-.*") == ["x", "y-1"]
    assert listed(world, transactional_id_pattern="y") == []
    world.authoriser.denied = {(Action.DESCRIBE, "x")}
    assert listed(world) == ["y-1"]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "a{9}{9}{9}",
        "(a|a)*",
        r"(a)\1",
        "a*b*c*d",
        "a?" * 200,
        "[",
        "[]" * 499 + "{",
        "[^a]" * 200 + "{",
        "x" * 1_001,
        "a|" * 9,
    ],
)
def test_a_pattern_that_could_take_long_is_refused(world: Served, pattern: str) -> None:  # A20
    entity = shape(66, 2)
    answer = world.call(
        66,
        2,
        entity.make(
            state_filters=("Nonsense",), producer_id_filters=(), duration_filter=-1, transactional_id_pattern=pattern
        ),
    )
    assert answer.error_code == ErrorCode.invalid_regular_expression
    assert answer.unknown_state_filters == ("Nonsense",)


def test_the_counters_tell_how_many_are_open_for_how_long_and_how_many_were_aborted(world: Served) -> None:
    world.transactions.start()
    assert (world.transactions.open_count, world.transactions.longest_open_ms) == (0, 0)
    opened(world)
    world.loop.advance(7_000)
    assert (world.transactions.open_count, world.transactions.longest_open_ms) == (1, 7_000)
    world.loop.advance(70_000)
    assert (world.transactions.open_count, world.transactions.aborted_by_timeout) == (0, 1)


def test_ids_expire_in_batches_that_fit(world: Served) -> None:  # KAFKA-13099
    # A14
    world.transactions.start()
    names = [f"{number:05d}" + "n" * 20_000 for number in range(60)]
    for name in names:
        assert world.requests.init(name).error == "none"
    world.loop.advance(world.transactions.settings.expiration_ms + 3_600_000)
    assert world.requests.states() == {}


def test_java_clients_are_told_of_the_newer_protocol(world: Served) -> None:
    entity = shape(18, 4)
    answer = world.call(18, 4, entity.make(client_software_name="a", client_software_version="1"))
    assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [("transaction.version", 2)]
    assert answer.finalized_features_epoch >= 0
    assert [(one.min_version, one.max_version) for one in answer.supported_features] == [(0, 2)]
    older = world.call(18, 3, shape(18, 3).make(client_software_name="a", client_software_version="1"))
    assert older.supported_features == ()


def test_loading_does_not_stop_at_records_that_are_not_readable(tmp_path: Path) -> None:  # KAFKA-9065
    world = Served(tmp_path)
    assert world.requests.init("x").error == "none"
    partition = world.partitions.get("__transaction_state", 0)
    for key in (b"", b"\x00\x09zz", b"\x00\x00\x00\x01y"):
        partition.append(bytearray(build_batch([(0, key, b"\x00\x63", ())])), ACKS_ALL, Origin.COORDINATOR)
    partition.leader_epoch += 1
    world.transactions.follow({"__transaction_state"})
    world.loop.turn()
    assert world.requests.states() == {"x": "Empty"}


def test_a_producer_id_that_another_broker_gave_is_not_given_again(tmp_path: Path) -> None:
    world = Served(tmp_path)
    values = [
        TransactionValue(
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=60_000,
            state=TransactionState.EMPTY,
            partitions=(),
            last_update_ms=0,
            start_ms=-1,
            next_producer_id=next_id,
        )
        for producer_id, next_id in ((7_000, -1), (10, 9_000))
    ]
    records = [
        (0, encode_transaction_key(f"y{number}"), encode_transaction_value(value), ())
        for number, value in enumerate(values)
    ]
    partition = world.partitions.get("__transaction_state", 0)
    partition.append(bytearray(build_batch(records)), ACKS_ALL, Origin.COORDINATOR)
    partition.leader_epoch += 1
    world.transactions.follow({"__transaction_state"})
    world.loop.turn()
    assert world.requests.states() == {"y0": "Empty", "y1": "Empty"}
    assert world.requests.init("x").producer_id > 9_000
    assert world.requests.init(None).producer_id > 9_000
