"""Transactions begun at Apache Kafka go on here, over the same directory, and back: open, aborted and prepared ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.compat.test_groups import create
from tests.compat.test_transactions import QUICK, read
from tests.support import judges
from tests.support.kafka_jvm import KafkaBroker
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import Stamp, TransactionRequests, connection_to

from penstock.protocol.transaction_records import (
    TransactionState,
    decode_transaction_value,
    encode_transaction_value,
)
from penstock.records import payload
from penstock.records.batch import records_slice, scan

NEVER_WRITTEN = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
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


def written_values(log_dir: Path) -> list[bytes]:
    """The values in Kafka's log of transactional ids, as their bytes."""
    values = []
    for path in sorted(log_dir.glob("__transaction_state-0/*.log")):
        data = path.read_bytes()
        for batch in scan(data).batches:
            rows = payload.columns(data, *records_slice(batch), batch.record_count)
            values += [
                data[start : start + length] for start, length in zip(rows.value_start, rows.value_length, strict=True)
            ]
    return values


def started(requests: TransactionRequests, name: str) -> Stamp | None:
    stamp = requests.init(name)
    return stamp if stamp.error == "none" else None


def at_kafka_first(kafka: KafkaBroker, *, bumps: bool) -> Stamp:
    """Kafka begins. Gives the producer of the transaction that is open."""
    with kafka:
        create(kafka.bootstrap_servers, "t", 1)
        with Wire(kafka.bootstrap_servers) as requests:
            left_open = begin(requests, "kafka", bumps=bumps)
        # Kafka answers EndTxn before the markers stand.
        committed = [[b"committed kafka"]]
        wait_until(lambda: read(kafka.bootstrap_servers, "t", 1) == committed, seconds=60, what="the markers stand")
    return left_open


def served_over(kafka: KafkaBroker, directory: Path) -> ServedBroker:
    directory.mkdir()
    broker = ServedBroker(directory, **QUICK)
    broker.data = kafka.log_dir
    return broker


def test_transactions_of_kafka_are_taken_over_and_given_back(tmp_path: Path) -> None:
    judges.require("kafka-4.3")
    kafka = KafkaBroker("4.3", tmp_path / "kafka", log_retention_ms=-1)
    left_open = at_kafka_first(kafka, bumps=True)
    values = written_values(kafka.log_dir)
    assert {decode_transaction_value(value).state for value in values} == set(TransactionState) - NEVER_WRITTEN
    assert [encode_transaction_value(decode_transaction_value(value)) for value in values] == values
    with served_over(kafka, tmp_path / "ours") as broker:
        with Wire(broker.bootstrap_servers) as requests:
            finish(requests, left_open, "ours", bumps=True)
            known = {requests.init(name).producer_id for name in NAMES}
            assert not known & {requests.init(f"new {number}").producer_id for number in range(10)}
            left_open = begin(requests, "ours", bumps=True)
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    with kafka:
        with Wire(kafka.bootstrap_servers) as requests:
            finish(requests, left_open, "kafka again", bumps=True)

            def everything() -> bool:
                return requests.end_offset("t", 0, committed=True) == requests.end_offset("t", 0, committed=False)

            wait_until(everything, seconds=60, what="every transaction is completed")
        assert read(kafka.bootstrap_servers, "t", 1) == [
            [b"committed kafka", b"open kafka", b"more ours", b"committed ours", b"open ours", b"more kafka again"]
        ]


def test_transactions_of_a_kafka_with_zookeeper_are_taken_over_and_read_there_again(tmp_path: Path) -> None:
    # Its leader epochs are ZooKeeper's, and ours pass them: what we left open, it could not end (TRANSACTION_COORDINATOR_FENCED).
    judges.require("kafka-3.9")
    kafka = KafkaBroker("3.9", tmp_path / "kafka", log_retention_ms=-1)
    left_open = at_kafka_first(kafka, bumps=False)
    properties = kafka.log_dir / "meta.properties"
    as_kafka_left_it = properties.read_bytes()
    with served_over(kafka, tmp_path / "ours") as broker:
        with Wire(broker.bootstrap_servers) as requests:
            finish(requests, left_open, "ours", bumps=False)
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    properties.write_bytes(as_kafka_left_it)  # a broker with ZooKeeper refuses version 1
    with kafka:
        with Wire(kafka.bootstrap_servers) as requests:
            assert {name: requests.states()[name] for name in NAMES} == {
                "committed": "CompleteCommit",
                "aborted": "CompleteAbort",
                "open": "CompleteCommit",
            }
            stamp = wait_until(partial(started, requests, "fresh"), seconds=60, what="there is a producer id")
            write(requests, "fresh", stamp, b"fresh", 0, bumps=False)
            assert requests.end("fresh", stamp, commit=True, version=3).error == "none"
            wait_until(
                lambda: requests.states()["fresh"] == "CompleteCommit", seconds=60, what="the transaction is completed"
            )
        assert read(kafka.bootstrap_servers, "t", 1) == [[b"committed kafka", b"open kafka", b"more ours", b"fresh"]]
