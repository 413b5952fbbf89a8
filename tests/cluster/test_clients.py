"""Apache's client, franz-go and librdkafka through failover: what they do by themselves must be enough."""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.support.client_programs import ClientProgram
from tests.support.clients.session import value_of
from tests.support.cluster_load import QUICK_TO_NOTICE, WAIT_SECONDS, leader_of, make_topic, replica_bytes, wait_for_isr
from tests.support.processes import wait_until

from penstock.testing import Cluster

pytestmark = pytest.mark.long
COUNT = 2_000
"""In more batches than Apache's client has on their way at a time."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        **QUICK_TO_NOTICE,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
    ) as cluster:
        yield cluster


@pytest.fixture
def client(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[ClientProgram]:
    with ClientProgram(request.param, cluster.bootstrap_servers) as client:
        yield client


def _log_bytes(cluster: Cluster, topic: str, broker_id: int) -> int:
    return len(replica_bytes(cluster, topic, 0)[broker_id])


@pytest.mark.parametrize("client", ["java-client", "franz", "librdkafka"], indirect=True)
def test_what_was_on_its_way_to_a_leader_that_is_killed_is_written_once(
    cluster: Cluster, client: ClientProgram
) -> None:
    """The leader has it, the others do not, nobody was told: it must be sent again, to another, in the same order."""
    topic = f"written-by-{client.name}"
    make_topic(cluster, topic, partitions=1)
    wait_for_isr(cluster, topic, 3)
    client.do("write", topic=topic, codec="none", count=COUNT, prefix="before")
    leader = leader_of(cluster, topic)
    followers = [one for one in cluster.brokers if one != leader]
    cluster.cut({(one, leader) for one in followers})
    before = _log_bytes(cluster, topic, leader)
    client.ask("write", topic=topic, codec="none", count=COUNT, prefix="during")
    wait_until(
        lambda: _log_bytes(cluster, topic, leader) > before, seconds=WAIT_SECONDS, what="the leader has some of it"
    )
    cluster.kill(leader)
    cluster.heal()
    client.answer()
    assert leader_of(cluster, topic) != leader
    cluster.start_broker(leader)
    client.do("write", topic=topic, codec="none", count=COUNT, prefix="after")
    wait_for_isr(cluster, topic, 3)
    found = client.do("read", topics=[topic], partitions=1, count=3 * COUNT)
    expected = [value_of(prefix, number) for prefix in ("before", "during", "after") for number in range(COUNT)]
    assert [value for _, _, _, _, value in found] == expected


@pytest.mark.parametrize("client", ["java-client", "franz"], indirect=True)
def test_a_rolling_restart_costs_a_group_and_transactions_nothing(cluster: Cluster, client: ClientProgram) -> None:
    """Each broker is stopped while a transaction is open; a member of a group reads along."""
    topic = f"transacted-by-{client.name}"
    make_topic(cluster, topic, partitions=1)
    wait_for_isr(cluster, topic, 3)
    client.do("join", group=f"group-of-{client.name}", topic=topic)
    client.do("init", name="p", id=f"id-of-{client.name}", timeout_ms=60_000)
    expected = []
    for broker_id in cluster.brokers:
        send = partial(client.do, "send", name="p", topic=topic)
        client.do("begin", name="p")
        send(value=f"{broker_id} before")
        cluster.stop_broker(broker_id)
        send(value=f"{broker_id} during")
        client.do("commit", name="p")
        cluster.start_broker(broker_id)
        for internal in (topic, "__consumer_offsets", "__transaction_state"):
            wait_for_isr(cluster, internal, 3)
        expected += [f"{broker_id} before", f"{broker_id} during"]
    found = client.do("read", topics=[topic], partitions=1, count=len(expected), committed=True)
    assert [value for _, _, _, _, value in found] == expected
    wait_until(
        lambda: set(client.do("seen")["values"]) >= set(expected), seconds=WAIT_SECONDS, what="the member has read all"
    )
    client.do("leave")
