"""A session's life with a real ZooKeeper: it ends with a loop that hangs, an earlier one's nodes are removed, others' are respected."""

from pathlib import Path

import pytest
from tests.support.processes import wait_until
from tests.support.stores import AskedZooKeeper, owner

from penstock.app.zookeeper_server import ZooKeeperServer
from penstock.base.clock import ManualClock, SystemClock
from penstock.metadata import layout
from penstock.metadata.store import Create, Event, SessionChanged, SessionState, Transaction
from penstock.metadata.zookeeper import NoZooKeeperError, ZooKeeperStore
from penstock.testing import BrokerFailed, BrokerProcess

pytestmark = pytest.mark.long
WAIT_SECONDS = 60


def test_a_loop_that_does_not_turn_loses_its_session(zookeeper: ZooKeeperServer) -> None:
    """Kazoo's thread goes on, and says nothing: ZooKeeper takes the process for dead, and it hears so when it wakes up."""
    clock = ManualClock()
    store = ZooKeeperStore(zookeeper.connect, session_timeout_ms=1_000, clock=clock, wake=lambda: None)
    store.connect(WAIT_SECONDS * 1000)
    store.submit(Transaction(operations=(Create(path="/hangs", ephemeral=True),)))
    witness = AskedZooKeeper(zookeeper.connect)
    try:
        wait_until(lambda: owner(witness, "/hangs"), seconds=WAIT_SECONDS, what="the node is there")
        clock.advance(1_000)
        wait_until(lambda: owner(witness, "/hangs") is None, seconds=WAIT_SECONDS, what="its session ended")
        store.alive()
        heard: list[Event] = []

        def is_new() -> bool:
            store.alive()
            heard.extend(store.take_events())
            return heard[-1:] == [SessionChanged(state=SessionState.CONNECTED)] and (
                SessionChanged(state=SessionState.EXPIRED) in heard
            )

        wait_until(is_new, seconds=WAIT_SECONDS, what="it hears of the end, and has a new session")
    finally:
        store.alive()
        store.close()
        witness.close()


def test_where_no_zookeeper_is_the_sentence_says_so() -> None:
    store = ZooKeeperStore("127.0.0.1:1", session_timeout_ms=1_000, clock=SystemClock(), wake=lambda: None)
    with pytest.raises(NoZooKeeperError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 within 300 ms"):
        store.connect(300)


def test_a_broker_that_was_killed_starts_again_before_its_session_ends(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    # KAFKA-992, 1029
    witness = AskedZooKeeper(zookeeper.connect)
    broker = BrokerProcess(
        tmp_path / "broker",
        broker_id=41,
        zookeeper_connect=zookeeper.connect,
        zookeeper_session_timeout_ms=60_000,
        zookeeper_connection_timeout_ms=60_000,
    )
    try:
        broker.start()
        first = owner(witness, layout.broker_path(41))
        broker.kill()
        assert owner(witness, layout.broker_path(41)) == first, "its session is still there"
        broker.start()
        second = owner(witness, layout.broker_path(41))
        assert second not in (None, first)
        broker.stop()
        assert owner(witness, layout.broker_path(41)) is None
    finally:
        broker.kill_if_running()
        witness.close()


def test_a_broker_without_a_number_is_given_one_and_keeps_it(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """As with Kafka: one that nobody had, remembered in its directories."""
    witness = AskedZooKeeper(zookeeper.connect)
    brokers = [BrokerProcess(tmp_path / name, zookeeper_connect=zookeeper.connect) for name in ("first", "second")]
    try:
        for number, broker in enumerate(brokers, 1001):
            broker.start()
            assert owner(witness, layout.broker_path(number)) is not None
        brokers[1].stop()
        brokers[1].start()
        assert owner(witness, layout.broker_path(1002)) is not None
        assert owner(witness, layout.broker_path(1003)) is None
        third = BrokerProcess(
            tmp_path / "third", zookeeper_connect=zookeeper.connect, broker_id_generation_enable="false"
        )
        with pytest.raises(BrokerFailed, match=r"give each its own broker\.id"):
            third.start()
    finally:
        for broker in brokers:
            broker.kill_if_running()
        witness.close()


def test_a_second_broker_of_the_same_id_does_not_start(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    settings = {"broker_id": 42, "zookeeper_connect": zookeeper.connect, "zookeeper_session_timeout_ms": 6_000}
    first, second = (BrokerProcess(tmp_path / name, **settings) for name in ("first", "second"))
    try:
        first.start()
        with pytest.raises(BrokerFailed, match="broker 42 is registered already by another process"):
            second.start()
        witness = AskedZooKeeper(zookeeper.connect)
        assert owner(witness, layout.broker_path(42)) is not None, "the first one's registration stands"
        witness.close()
    finally:
        first.kill_if_running()
        second.kill_if_running()
