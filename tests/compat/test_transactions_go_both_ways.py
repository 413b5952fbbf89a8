"""Transactions begun at Apache Kafka go on here, over the same directory, and back: open, aborted and prepared ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.test_groups import create
from tests.compat.test_transactions import QUICK, read
from tests.support import judges
from tests.support.kafka_jvm import VERSIONS, KafkaBroker
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import Stamp, TransactionRequests, connection_to

BUMPING = {"3.9": False, "4.3": True}
NAMES = ("committed", "aborted", "open")


class Wire:
    """The requests of one life of a broker."""

    def __init__(self, servers: str) -> None:
        self._connection = connection_to(servers)
        self.requests = TransactionRequests(self._connection.call)
        for key, key_type in (("g", 0), ("open", 1)):
            wait_until(
                lambda key=key, key_type=key_type: self.requests.find_coordinator(key, key_type) == "none",  # type: ignore[misc]
                seconds=60,
                what="there is a coordinator",
            )
        wait_until(lambda: self.requests.init("probe").error == "none", seconds=60, what="the coordinator is loaded")

    def __enter__(self) -> TransactionRequests:
        return self.requests

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def write(requests: TransactionRequests, name: str, stamp: Stamp, value: bytes, sequence: int, *, bumps: bool) -> None:
    if not bumps:
        assert requests.add_partitions(name, stamp, [("t", 0)], version=3) == {("t", 0): "none"}
    version = 12 if bumps else 9
    assert requests.produce(name, stamp, "t", 0, [value], sequence=sequence, version=version)[0] == "none"


def begin(requests: TransactionRequests, life: str, *, bumps: bool) -> Stamp:
    """One transaction committed, one aborted, one left open."""
    stamps = {}
    for name in NAMES:
        stamp = stamps[name] = requests.init(name)
        assert stamp.error == "none"
        write(requests, name, stamp, f"{name} {life}".encode(), 0, bumps=bumps)
    for name, commit in (("aborted", False), ("committed", True)):
        assert requests.end(name, stamps[name], commit=commit, version=5 if bumps else 3).error == "none"
    return stamps["open"]


def finish(requests: TransactionRequests, stamp: Stamp, life: str, *, bumps: bool) -> None:
    """The open one goes on where the other broker left it."""
    assert requests.states()["open"] == "Ongoing"
    write(requests, "open", stamp, f"more {life}".encode(), 1, bumps=bumps)
    assert requests.end("open", stamp, commit=True, version=5 if bumps else 3).error == "none"


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_of_kafka_are_taken_over_and_given_back(tmp_path: Path, version: str) -> None:
    judges.require(f"kafka-{version}")
    bumps = BUMPING[version]
    kafka = KafkaBroker(version, tmp_path / "kafka")
    with kafka:
        create(kafka.bootstrap_servers, "t", 1)
        with Wire(kafka.bootstrap_servers) as requests:
            left_open = begin(requests, "kafka", bumps=bumps)
        assert read(kafka.bootstrap_servers, "t", 1) == [[b"committed kafka"]]
    properties = kafka.log_dir / "meta.properties"
    as_kafka_left_it = properties.read_bytes()
    (tmp_path / "ours").mkdir()
    broker = ServedBroker(tmp_path / "ours", **QUICK)
    broker.data = kafka.log_dir
    with broker:
        with Wire(broker.bootstrap_servers) as requests:
            finish(requests, left_open, "ours", bumps=bumps)
            left_open = begin(requests, "ours", bumps=bumps)
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    properties.write_bytes(as_kafka_left_it)  # a broker with ZooKeeper refuses version 1
    with kafka:
        with Wire(kafka.bootstrap_servers) as requests:
            finish(requests, left_open, "kafka again", bumps=bumps)

            def everything() -> bool:
                return requests.end_offset("t", 0, committed=True) == requests.end_offset("t", 0, committed=False)

            wait_until(everything, seconds=60, what="every transaction is completed")
        assert read(kafka.bootstrap_servers, "t", 1) == [
            [b"committed kafka", b"open kafka", b"more ours", b"committed ours", b"open ours", b"more kafka again"]
        ]
