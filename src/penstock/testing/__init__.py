"""A broker for tests, or a cluster: in this process or in one of its own, with faults on demand.

    from penstock.testing import Broker, Cluster

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    with Cluster(brokers=3) as cluster:
        cluster.kill(1)             # start_broker, pause, resume, partition, cut, heal

The pytest plugin has the fixture `penstock_broker`, a fresh broker for each test that asks for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.broker import Broker, BrokerFailed, BrokerProcess
    from penstock.testing.cluster import Cluster
    from penstock.testing.faults import Faults

__all__ = ["Broker", "BrokerFailed", "BrokerProcess", "Cluster", "Faults"]

_HOMES = {
    "Broker": "broker",
    "BrokerFailed": "broker",
    "BrokerProcess": "broker",
    "Cluster": "cluster",
    "Faults": "faults",
}


def __getattr__(name: str) -> object:
    """Imported when it is first asked for: pytest loads the plugin, and so this package, wherever Penstock is installed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
