"""Batches go ahead of their answers, five at most; after an error it is known what is not acknowledged, in order."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest
from tests.unit.client.scripted_broker import PRODUCE, ScriptedBroker, still_time

from penstock.base.ids import TopicPartition
from penstock.client.admin import create_topic
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.errors import UnreachableError
from penstock.client.produce_window import IN_FLIGHT_MAX, ProduceWindow
from penstock.records.build import build_batch
from penstock.testing import Broker

PARTITION = TopicPartition("t", 0)


class Batch(NamedTuple):
    partition: TopicPartition
    data: bytes


def batch(number: int) -> Batch:
    return Batch(
        PARTITION, build_batch([(0, None, b"%d" % number, ())], producer_id=7, producer_epoch=0, base_sequence=number)
    )


def test_as_many_batches_as_allowed_are_sent_before_the_first_answer() -> None:
    may_answer = threading.Event()

    def never_answers(_version: int, _request: Any) -> None:
        may_answer.wait(60)  # and then the connection closes

    with ScriptedBroker({PRODUCE: never_answers}) as broker, Cluster(broker.config(), still_time()) as cluster:
        window = ProduceWindow(cluster, transactional_id=None)
        batches = [batch(number) for number in range(IN_FLIGHT_MAX)]
        for one in batches:
            window.send(one)  # would wait for ever if it waited for an answer
        may_answer.set()
        with pytest.raises(UnreachableError):
            window.send(batch(IN_FLIGHT_MAX))
        left = window.abandon()
    assert left[:-1] == batches
    assert len(left) == IN_FLIGHT_MAX + 1


def test_after_a_flush_everything_is_acknowledged_and_a_lost_answer_leaves_its_batch() -> None:
    with Broker() as broker, Cluster(client_config({"bootstrap.servers": broker.bootstrap_servers})) as cluster:
        create_topic(cluster, "t", partitions=1)
        window = ProduceWindow(cluster, transactional_id=None)
        for number in range(20):
            window.send(batch(number))
        window.flush()
        assert window.abandon() == []
        broker.faults.lose_answer("Produce")
        last = batch(20)
        window.send(last)
        with pytest.raises(UnreachableError):
            window.flush()
        assert window.abandon() == [last]
