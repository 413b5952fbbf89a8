"""A broker for tests, or a cluster: in this process or in one of its own, with faults on demand.

    from penstock.testing import Broker, Cluster

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    with Cluster(brokers=3) as cluster:
        cluster.kill(1)             # start_broker, pause, resume, partition, cut, heal

The pytest plugin has the fixture `penstock_broker`, a fresh broker for each test that asks for it.
"""

from penstock.testing.broker import Broker, BrokerFailed, BrokerProcess
from penstock.testing.cluster import Cluster
from penstock.testing.faults import Faults

__all__ = ["Broker", "BrokerFailed", "BrokerProcess", "Cluster", "Faults"]
