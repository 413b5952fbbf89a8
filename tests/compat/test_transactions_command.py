"""`penstock transactions` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.test_groups import create
from tests.compat.test_transactions import QUICK
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import Stamp, TransactionRequests, connection_to

from penstock.cli.main import main

PLACE = ("t", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path, **QUICK) as served:
        create(served.bootstrap_servers, "t", 1)
        yield served
        assert served.stop() == 0
    assert "Traceback" not in served.output


@pytest.fixture
def requests(broker: ServedBroker) -> Iterator[TransactionRequests]:
    connection = connection_to(broker.bootstrap_servers)
    yield TransactionRequests(connection.call)
    connection.close()


def opened(requests: TransactionRequests, name: str = "x") -> Stamp:
    assert requests.find_coordinator(name, 1) == "none"
    stamp = requests.init(name)
    assert requests.produce(name, stamp, *PLACE, [b"v"], sequence=0, version=12)[0] == "none"
    return stamp


class Tool:
    def __init__(self, broker: ServedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = broker.bootstrap_servers
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main(["transactions", *arguments, "--bootstrap-server", self._servers]) == code
        said = self._capsys.readouterr()
        return said.err if code and said.err else said.out


@pytest.fixture
def tool(broker: ServedBroker, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(broker, capsys)


def test_transactions_are_listed_and_described(requests: TransactionRequests, tool: Tool) -> None:
    assert tool("list") == "no transactional ids\n"
    stamp = opened(requests)
    requests.init("idle")
    assert [line.split()[0] for line in tool("list").splitlines()] == ["transactional", "idle", "x"]
    (row,) = [json.loads(line) for line in tool("list", "--state", "Ongoing", "--json").splitlines()]
    assert (row["transactional_id"], row["state"], row["producer_id"]) == ("x", "Ongoing", stamp.producer_id)
    described = json.loads(tool("describe", "x", "--json"))
    assert (described["partitions"], described["producer_epoch"]) == (["t-0"], stamp.epoch)
    idle = json.loads(tool("describe", "idle", "--json"))
    assert (idle["state"], idle["start_ms"]) == ("Empty", -1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in tool("describe", "nobody", code=1)
    assert "Nonsense is no state" in tool("list", "--state", "Nonsense", code=1)


def test_an_open_transaction_is_aborted_and_its_producer_fenced(requests: TransactionRequests, tool: Tool) -> None:
    stamp = opened(requests)
    assert "its transaction is aborted" in tool("abort", "x")
    assert requests.end_offset(*PLACE, committed=True) == 2
    assert requests.end("x", stamp, commit=True, version=5).error in ("invalid_txn_state", "producer_fenced")
    assert "no transaction was open" in tool("abort", "x")


def test_what_its_coordinator_knows_does_not_hang(requests: TransactionRequests, tool: Tool) -> None:
    opened(requests)
    assert tool("find-hanging", "--max-transaction-timeout-ms", "0") == "nothing hangs\n"
    said = tool("abort", "--topic", "t", "--partition", "0", "--start-offset", "7", code=1)
    assert "no transaction is open from offset 7 on" in said
    assert "name either" in tool("abort", code=2)


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServedBroker(tmp_path, **QUICK, transaction_partition_verification_enable="false") as broker:
        create(broker.bootstrap_servers, "t", 1)
        tool = Tool(broker, capsys)
        connection = connection_to(broker.bootstrap_servers)
        requests = TransactionRequests(connection.call)
        assert requests.find_coordinator("x", 1) == "none"
        stamp = requests.init("x")
        assert requests.produce("x", stamp, *PLACE, [b"v"], sequence=0, version=11)[0] == "none"
        found = json.loads(tool("find-hanging", "--topic", "t", "--json", code=1))
        assert (found["producer_id"], found["start_offset"]) == (stamp.producer_id, 0)
        assert requests.end_offset(*PLACE, committed=True) == 0
        assert "is aborted" in tool("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert requests.end_offset(*PLACE, committed=True) == 2
        assert tool("find-hanging") == "nothing hangs\n"
        connection.close()
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
