"""Every client against one real `penstock serve`: what one of them writes the others read, whatever the codec; their admin
calls; groups whose members are different clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.compat.test_groups import QUICK, create
from tests.support.client_programs import CLIENTS, ClientFailed, ClientProgram
from tests.support.clients.session import value_of
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CANNOT_READ = {
    "kafkajs": {"aiokafka-lz4": "lz4js decodes a frame of cramjam to fewer bytes than went in, with no broker between"},
    "java-client": {
        "kafkajs-lz4": "lz4js says of its frames that their blocks depend on each other; Java reads no such frame"
    },
}
"""What a client cannot read because of its own codec, whoever the broker is."""
COUNT = 200
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("clients"), **QUICK) as broker:
        yield broker
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


@pytest.fixture(scope="module")
def clients(broker: ServedBroker) -> Iterator[dict[str, ClientProgram]]:
    """One process each for all tests of this module."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(ClientProgram(name, broker.bootstrap_servers)) for name in CLIENTS}


@pytest.fixture(scope="module")
def written(broker: ServedBroker, clients: dict[str, ClientProgram]) -> dict[str, str]:
    """Each topic with the name of the client that wrote it: one for every client and codec."""
    for codec in CODECS:
        for name, client in clients.items():
            create(broker.bootstrap_servers, f"{name}-{codec}", PARTITIONS)
            client.ask("write", topic=f"{name}-{codec}", codec=codec, count=COUNT, prefix=name)
        for client in clients.values():
            client.answer()
    return {f"{name}-{codec}": name for name in CLIENTS for codec in CODECS}


@pytest.mark.parametrize("reader", CLIENTS)
def test_a_client_reads_what_every_client_wrote_with_every_codec(
    clients: dict[str, ClientProgram], written: dict[str, str], reader: str
) -> None:
    topics = [topic for topic in written if topic not in CANNOT_READ.get(reader, {})]
    found = clients[reader].do("read", topics=topics, partitions=PARTITIONS, count=COUNT * len(topics))
    by_topic: dict[str, dict[str, str]] = {topic: {} for topic in topics}
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset, key, value in found:
        by_topic[topic][key] = value
        offsets.setdefault((topic, partition), []).append(offset)
    for topic in topics:
        assert by_topic[topic] == {f"key-{n}": value_of(written[topic], n) for n in range(COUNT)}, topic
    for place, numbers in offsets.items():
        assert numbers == list(range(len(numbers))), f"once and in order: {place}"


def test_the_codec_a_client_chose_is_on_disk(broker: ServedBroker, written: dict[str, str]) -> None:
    for topic in written:
        codec = topic.rpartition("-")[2]
        segments = broker.data.glob(f"{topic}-[0-9]/*.log")
        # The low three bits of a batch's attributes, which stand at its 21st byte and the next.
        found = {segment.read_bytes()[22] & 7 for segment in segments if segment.stat().st_size}
        assert found == {CODECS.index(codec)}, topic


def test_a_key_goes_to_the_same_partition_whichever_client_writes_it(
    clients: dict[str, ClientProgram], written: dict[str, str]
) -> None:
    """As in Java: murmur2 of the key. All six agree once librdkafka is told to."""
    topics = [topic for topic in written if topic.endswith("-none")]
    found = clients["java-client"].do("read", topics=topics, partitions=PARTITIONS, count=COUNT * len(topics))
    placed: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for topic, partition, _, key, _ in found:
        placed[topic][key] = partition
    assert set(placed["java-client-none"].values()) == set(range(PARTITIONS))
    for topic in topics:
        assert placed[topic] == placed["java-client-none"], topic


@pytest.mark.parametrize("name", CLIENTS[1:])
def test_a_client_administers(clients: dict[str, ClientProgram], name: str) -> None:
    client, topic = clients[name], f"administered-by-{name}"
    client.do("create", topic=topic, partitions=1)
    if name == "kafkajs":  # it tells so by `false`
        client.do("create", topic=topic, partitions=1)
    else:
        with pytest.raises(ClientFailed):
            client.do("create", topic=topic, partitions=1)
    assert client.do("describe", topic=topic) == 1
    assert topic in client.do("topics")
    client.do("alter", topic=topic, key="retention.ms", value="123456789")
    assert client.do("config", topic=topic, key="retention.ms") == "123456789"
    assert client.do("config", topic=topic, key="cleanup.policy") == "delete"
    client.do("write", topic=topic, codec="none", count=10, prefix=name)
    client.do("delete_records", topic=topic, offset=4)
    assert [one[2] for one in client.do("read", topics=[topic], partitions=1, count=6)] == [4, 5, 6, 7, 8, 9]
    group = f"{topic}-group"
    client.do("join", group=group, topic=topic)
    wait_until(lambda: len(client.do("seen")["values"]) == 6, seconds=60, what=f"{name} reads as a member")
    assert group in client.do("groups")
    assert client.do("group", group=group) == "Stable"
    client.do("leave")
    wait_until(lambda: client.do("group", group=group) == "Empty", seconds=60, what="the group is empty")
    client.do("delete", topic=topic)
    wait_until(lambda: topic not in client.do("topics"), seconds=60, what="the topic is gone")


def test_members_of_different_clients_share_a_group_as_they_come_and_go(
    broker: ServedBroker, clients: dict[str, ClientProgram]
) -> None:
    """Those which all speak of `range`; kafkajs knows only an assignor of its own."""
    members = ("java-client", "kafka-python", "franz", "aiokafka")
    create(broker.bootstrap_servers, "shared", 8)
    present: list[str] = []
    seen: set[str] = set()
    wanted: set[str] = set()

    def is_settled() -> bool:
        answers = {name: clients[name].do("seen") for name in present}
        for answer in answers.values():
            seen.update(answer["values"])
        assigned = [number for answer in answers.values() for number in answer["assigned"]]
        return (
            sorted(assigned) == list(range(8)) and all(one["assigned"] for one in answers.values()) and wanted <= seen
        )

    # Each comes; then each but the last goes.
    for turn, (name, comes) in enumerate([(one, True) for one in members] + [(one, False) for one in members[:-1]]):
        if comes:
            clients[name].do("join", group="shared", topic="shared")
            present.append(name)
        else:
            present.remove(name)
            clients[name].do("leave")
            seen.update(clients[name].do("seen")["values"])
        clients["librdkafka"].do("write", topic="shared", codec="none", count=100, prefix=f"turn-{turn}")
        wanted |= {value_of(f"turn-{turn}", number) for number in range(100)}
        wait_until(is_settled, seconds=90, what=f"{', '.join(present)} share the partitions and see all")
    clients[members[-1]].do("leave")
    assert seen == wanted
