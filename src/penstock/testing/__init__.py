"""A broker for tests: in this process or in one of its own, with faults on demand.

    from penstock.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

The pytest plugin has the fixture `penstock_broker`, a fresh broker for each test that asks for it.
"""

from penstock.testing.broker import Broker, BrokerFailed, BrokerProcess
from penstock.testing.faults import Faults

__all__ = ["Broker", "BrokerFailed", "BrokerProcess", "Faults"]
