"""Who leads after brokers died, came back, lost their logs or are about to stop."""

from __future__ import annotations

import pytest
from tests.unit.controller.world import KEY, broker, make_cluster, only, state

from penstock.base.ids import TopicPartition
from penstock.controller.brokers import (
    decide_forget_eligible,
    decide_leaders,
    decide_preferred,
    decide_rebalance,
    decide_shutdown,
    keys_on,
    still_led,
)
from penstock.controller.cluster import OPERATIONS_MAX, batches
from penstock.controller.topics import decide_remove
from penstock.metadata import layout
from penstock.metadata.store import Check, Delete, SetData


def test_where_all_is_well_nothing_is_written() -> None:
    assert decide_leaders(make_cluster(1, 2, 3), [KEY]) == []


def test_a_dead_leader_is_followed_by_the_first_live_member_in_replica_order() -> None:
    cluster = make_cluster(2, 3, partitions={0: state(leader=1, isr=(3, 1, 2), replicas=(1, 2, 3))})
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.leader, written.isr, written.leader_epoch) == (2, (3, 2), 6)
    assert written.controller_epoch == 4
    assert isinstance(written.operation, SetData)
    assert written.operation.version == 3, "against the version that the controller knows"


def test_a_dead_follower_leaves_the_isr_and_the_epoch_rises() -> None:
    written = only(decide_leaders(make_cluster(1, 3), [KEY]))
    assert (written.leader, written.isr, written.leader_epoch) == (1, (1, 3), 6)


def test_a_replica_outside_the_isr_never_leads() -> None:
    cluster = make_cluster(3, partitions={0: state(leader=1, isr=(1, 2))})
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.leader, written.isr) == (-1, (1, 2)), "nobody leads, and the ISR is remembered"


def test_a_lone_member_that_died_stays_in_the_isr_and_leads_again() -> None:
    cluster = make_cluster(2, partitions={0: state(leader=1, isr=(1,), replicas=(1, 2))}, min_isr=1)
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.leader, written.isr) == (-1, (1,))
    back = make_cluster(1, 2, partitions={0: state(leader=-1, isr=(1,), replicas=(1, 2))}, min_isr=1)
    assert only(decide_leaders(back, [KEY])).leader == 1


def test_an_unclean_election_only_where_it_is_allowed() -> None:
    partitions = {0: state(leader=1, isr=(1, 2))}
    written = only(decide_leaders(make_cluster(3, partitions=partitions, unclean=True), [KEY]))
    assert (written.leader, written.isr) == (3, (3,))
    assert written.generations[3] == "g"
    asked = only(decide_leaders(make_cluster(3, partitions=partitions), [KEY], even_unclean=True))
    assert asked.leader == 3


def test_a_member_that_lost_its_logs_is_not_trusted() -> None:
    """The last replica standing: it came back on an empty disk, and leads nothing."""
    cluster = make_cluster(broker(1, generation="new"), partitions={0: state(leader=-1, isr=(1,))})
    assert decide_leaders(cluster, [KEY]) == []


def test_a_member_that_lost_its_logs_leaves_the_isr_of_a_living_leader() -> None:
    cluster = make_cluster(1, broker(2, generation="new"), 3)
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.leader, written.isr) == (1, (1, 3))
    assert written.generations == {1: "g", 3: "g"}


def test_a_leader_that_lost_its_logs_leads_no_more() -> None:
    written = only(decide_leaders(make_cluster(broker(1, generation="new"), 2, 3), [KEY]))
    assert (written.leader, written.isr) == (2, (2, 3))


def test_the_only_replica_leads_whatever_it_has_left() -> None:
    partitions = {0: state(leader=-1, isr=(1,), replicas=(1,))}
    written = only(decide_leaders(make_cluster(broker(1, generation="new"), partitions=partitions), [KEY]))
    assert written.leader == 1


def test_who_left_below_min_isr_is_eligible_with_its_generation() -> None:
    cluster = make_cluster(1, partitions={0: state(leader=1, isr=(1, 2))})
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.isr, written.eligible) == ((1,), (2,))
    assert written.generations == {1: "g", 2: "g"}


def test_an_eligible_replica_leads_where_no_member_is_left() -> None:
    partitions = {0: state(leader=1, isr=(1,), eligible=(2,))}
    written = only(decide_leaders(make_cluster(2, 3, partitions=partitions), [KEY]))
    assert (written.leader, written.isr, written.eligible) == (2, (2,), (1,))
    lost = make_cluster(broker(2, generation="new"), 3, partitions=partitions)
    assert only(decide_leaders(lost, [KEY])).leader == -1


def test_an_isr_that_is_large_enough_again_makes_nobody_eligible() -> None:
    cluster = make_cluster(1, 2, 3, partitions={0: state(leader=1, isr=(1,), eligible=(2,))})
    partition = cluster.partition(KEY)
    assert partition is not None
    assert only([cluster.with_isr(KEY, partition, (1, 3))]).eligible == ()


def test_a_lowered_min_isr_makes_nobody_eligible() -> None:
    partitions = {0: state(leader=1, isr=(1,), eligible=(2,))}
    assert decide_forget_eligible(make_cluster(1, 2, partitions=partitions), {"t", "gone"}) == []
    written = only(decide_forget_eligible(make_cluster(1, 2, partitions=partitions, min_isr=1), {"t"}))
    assert (written.leader, written.leader_epoch, written.isr, written.eligible) == (1, 5, (1,), ())
    assert written.generations == {1: "g"}


def test_a_lowered_min_isr_leaves_those_eligible_that_a_partition_without_a_leader_may_need() -> None:
    """Nothing is acknowledged meanwhile: the only member may return without what it had."""
    partitions = {0: state(leader=-1, isr=(1,), eligible=(2,))}
    assert decide_forget_eligible(make_cluster(2, 3, partitions=partitions, min_isr=1), {"t"}) == []
    falls = make_cluster(2, 3, partitions={0: state(leader=1, isr=(1,), eligible=(2,))}, min_isr=1)
    partition = falls.partition(KEY)
    assert partition is not None
    assert only([falls.becomes(KEY, partition, -1, (1,))]).eligible == (2,)
    written = only(decide_leaders(make_cluster(2, 3, partitions=partitions, min_isr=1), [KEY]))
    assert (written.leader, written.isr, written.eligible) == (2, (2,), ())


def test_a_broker_that_died_in_between_is_not_counted_on() -> None:
    written = only(decide_leaders(make_cluster(1, 2, 3), [KEY], gone={1}))
    assert (written.leader, written.isr) == (2, (2, 3))


def test_a_failed_log_directory_is_like_a_dead_broker() -> None:
    cluster = make_cluster(1, 2, 3)
    cluster.image.set_offline([KEY], 1)
    assert only(decide_leaders(cluster, [KEY])).leader == 2


def test_states_written_by_kafka_have_no_generations_and_are_trusted() -> None:
    cluster = make_cluster(2, partitions={0: state(isr=(1, 2), replicas=(1, 2), generations={})})
    assert only(decide_leaders(cluster, [KEY])).leader == 2


def test_states_written_by_kafka_whose_members_are_all_gone_have_no_leader() -> None:
    cluster = make_cluster(partitions={0: state(isr=(1,), replicas=(1,), generations={})})
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.leader, written.isr, written.generations) == (-1, (1,), {})


def test_a_topic_whose_configuration_is_not_understood_is_decided_on_by_what_is() -> None:
    """As one has it that a later version made, or Kafka."""
    cluster = make_cluster(2, 3)
    cluster.image.topic_configs["t"] = {"min.insync.replicas": "3", "of.a.later.version": "1", "segment.bytes": "few"}
    written = only(decide_leaders(cluster, [KEY]))
    assert (written.leader, written.eligible) == (2, (1,))


def test_keys_that_we_do_not_know_are_kept() -> None:
    cluster = make_cluster(2, 3, partitions={0: state(somebody_elses="key")})
    assert only(decide_leaders(cluster, [KEY])).raw["somebody_elses"] == "key"


def test_topics_that_are_going_are_left_alone() -> None:
    cluster = make_cluster(2, 3)
    cluster.image.deleting.add("t")
    assert decide_leaders(cluster, [KEY]) == []
    assert decide_preferred(cluster, [KEY]) == []


def test_the_preferred_replica_gets_its_partition_back_only_in_sync() -> None:
    away = {0: state(leader=2)}
    assert only(decide_preferred(make_cluster(1, 2, 3, partitions=away), [KEY])).leader == 1
    assert decide_preferred(make_cluster(2, 3, partitions=away), [KEY]) == []
    assert decide_preferred(make_cluster(1, 2, 3, partitions={0: state(leader=2, isr=(2, 3))}), [KEY]) == []
    assert decide_preferred(make_cluster(1, 2, 3), [KEY]) == []


@pytest.mark.parametrize(("away", "moved"), [(1, 0), (2, 2)])
def test_leaders_go_home_when_too_many_are_away(away: int, moved: int) -> None:
    partitions = {number: state(leader=2 if number < away else 1) for number in range(10)}
    assert len(decide_rebalance(make_cluster(1, 2, 3, partitions=partitions), 10)) == moved


def test_a_controlled_shutdown_moves_leaders_and_leaves_isrs() -> None:
    partitions = {0: state(leader=1), 1: state(leader=2), 2: state(leader=1, isr=(1,), eligible=())}
    cluster = make_cluster(1, 2, 3, partitions=partitions)
    cluster.shutting_down.add(1)
    first, second = (only([one]) for one in decide_shutdown(cluster, 1))
    assert (first.leader, first.isr) == (2, (2, 3))
    assert (second.leader, second.isr) == (2, (2, 3))
    assert still_led(cluster, 1) == [TopicPartition("t", 0), TopicPartition("t", 2)], "as long as nothing is confirmed"


def test_two_that_stop_do_not_hand_leaders_to_each_other() -> None:
    cluster = make_cluster(1, 2, 3)
    cluster.shutting_down.update({1, 2})
    assert only(decide_shutdown(cluster, 1)).leader == 3


@pytest.mark.parametrize("unclean", [True, False])
def test_what_only_a_broker_about_to_stop_can_lead_stays_with_it_whoever_comes(unclean: bool) -> None:
    partitions = {0: state(leader=1, isr=(1,), replicas=(1, 2))}
    cluster = make_cluster(1, 2, partitions=partitions, min_isr=1, unclean=unclean)
    cluster.shutting_down.add(1)
    assert decide_shutdown(cluster, 1) == []
    assert decide_leaders(cluster, keys_on(cluster, {2})) == []
    assert only(decide_leaders(cluster, [KEY], gone={1})).leader == (2 if unclean else -1), "until it is gone"


def test_a_broker_about_to_stop_goes_where_another_is_in_sync() -> None:
    cluster = make_cluster(1, 2, partitions={0: state(leader=1, isr=(1, 2), replicas=(1, 2))})
    cluster.shutting_down.add(1)
    assert only(decide_leaders(cluster, [KEY])).leader == 2


def test_a_new_partition_is_led_by_a_live_replica_and_has_only_live_ones_in_sync() -> None:
    cluster = make_cluster(2, 3)
    made = cluster.first_state((1, 2, 3), KEY)
    assert (made.leader, made.isr, made.leader_epoch) == (2, (2, 3), 0)
    assert make_cluster().first_state((1, 2), KEY).leader == -1


def test_every_transaction_is_fenced_by_the_controllers_epoch_and_small_enough() -> None:
    # KAFKA-6082, 1483
    cluster = make_cluster(1)
    operations = [SetData(path=layout.state_path("t", number), data=b"") for number in range(OPERATIONS_MAX + 1)]
    transactions = batches(cluster, list(operations))
    assert [len(one.operations) for one in transactions] == [OPERATIONS_MAX + 1, 2]
    assert {one.operations[0] for one in transactions} == {Check(path=layout.CONTROLLER_EPOCH, version=9)}


@pytest.mark.parametrize("extra", range(4))
def test_a_topic_goes_together_with_the_mark_that_it_goes(extra: int) -> None:
    """Whoever makes a topic of the name in between would see it deleted."""
    there = [layout.topic_path("t"), layout.topic_config_path("t"), f"{layout.topic_path('t')}/partitions"]
    there += [f"{layout.topic_path('t')}/partitions/{number}" for number in range(OPERATIONS_MAX - 5 + extra)]
    transactions = batches(make_cluster(1), decide_remove("t", there, logs_are_gone=True).operations)
    (last,) = [one for one in transactions if Delete(path=layout.topic_path("t")) in one.operations]
    assert Delete(path=layout.deletion_mark("t")) in last.operations
    assert sum(len(one.operations) - 1 for one in transactions) == len(there) + 1


def test_partitions_are_found_by_their_brokers() -> None:
    cluster = make_cluster(1, partitions={0: state(replicas=(1, 2)), 1: state(replicas=(2, 3))})
    assert keys_on(cluster, {1}) == [KEY]
    assert keys_on(cluster, {2}) == [KEY, TopicPartition("t", 1)]
