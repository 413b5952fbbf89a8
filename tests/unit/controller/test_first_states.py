"""New topics of a cluster: any broker writes the topic, the controller its partitions."""

from __future__ import annotations

import uuid

from tests.unit.controller.world import TOPIC_ID, Written, make_cluster

from penstock.controller.cluster import OPERATIONS_MAX, batches
from penstock.controller.topics import (
    NewTopic,
    TopicDefaults,
    decide_create,
    decide_remove,
    decide_states,
    leave_states_to_controller,
)
from penstock.metadata import layout
from penstock.metadata.image import PartitionImage, TopicImage

DEFAULTS = TopicDefaults(partitions=1, replication_factor=1, log_values={})


def test_a_broker_writes_the_topic_and_its_configuration_whatever_it_is_called() -> None:
    for name in ("t2", "partitions", "a.partitions"):
        wanted = NewTopic(name=name, partitions=2, replication_factor=3)
        decided = decide_create(make_cluster(1, 2, 3).image, wanted, DEFAULTS, lambda: uuid.UUID(int=1))
        left = leave_states_to_controller(decided.transaction)
        assert [one.path for one in left.operations] == [layout.topic_config_path(name), layout.topic_path(name)]


def test_the_controller_writes_states_where_there_are_none() -> None:
    without = PartitionImage((1, 2), -1, -1, (), -1)
    cluster = make_cluster(2)
    operations = decide_states(cluster, TopicImage("t", TOPIC_ID, {0: without, 1: without}), ())
    parent, first, state, *_ = operations
    assert [parent.path, first.path] == ["/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"]
    assert (Written(state).leader, Written(state).isr, Written(state).leader_epoch) == (2, (2,), 0)
    assert len(operations) == 5


def test_a_grown_topic_gets_only_what_is_new() -> None:
    without = PartitionImage((1, 2), -1, -1, (), -1)
    present = PartitionImage((1, 2), 1, 0, (1, 2), 0)
    there = ["/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0", "/brokers/topics/t/partitions/0/state"]
    operations = decide_states(make_cluster(1, 2), TopicImage("t", TOPIC_ID, {0: present, 1: without}), there)
    assert [one.path for one in operations] == [
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
    ]


def test_nodes_that_another_controller_left_without_states_are_used() -> None:
    """Kafka's controller makes parents, partitions and states in three steps."""
    without = PartitionImage((1, 2), -1, -1, (), -1)
    topic = TopicImage("t", TOPIC_ID, {0: without, 1: without})
    there = ["/brokers/topics/t/partitions", "/brokers/topics/t/partitions/1"]
    assert [one.path for one in decide_states(make_cluster(1, 2), topic, there)] == [
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions/0/state",
        "/brokers/topics/t/partitions/1/state",
    ]
    assert [one.path for one in decide_remove("t", there, logs_are_gone=True).operations] == [
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions",
        "/admin/delete_topics/t",
    ]


def test_a_crash_between_two_transactions_leaves_no_partition_without_its_state() -> None:
    """Or the next controller could neither make it nor find it."""
    without = PartitionImage((1,), -1, -1, (), -1)
    topic = TopicImage("t", TOPIC_ID, dict.fromkeys(range(OPERATIONS_MAX), without))
    cluster = make_cluster(1)
    transactions = batches(cluster, decide_states(cluster, topic, ()))
    assert len(transactions) == 3
    for transaction in transactions:
        assert len(transaction.operations) <= OPERATIONS_MAX + 1
        paths = {one.path for one in transaction.operations}
        assert all((path.endswith("/state") or f"{path}/state" in paths) for path in paths if path.count("/") > 4)
