"""`penstock.testing` as somebody's test suite uses it: real clients, real processes, faults on demand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from tests.support.processes import wait_until

from penstock.base.errors import PenstockError
from penstock.testing import Broker, BrokerFailed, BrokerProcess

AnyBroker = Broker | BrokerProcess


def write(broker: AnyBroker, *values: str, **config: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10, **config})
    failed: list[object] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def read(broker: AnyBroker, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": str(uuid4()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    found: list[str] = []
    try:
        while len(found) < count:
            messages = consumer.consume(1, 60)
            assert messages, f"only {found}"
            found += [(one.value() or b"").decode() for one in messages if one.error() is None]
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("kind", [Broker, BrokerProcess])
def test_a_broker_is_there_and_gone(kind: type[Broker] | type[BrokerProcess]) -> None:
    with kind() as broker:
        write(broker, "a", "b")
        assert read(broker, 2) == ["a", "b"]
        data = broker.data
        assert (data / "t-0").is_dir()
    assert not data.exists()
    with pytest.raises(BrokerFailed, match="not running"):
        _ = BrokerProcess().pid


def test_the_fixture_is_found_by_pytest(penstock_broker: Broker) -> None:
    write(penstock_broker, "a")
    assert read(penstock_broker, 1) == ["a"]


def test_where_no_broker_is_used_nothing_of_it_is_loaded() -> None:
    program = "import sys, penstock.testing.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    modules = loaded.stdout.split()
    assert "penstock.testing.pytest_plugin" in modules
    assert not {"kio", "uvloop", "penstock.handlers", "penstock.testing.broker"} & set(modules)


def test_settings_are_kafkas(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", num_partitions=3, auto_create_topics_enable=True) as broker:
        write(broker, "a")
        assert sorted(path.name for path in broker.data.glob("t-*")) == ["t-0", "t-1", "t-2"]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with pytest.raises(BrokerFailed, match="log directory"), Broker("/proc/nowhere"):
        pass


@pytest.mark.parametrize("kind", [Broker, BrokerProcess])
def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(
    kind: type[Broker] | type[BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for settings, reason in (
        ({"num_partitions": "x"}, "num.partitions"),
        ({"listeners": "PLAINTEXT://192.0.2.1:0"}, "192.0.2.1"),
    ):
        with pytest.raises(PenstockError, match=reason) as refused, kind(**settings):
            pass
        assert "Traceback" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [Broker, BrokerProcess])
def test_a_lost_answer_doubles_no_record_of_an_idempotent_producer(kind: type[Broker] | type[BrokerProcess]) -> None:
    with kind() as broker:
        write(broker, "a", **{"enable.idempotence": True})
        broker.faults.lose_answer("Produce", times=2)
        broker.faults.fail("Produce", "not_leader_or_follower")
        write(broker, "b", "c", **{"enable.idempotence": True})
        write(broker, "d", **{"enable.idempotence": True})
        assert read(broker, 4) == ["a", "b", "c", "d"]
        with pytest.raises(ValueError, match="there is no API"):
            broker.faults.delay("Nonsense", 10)


def test_what_was_acknowledged_is_there_after_kill_9() -> None:
    with BrokerProcess() as broker:
        write(broker, "a")
        address = broker.bootstrap_servers
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == address
        assert read(broker, 1) == ["a"]
        broker.restart()
        write(broker, "b")
        assert read(broker, 2) == ["a", "b"]


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from penstock.testing import BrokerProcess\n"
        f"broker = BrokerProcess({str(tmp_path / 'data')!r}).start()\n"
        "print(broker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or _is_dead(pid), seconds=60, what="the broker has ended")


def _is_dead(pid: int) -> bool:
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
