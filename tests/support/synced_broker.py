"""A broker in a process of its own whose power can be cut: what it did not sync is gone, and its machine has started anew."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from penstock.app import cluster
from penstock.testing.broker import BrokerProcess
from penstock.testing.cluster import Cluster
from penstock.testing.process import main
from tests.support.synced_files import SyncedFiles, restore


def _kept(data: Path) -> Path:
    return data.with_name(f"{data.name}-synced")


class SyncedBrokerProcess(BrokerProcess):
    _program = "tests.support.synced_broker"

    def cut_power(self) -> None:
        self.kill()
        restore(self.data, _kept(self.data))


class SyncedCluster(Cluster):
    """Its brokers' power can be cut, each on its own."""

    _make_broker = SyncedBrokerProcess

    def cut_power(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        assert isinstance(broker, SyncedBrokerProcess)
        broker.cut_power()


def _serve() -> int:
    data = Path(json.loads(sys.argv[1])["log.dirs"])
    boot_id = str(uuid.uuid4())
    vars(cluster)["read_boot_id"] = lambda: boot_id  # the machine starts anew each time
    return main(SyncedFiles(str(data), _kept(data)))


if __name__ == "__main__":
    sys.exit(_serve())
