"""What people do with a cluster while it runs: configurations, more partitions, deletions, and a ZooKeeper that goes away."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.support.cluster_load import (
    FINAL_READER,
    QUICK_TO_NOTICE,
    Load,
    leader_of,
    look,
    make_topic,
    read_everything,
    wait_for_equal_replicas,
    wait_for_isr,
)
from tests.support.cluster_load import admin as client_of
from tests.support.history import History
from tests.support.processes import wait_until

from penstock.cli.main import main
from penstock.testing import Cluster

pytestmark = pytest.mark.long
WAIT_SECONDS = 120
OUTAGE_SECONDS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(**QUICK_TO_NOTICE) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return client_of(cluster)


def _refusal(cluster: Cluster, topic: str, partition: int) -> int | None:
    """The error's code of a record of 2,000 bytes; None where it is taken."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": WAIT_SECONDS * 1000, "log_level": 0}
    )
    producer.produce(topic, b"x" * 2_000, partition=partition, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(WAIT_SECONDS)
    (error,) = errors
    return None if error is None else error.code()


def wait_for_partitions(cluster: Cluster, topic: str, count: int) -> None:
    wait_until(lambda: len(look(cluster, topic)) == count, seconds=WAIT_SECONDS, what=f"{count} partitions of {topic}")


def test_every_broker_follows_a_changed_configuration(cluster: Cluster, admin: AdminClient) -> None:
    make_topic(cluster, "configured")
    wait_for_partitions(cluster, "configured", 3)
    assert {one.replicas[0] for one in look(cluster, "configured").values()} == {1, 2, 3}
    assert [_refusal(cluster, "configured", partition) for partition in range(3)] == [None] * 3
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)
    for partition in range(3):
        wait_until(
            lambda partition=partition: _refusal(cluster, "configured", partition) == KafkaError.MSG_SIZE_TOO_LARGE,  # type: ignore[misc]
            seconds=WAIT_SECONDS,
            what=f"the leader of partition {partition} refuses",
        )


def test_a_topic_grows_and_goes_on_every_broker(cluster: Cluster, admin: AdminClient) -> None:
    make_topic(cluster, "grows")
    admin.create_partitions([NewPartitions("grows", 5)])["grows"].result(WAIT_SECONDS)
    wait_for_partitions(cluster, "grows", 5)
    wait_for_isr(cluster, "grows", 3)
    directories = [broker.data / f"grows-{number}" for broker in cluster.brokers.values() for number in range(5)]
    wait_until(
        lambda: all(directory.is_dir() for directory in directories), seconds=WAIT_SECONDS, what="every log is there"
    )
    admin.delete_topics(["grows"])["grows"].result(WAIT_SECONDS)
    wait_until(
        lambda: not any(directory.exists() for directory in directories), seconds=WAIT_SECONDS, what="no log is left"
    )
    make_topic(cluster, "grows")
    wait_for_partitions(cluster, "grows", 3)  # a new topic of the same name is another one


def test_a_topic_goes_while_a_broker_is_away_and_from_that_ones_disk_when_it_is_back(cluster: Cluster) -> None:
    make_topic(cluster, "goes")
    wait_for_isr(cluster, "goes", 3)
    directories = [broker.data / f"goes-{number}" for broker in cluster.brokers.values() for number in range(3)]
    wait_until(lambda: all(one.is_dir() for one in directories), seconds=WAIT_SECONDS, what="every log is there")
    cluster.kill(3)
    wait_until(lambda: leader_of(cluster, "goes", 2) != 3, seconds=WAIT_SECONDS, what="broker 3 is taken for dead")
    admin = client_of(
        cluster
    )  # one that was there before asks for minutes for the controller it knew, which this may have been
    admin.delete_topics(["goes"])["goes"].result(WAIT_SECONDS)
    wait_until(
        lambda: "goes" not in admin.list_topics(timeout=WAIT_SECONDS).topics,
        seconds=WAIT_SECONDS,
        what="no client sees it",
    )
    wait_until(
        lambda: not any(one.exists() for one in directories[:6]), seconds=WAIT_SECONDS, what="two have no logs of it"
    )
    assert all(one.is_dir() for one in directories[6:])
    with pytest.raises(KafkaException, match="exists already, or waits for brokers to delete its logs"):
        admin.create_topics([NewTopic("goes", 1, 2)])["goes"].result(WAIT_SECONDS)
    cluster.start_broker(3)
    wait_until(lambda: not any(one.exists() for one in directories), seconds=WAIT_SECONDS, what="no log is left")


def test_without_zookeeper_produce_and_fetch_go_on_and_all_heals(
    cluster: Cluster, admin: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """For five minutes, which is longer than anybody's session."""
    topic = "no-zookeeper"
    make_topic(cluster, topic)
    wait_for_isr(cluster, topic, 3)
    history = History()
    with Load(cluster, topic, history) as load:
        load.wait_for_more()
        cluster.zookeeper.stop()
        back_again = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < back_again:
            acknowledged = load.acknowledged
            load.wait_for_more(300)
            assert read_everything(cluster, topic, History()) > acknowledged
            assert _refusal_of_a_topic(admin, "too-early").code() == KafkaError.REQUEST_TIMED_OUT
            assert main(["topics", "create", "too-early", "-b", cluster.bootstrap_servers]) == 1
            assert "there is no connection to the store for now" in capsys.readouterr().err
        cluster.zookeeper.start()
        wait_until(lambda: _is_created(admin, "late-enough"), seconds=WAIT_SECONDS, what="a topic can be made again")
        load.wait_for_more()
        leader = leader_of(cluster, topic)
        cluster.kill(leader)
        wait_until(lambda: leader_of(cluster, topic) != leader, seconds=WAIT_SECONDS, what="leaders are elected again")
        cluster.start_broker(leader)
        load.wait_for_more()
    wait_for_isr(cluster, topic, 3)
    read_everything(cluster, topic, history)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic)


def _refusal_of_a_topic(admin: AdminClient, topic: str) -> KafkaError:
    """Of the broker: it is given five seconds, and the client waits much longer."""
    asked = admin.create_topics([NewTopic(topic, 1, 3)], operation_timeout=5, request_timeout=WAIT_SECONDS)
    with pytest.raises(KafkaException) as refused:
        asked[topic].result(WAIT_SECONDS)
    error: KafkaError = refused.value.args[0]
    return error


def _is_created(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(WAIT_SECONDS)
    except KafkaException as refused:
        return bool(refused.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def test_an_old_id_on_an_empty_disk_is_no_leader_and_catches_up(cluster: Cluster) -> None:
    """The last replica standing, with another disk: what it lost it gets back from the others, never the other way."""
    topic = "empty-disk"
    make_topic(cluster, topic, partitions=1)
    history = History()
    leader = leader_of(cluster, topic)
    with Load(cluster, topic, history, partitions=1) as load:
        load.wait_for_more()
        cluster.kill(leader)
        broker = cluster.brokers[leader]
        broker.data.rename(broker.data.with_name(f"{broker.data.name}-lost"))
        cluster.start_broker(leader)
        load.wait_for_more()
        wait_for_isr(cluster, topic, 3)
    read_everything(cluster, topic, history, partitions=1)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic, partitions=1)
