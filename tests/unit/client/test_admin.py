"""A topic is made, grown or deleted once, however slowly; where that may have happened unseen, the error says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.scripted_broker import still_time

from penstock.client import admin
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.errors import AnswerError, UnfinishedError, UnknownTopicError
from penstock.testing import Broker

CHANGES: dict[str, Callable[[Cluster], None]] = {
    "CreateTopics": lambda cluster: admin.create_topic(cluster, "t", partitions=2),
    "CreatePartitions": lambda cluster: admin.grow_topic(cluster, "t", 3),
    "DeleteTopics": lambda cluster: admin.delete_topic(cluster, "t"),
}
PARTITIONS_AFTER = {"CreateTopics": 2, "CreatePartitions": 3, "DeleteTopics": 0}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    config = client_config({"bootstrap.servers": broker.bootstrap_servers, "request.timeout.ms": "500"})
    with Cluster(config, still_time()) as made:
        yield made


def partitions(cluster: Cluster) -> int:
    found = cluster.metadata().topics.get("t")
    return 0 if found is None else len(found.partitions)


def test_what_takes_longer_than_other_answers_may_is_waited_for(broker: Broker, cluster: Cluster) -> None:
    for api, change in CHANGES.items():
        broker.faults.delay(api, 700)
        change(cluster)
        broker.faults.clear()
        assert partitions(cluster) == PARTITIONS_AFTER[api]


def test_a_request_that_got_lost_is_sent_again(broker: Broker, cluster: Cluster) -> None:
    for api, change in CHANGES.items():
        broker.faults.lose_request(api)
        change(cluster)
        assert partitions(cluster) == PARTITIONS_AFTER[api]


def test_an_error_after_an_answer_that_got_lost_says_that_it_may_be_done(broker: Broker, cluster: Cluster) -> None:
    for api in ("CreateTopics", "CreatePartitions"):
        broker.faults.lose_answer(api)
        with pytest.raises(
            AnswerError, match=r"; an earlier try may have done it, its answer got lost: the connection to "
        ):
            CHANGES[api](cluster)
        assert partitions(cluster) == PARTITIONS_AFTER[api]
        with pytest.raises(AnswerError, match=r"^((?!earlier try).)*$"):
            CHANGES[api](cluster)
    broker.faults.lose_answer("DeleteTopics")
    broker.faults.fail("DeleteTopics", "unknown_topic_or_partition")
    with pytest.raises(UnknownTopicError, match=r"^t: there is no such topic; an earlier try may have done it, "):
        CHANGES["DeleteTopics"](cluster)


def test_what_the_broker_has_not_finished_is_not_asked_for_twice(broker: Broker, cluster: Cluster) -> None:
    for api, change in CHANGES.items():
        broker.faults.fail(api, "request_timed_out")
        with pytest.raises(UnfinishedError, match=r"^t: the broker has not finished it in time; it may yet$"):
            change(cluster)
