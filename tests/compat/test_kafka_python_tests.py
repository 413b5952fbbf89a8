"""kafka-python's own integration tests, from its source distribution, against a real `penstock serve`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import judges
from tests.support.processes import free_port
from tests.support.served_broker import ServedBroker
from tools.fetch_judges import ROOT, kafka_python_tests

EXCEPTIONS = {
    "test_create_describe_delete_acls": "access control comes later: the ACL calls are not offered",
    "test_describe_metadata_quorum": "there is no KRaft quorum: a cluster coordinates through ZooKeeper",
}
"""Tests that are not run, with the reason."""
NOT_OF_THIS_KIND = ("test_sasl_integration.py", "test_ssl_integration.py")
"""They start Kafka brokers of their own with SASL or TLS, from a distribution of Kafka."""
QUICK = ("test_admin_integration.py", "test_producer_integration.py")


def run(broker: ServedBroker, *files: str) -> str:
    source = kafka_python_tests() / "source"
    folder = source / "test" / "integration"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        str(source),
        "-q",
        "-W",
        "ignore",
        "--tb=short",
    ]
    command += [
        "-p",
        "tests.support.kafka_python_shim",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--timeout=120",
        "-rs",
    ]
    command += ["-k", " and ".join(f"not {name}" for name in EXCEPTIONS), *(str(folder / name) for name in files)]
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{broker.bootstrap_servers}",
        "KAFKA_VERSION": "4.3.0",
        "KAFKA_ROOT": str(source),
        "PYTHONPATH": str(ROOT),
    }
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout


def broker_for_them(directory: Path) -> ServedBroker:
    """With the settings that their own brokers have."""
    port = free_port()
    broker = ServedBroker(
        directory,
        advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}",
        broker_id="0",
        num_partitions="4",
        default_replication_factor="1",
        group_initial_rebalance_delay_ms="0",
        group_min_session_timeout_ms="1000",
        offsets_topic_num_partitions="2",
        transaction_state_log_num_partitions="2",
    )
    broker.port = port
    return broker


def count_of(what: str, printed: str) -> int:
    """From the last line of pytest that sums up; a child of theirs may print after it."""
    summary = [line for line in printed.splitlines() if re.search(r"\d+ passed.* in [\d.]+s", line)][-1]
    found = re.search(rf"(\d+) {what}", summary)
    return int(found[1]) if found else 0


def test_kafka_pythons_admin_and_producer_tests_pass(tmp_path: Path) -> None:
    judges.require("kafka-python-tests")
    with broker_for_them(tmp_path) as broker:
        printed = run(broker, *QUICK)
        assert broker.stop() == 0
    assert count_of("passed", printed) == 37, printed
    assert count_of("skipped", printed) == 0, printed
    assert count_of("deselected", printed) == len(EXCEPTIONS)
    assert "Traceback" not in broker.output


@pytest.mark.long
def test_all_of_kafka_pythons_integration_tests_pass(tmp_path: Path) -> None:
    judges.require("kafka-python-tests")
    folder = kafka_python_tests() / "source" / "test" / "integration"
    files = sorted(path.name for path in folder.glob("test_*.py") if path.name not in NOT_OF_THIS_KIND)
    with broker_for_them(tmp_path) as broker:
        printed = run(broker, *files)
        assert broker.stop() == 0
    assert count_of("passed", printed) == 53, printed
    assert count_of("deselected", printed) == len(EXCEPTIONS)
    assert "Traceback" not in broker.output
