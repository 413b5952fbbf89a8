"""Transactions of every client against one real `penstock serve`: commit, abort, a fenced twin, a timeout, offsets, a chain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.compat.test_groups import create, fill
from tests.compat.test_transactions import QUICK, read
from tests.support.client_programs import CLIENTS, ClientFailed, ClientProgram
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker

TRANSACTIONAL = CLIENTS[1:]
"""librdkafka has tests of its own, in `test_transactions`."""
LONG_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("transact"), **QUICK) as broker:
        yield broker
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def client(request: pytest.FixtureRequest, broker: ServedBroker) -> Iterator[ClientProgram]:
    with ClientProgram(request.param, broker.bootstrap_servers) as client:
        yield client


def committed_offset(servers: str, group: str, topic: str) -> int:
    probe = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        offset: int = probe.committed([TopicPartition(topic, 0)], timeout=30)[0].offset
        return offset
    finally:
        probe.close()


def test_what_a_client_commits_is_seen_and_what_it_aborts_is_not(broker: ServedBroker, client: ClientProgram) -> None:
    topic = f"{client.name}-ends"
    create(broker.bootstrap_servers, topic, 1)
    client.do("init", name="a", id=topic, timeout_ms=LONG_MS)
    for number in range(4):
        client.do("begin", name="a")
        client.do("send", name="a", topic=topic, value=f"{number} first")
        client.do("send", name="a", topic=topic, value=f"{number} second")
        client.do("abort" if number % 2 else "commit", name="a")
    kept = [b"0 first", b"0 second", b"2 first", b"2 second"]
    assert read(broker.bootstrap_servers, topic, 1) == [kept]
    assert len(read(broker.bootstrap_servers, topic, 1, "read_uncommitted")[0]) == 8
    own = client.do("read", topics=[topic], partitions=1, count=4, committed=True)
    assert [one[4].encode() for one in own] == kept


def test_a_twin_fences_the_first(broker: ServedBroker, client: ClientProgram) -> None:
    topic = f"{client.name}-fenced"
    create(broker.bootstrap_servers, topic, 1)
    client.do("init", name="first", id=topic, timeout_ms=LONG_MS)
    client.do("begin", name="first")
    client.do("send", name="first", topic=topic, value="of the first")
    client.do("init", name="twin", id=topic, timeout_ms=LONG_MS)
    client.do("begin", name="twin")  # kafkajs asks for its epoch only now
    with pytest.raises(ClientFailed, match=r"(?i)fenced|epoch"):
        client.do("commit", name="first")
    client.do("send", name="twin", topic=topic, value="of the twin")
    client.do("commit", name="twin")
    assert read(broker.bootstrap_servers, topic, 1) == [[b"of the twin"]]


def test_a_transaction_past_its_time_is_aborted(broker: ServedBroker, client: ClientProgram) -> None:
    topic = f"{client.name}-late"
    create(broker.bootstrap_servers, topic, 1)
    client.do("init", name="late", id=topic, timeout_ms=1_000)
    client.do("begin", name="late")
    client.do("send", name="late", topic=topic, value="late")

    def is_aborted() -> bool:
        # The marker is the second offset.
        probe = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "probe"} | {"isolation.level": "read_committed"}
        )
        try:
            return probe.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1] == 2
        finally:
            probe.close()

    wait_until(is_aborted, seconds=60, what="the broker aborts it")
    assert read(broker.bootstrap_servers, topic, 1) == [[]]
    with pytest.raises(ClientFailed):
        client.do("commit", name="late")


# franz-go sends offsets only from its group session, which the chain below uses.
@pytest.mark.parametrize("client", [name for name in TRANSACTIONAL if name != "franz"], indirect=True)
def test_offsets_count_only_when_their_transaction_is_committed(broker: ServedBroker, client: ClientProgram) -> None:
    topic, group = f"{client.name}-offsets", f"{client.name}-group"
    create(broker.bootstrap_servers, topic, 1)
    client.do("init", name="offsets", id=topic, timeout_ms=LONG_MS)
    for offset, end, counts in ((5, "commit", 5), (7, "abort", 5), (9, "commit", 9)):
        client.do("begin", name="offsets")
        client.do("send", name="offsets", topic=topic, value=str(offset))
        client.do("offsets", name="offsets", group=group, topic=topic, offset=offset)
        client.do(end, name="offsets")
        assert committed_offset(broker.bootstrap_servers, group, topic) == counts


def test_a_chain_copies_each_record_once(broker: ServedBroker, client: ClientProgram) -> None:
    source, target, group = (f"{client.name}-chain-{part}" for part in ("source", "target", "group"))
    create(broker.bootstrap_servers, source, 1)
    create(broker.bootstrap_servers, target, 1)
    fill(broker.bootstrap_servers, source, 20, 1)
    if client.name == "franz":
        client.do("chain", id=group, group=group, source=source, target=target, count=20)
    else:
        client.do("init", name="chain", id=group, timeout_ms=LONG_MS)
        records = client.do("read", topics=[source], partitions=1, count=20)
        at = 0
        for turn in range(6):  # every third is aborted and done again
            client.do("begin", name="chain")
            for record in records[at : at + 5]:
                client.do("send", name="chain", topic=target, value=record[4])
            client.do("offsets", name="chain", group=group, topic=source, offset=min(at + 5, 20))
            client.do("abort" if turn % 3 == 1 else "commit", name="chain")
            at = committed_offset(broker.bootstrap_servers, group, source)
    assert committed_offset(broker.bootstrap_servers, group, source) == 20
    assert read(broker.bootstrap_servers, target, 1) == [[b"%d" % number for number in range(20)]]
