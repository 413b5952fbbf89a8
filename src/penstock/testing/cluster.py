"""A cluster that a test starts, harms and throws away: a real ZooKeeper, brokers in processes, a network that can be cut."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from penstock.app.zookeeper_server import ZooKeeperServer
from penstock.testing.broker import BrokerProcess
from penstock.testing.network import STORE, Network

_NO_SYNC = ("-Dzookeeper.forceSync=no",)
"""ZooKeeper's disk is not what these tests are about."""


class Cluster:
    """Brokers are numbered from 1. Settings are Kafka's, with `_` for `.`, and hold for every broker."""

    _make_broker = BrokerProcess

    def __init__(self, brokers: int = 3, data: str | Path | None = None, **settings: object) -> None:
        self._given = data
        self.data = Path(data) if data is not None else Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
        self.data.mkdir(parents=True, exist_ok=True)
        self.zookeeper = ZooKeeperServer(self.data / "zookeeper", flags=_NO_SYNC)
        self.brokers: dict[int, BrokerProcess] = {}
        self._count = brokers
        factor, in_sync = min(3, brokers), min(2, brokers)
        self._settings: dict[str, object] = {
            "default_replication_factor": factor,
            "offsets_topic_replication_factor": factor,
            "transaction_state_log_replication_factor": factor,
            "transaction_state_log_min_isr": in_sync,
            "min_insync_replicas": in_sync,
            "replica_lag_time_max_ms": 10_000,
            **settings,
        }
        self._network: Network | None = None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def start(self) -> Self:
        self.zookeeper.start()
        network = self._network = Network()
        for broker_id in range(1, self._count + 1):
            to_store = network.listen(broker_id, STORE)
            network.lead(broker_id, STORE, self.zookeeper.host, self.zookeeper.port)
            among = network.listen(-1, broker_id)
            self.brokers[broker_id] = self._make_broker(
                self.data / f"broker-{broker_id}",
                **{
                    **self._settings,
                    "broker_id": broker_id,
                    "zookeeper_connect": f"127.0.0.1:{to_store}",
                    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
                    "advertised_listeners": f"BROKERS://127.0.0.1:{among}",
                    "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
                    "inter_broker_listener_name": "BROKERS",
                },
            )
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(self.start_broker, self.brokers))
        return self

    # Brokers.
    def start_broker(self, broker_id: int) -> None:
        """Starts one that was killed or stopped, over what it left."""
        broker = self.brokers[broker_id].start()
        assert self._network is not None
        host, _, port = broker.addresses[1].rpartition(":")
        self._network.lead(-1, broker_id, host, int(port))

    def kill(self, broker_id: int) -> None:
        """kill -9."""
        self.brokers[broker_id].kill()

    def stop_broker(self, broker_id: int) -> None:
        """A controlled shutdown."""
        self.brokers[broker_id].stop()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: it holds all it has and says nothing."""
        self.brokers[broker_id].signal(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        self.brokers[broker_id].signal(signal.SIGCONT)

    # The network.
    def partition(self, *broker_ids: int) -> None:
        """Cuts these brokers off from the others and from ZooKeeper, both ways; clients reach them still."""
        others = self.brokers.keys() - set(broker_ids)
        pairs = {(one, other) for one in broker_ids for other in others}
        pairs |= {(other, one) for one, other in pairs}
        self.cut(pairs | {(one, STORE) for one in broker_ids})

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Cuts what the first of a pair sends to the second and its answers; the second may be STORE."""
        assert self._network is not None
        self._network.cut(set(pairs))

    def heal(self) -> None:
        """Mends every cut."""
        assert self._network is not None
        self._network.heal()

    # The end.
    def close(self) -> None:
        """Stops all of it; a directory that was not given goes."""
        for broker in self.brokers.values():
            broker.kill_if_running()
        if self._network is not None:
            self._network.close()
            self._network = None
        self.zookeeper.stop()
        if self._given is None:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
