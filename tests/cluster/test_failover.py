"""Three real brokers and a real ZooKeeper, harmed under load: nothing acknowledged is lost, doubled or moved."""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from tests.support.cluster_load import (
    FINAL_READER,
    QUICK_TO_NOTICE,
    WAIT_SECONDS,
    Load,
    leader_of,
    look,
    make_topic,
    read_everything,
    wait_for_equal_replicas,
    wait_for_isr,
)
from tests.support.history import History
from tests.support.processes import wait_until

from penstock.testing import Cluster
from penstock.testing.network import STORE


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(**QUICK_TO_NOTICE, replica_lag_time_max_ms=3_000) as cluster:
        yield cluster


class Wound(NamedTuple):
    is_felt: Callable[[], bool]
    """Whether the others have taken notice: a wound that heals before that tries nothing."""
    mend: Callable[[], object]


def _led_elsewhere(cluster: Cluster, topic: str, leader: int) -> Callable[[], bool]:
    return lambda: leader_of(cluster, topic) != leader


def kill_the_leader(cluster: Cluster, topic: str) -> Wound:
    leader = leader_of(cluster, topic)
    cluster.kill(leader)
    return Wound(_led_elsewhere(cluster, topic, leader), lambda: cluster.start_broker(leader))


def stop_the_leader(cluster: Cluster, topic: str) -> Wound:
    leader = leader_of(cluster, topic)
    cluster.stop_broker(leader)
    return Wound(_led_elsewhere(cluster, topic, leader), lambda: cluster.start_broker(leader))


def pause_the_leader(cluster: Cluster, topic: str) -> Wound:
    leader = leader_of(cluster, topic)
    cluster.pause(leader)
    return Wound(_led_elsewhere(cluster, topic, leader), lambda: cluster.resume(leader))


def partition_the_leader(cluster: Cluster, topic: str) -> Wound:
    leader = leader_of(cluster, topic)
    cluster.partition(leader)
    return Wound(_led_elsewhere(cluster, topic, leader), cluster.heal)


def cut_the_leader_from_zookeeper(cluster: Cluster, topic: str) -> Wound:
    leader = leader_of(cluster, topic)
    cluster.cut({(leader, STORE)})
    return Wound(_led_elsewhere(cluster, topic, leader), cluster.heal)


def cut_a_follower_from_the_leader(cluster: Cluster, topic: str) -> Wound:
    leader = leader_of(cluster, topic)
    follower = leader % 3 + 1
    cluster.cut({(follower, leader)})
    return Wound(lambda: follower not in look(cluster, topic)[0].isrs, cluster.heal)


HARMS = [
    kill_the_leader,
    pytest.param(stop_the_leader, marks=pytest.mark.long),
    pytest.param(pause_the_leader, marks=pytest.mark.long),
    pytest.param(partition_the_leader, marks=pytest.mark.long),
    pytest.param(cut_the_leader_from_zookeeper, marks=pytest.mark.long),
    pytest.param(cut_a_follower_from_the_leader, marks=pytest.mark.long),
]


@pytest.mark.parametrize("harm", HARMS)
def test_nothing_acknowledged_is_lost(cluster: Cluster, harm: Callable[[Cluster, str], Wound]) -> None:
    topic = harm.__name__.replace("_", "-")
    make_topic(cluster, topic)
    history = History()
    with Load(cluster, topic, history) as load:
        load.wait_for_more()
        wound = harm(cluster, topic)
        wait_until(wound.is_felt, seconds=WAIT_SECONDS, what=f"the others feel {harm.__name__}")
        load.wait_for_more(100)
        wound.mend()
        wait_for_isr(cluster, topic, 3)
        load.wait_for_more()
    read_everything(cluster, topic, history)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic)


@pytest.mark.long
def test_a_rolling_restart_under_load(cluster: Cluster) -> None:
    topic = "rolling"
    make_topic(cluster, topic)
    wait_for_isr(cluster, topic, 3)
    history = History()
    with Load(cluster, topic, history) as load, Load(cluster, topic, history, producer=2) as other:
        for broker_id in cluster.brokers:
            load.wait_for_more()
            cluster.stop_broker(broker_id)
            load.wait_for_more(100)
            other.wait_for_more(100)
            cluster.start_broker(broker_id)
            wait_for_isr(cluster, topic, 3)
        load.wait_for_more()
        other.wait_for_more()
    read_everything(cluster, topic, history)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_brokers_harmed_in_turns_under_load(cluster: Cluster, seed: int) -> None:
    """A rolling restart, with kills and cuts among the clean ends; each wound heals before the next."""
    topic = f"in-turns-{seed}"
    make_topic(cluster, topic)
    history = History()
    draw = random.Random(seed)
    harms = (kill_the_leader, stop_the_leader, pause_the_leader, partition_the_leader, cut_the_leader_from_zookeeper)
    with Load(cluster, topic, history) as load, Load(cluster, topic, history, producer=2) as other:
        for _ in range(6):
            load.wait_for_more()
            wound = draw.choice(harms)(cluster, topic)
            if draw.random() < 0.7:
                wait_until(wound.is_felt, seconds=WAIT_SECONDS, what="the others feel it")
                load.wait_for_more(100)
            wound.mend()
            wait_for_isr(cluster, topic, 3)
        load.wait_for_more()
        other.wait_for_more()
    read_everything(cluster, topic, history)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic)
