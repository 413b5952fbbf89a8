"""Where no log can be trusted, the longest of all members leads, once all of them are back."""

from __future__ import annotations

from tests.unit.controller.world import KEY, broker, make_cluster, only, state

from penstock.base.ids import TopicPartition
from penstock.controller.brokers import decide_leaders
from penstock.controller.cluster import Cluster
from penstock.controller.recovery import LogEnd, decide_longest, find_stuck
from penstock.metadata.image import PartitionImage
from penstock.metadata.store import Committed, SetData, Stat, Transaction


def lost(*ids: int, partition: PartitionImage | None = None) -> Cluster:
    """Brokers that all came back with logs which may have lost something."""
    found = state(leader=-1, isr=(1, 2), eligible=(3,)) if partition is None else partition
    return make_cluster(*(broker(one, generation="new") for one in ids), partitions={0: found})


def test_everybody_is_waited_for() -> None:
    assert find_stuck(lost(1, 2)) == {}
    assert find_stuck(lost(1, 2, 3)) == {KEY: (1, 2, 3)}
    assert decide_longest(lost(1, 2), {KEY: {1: LogEnd(1, 1), 2: LogEnd(1, 1)}}) == []


def test_after_long_enough_the_longest_log_of_those_who_are_there_leads() -> None:
    assert find_stuck(lost(1, 2), {KEY}) == {KEY: (1, 2)}
    ends = {KEY: {1: LogEnd(5, 9), 2: LogEnd(5, 10)}}
    assert only(decide_longest(lost(1, 2), ends, {KEY})).leader == 2
    bystander = lost(4, partition=state(leader=-1, isr=(1, 2), replicas=(1, 2, 4)))
    assert find_stuck(bystander, {KEY}) == {}, "who was no member never had all that was acknowledged"


def test_a_partition_with_a_leader_is_not_stuck() -> None:
    assert find_stuck(lost(1, 2, 3, partition=state(leader=1))) == {}


def test_the_newer_epoch_counts_for_more_than_the_larger_offset() -> None:
    ends = {KEY: {1: LogEnd(4, 100), 2: LogEnd(5, 10), 3: LogEnd(5, 9)}}
    written = only(decide_longest(lost(1, 2, 3), ends))
    assert (written.leader, written.isr) == (2, (2,))


def test_equal_logs_are_led_in_replica_order() -> None:
    ends = {KEY: dict.fromkeys((1, 2, 3), LogEnd(5, 10))}
    assert only(decide_longest(lost(1, 2, 3), ends)).leader == 1


def test_who_did_not_say_is_asked_again() -> None:
    assert decide_longest(lost(1, 2, 3), {KEY: {1: LogEnd(5, 10), 2: LogEnd(5, 10)}}) == []


def test_whoever_was_elected_is_trusted_from_then_on() -> None:
    """Or the next look would elect again, for ever."""
    for cluster, ends in (
        (lost(1, 2, 3), {KEY: dict.fromkeys((1, 2, 3), LogEnd(5, 10))}),
        (lost(1, partition=state(leader=-1, isr=(1,), replicas=(1,))), None),
    ):
        operations = decide_leaders(cluster, [KEY]) if ends is None else decide_longest(cluster, ends)
        (operation,) = operations
        assert isinstance(operation, SetData)
        stat = Stat(
            created_zxid=1,
            modified_zxid=2,
            children_zxid=1,
            created_ms=0,
            modified_ms=0,
            version=4,
            children_version=0,
            ephemeral_owner=0,
            data_length=0,
            children=0,
        )
        transaction = Transaction(operations=(operation,))
        cluster.image.apply(Committed(token=1, transaction=transaction, results=(stat,)))
        partition = cluster.partition(TopicPartition("t", 0))
        assert partition is not None
        assert partition.leader == 1
        assert decide_leaders(cluster, [KEY]) == []
        assert find_stuck(cluster) == {}
