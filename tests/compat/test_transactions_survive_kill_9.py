"""Apache's copiers in a chain, some of their transactions aborted by chance, the broker killed with -9 again and again: the last
topic holds every record of the first exactly once, in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.compat.test_groups import create, fill
from tests.compat.test_transactions import QUICK, TOOLS, read
from tests.support import judges
from tests.support.kafka_jvm import QUICK_JVM, java_command
from tests.support.processes import Child, free_port, wait_until
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import TransactionRequests, connection_to

from penstock.client.errors import ClientError

TOPICS = ("one", "two", "three", "four")


class Copier:
    """One stage of the chain. It is started again where it gave up."""

    def __init__(self, version: str, servers: str, source: str, target: str, output: Path) -> None:
        self._output = output
        self._command = [
            *java_command(version, f"{TOOLS}.TransactionalMessageCopier", flags=QUICK_JVM, heap_mb=128),
            *("--broker-list", servers, "--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--consumer-group", f"{source}-group", "--transaction-size", "15", "--transaction-timeout", "10000"),
            *("--transactional-id", f"{source}-copier", "--group-mode", "--use-group-metadata"),
            "--enable-random-aborts",
        ]
        self._child = self._start()

    def _start(self) -> Child:
        return Child(self._command, output=self._output)

    def keep_running(self) -> None:
        if not self._child.is_alive():
            self._child.kill9()
            self._child = self._start()

    def stop(self) -> None:
        self._child.kill9()


def end_offset(servers: str, topic: str) -> int:
    """The last stable offset; -1 while the broker does not answer."""
    try:
        connection = connection_to(servers)
        try:
            return TransactionRequests(connection.call).end_offset(topic, 0, committed=True)
        finally:
            connection.close()
    except ClientError:
        return -1


def run_chain(directory: Path, version: str, count: int, kills: int) -> None:
    directory.mkdir()
    with ExitStack() as stack:
        broker = ServedBroker(directory, **QUICK)
        broker.port = free_port()
        stack.enter_context(broker)
        servers = broker.bootstrap_servers
        for topic in TOPICS:
            create(servers, topic, 1)
        fill(servers, "one", count, 1)
        copiers = [
            Copier(version, servers, source, target, directory / f"{source}.log") for source, target in pairwise(TOPICS)
        ]
        for copier in copiers:
            stack.callback(copier.stop)
        for kill in range(kills):
            _wait_for_progress(servers, copiers, (kill + 1) * 3 * count // (kills + 1))
            broker.kill9()
            broker.start()

        def is_done() -> bool:
            for copier in copiers:
                copier.keep_running()
            return end_offset(servers, "four") >= count and len(read(servers, "four", 1)[0]) >= count

        wait_until(is_done, seconds=240, what="the last topic is full")
        for copier in copiers:
            copier.stop()
        assert read(servers, "four", 1) == [[b"%d" % number for number in range(count)]]
        assert broker.stop() == 0
    assert "Traceback" not in broker.output


def _wait_for_progress(servers: str, copiers: Sequence[Copier], records: int) -> None:
    """Until the stages together have written this many records, markers counted too."""

    def moved() -> bool:
        for copier in copiers:
            copier.keep_running()
        return sum(end_offset(servers, topic) for topic in TOPICS[1:]) >= records

    wait_until(moved, seconds=240, what=f"the chain reaches {records} records")


def test_a_chain_of_copiers_is_exact_through_kills(tmp_path: Path) -> None:
    judges.require("kafka-4.3")
    run_chain(tmp_path / "run", "4.3", 300, 4)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(20))
def test_twenty_chains_are_exact_through_kills(tmp_path: Path, number: int) -> None:
    version = ("3.9", "4.3")[number % 2]
    judges.require(f"kafka-{version}")
    run_chain(tmp_path / "run", version, 1_000, 12)
