"""Half an hour in which others want every processor: a broker that is slow for it is not taken for dead."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_load import (
    FINAL_READER,
    Load,
    make_topic,
    read_everything,
    wait_for_equal_replicas,
    wait_for_isr,
)
from tests.support.history import History
from tests.support.processes import Child
from tests.support.stores import AskedZooKeeper, owner

from penstock.metadata import layout
from penstock.testing import Cluster

pytestmark = pytest.mark.long
BUSY_SECONDS = 1_800
PARTITIONS = 30
_BUSY = "while True: pass"


@contextlib.contextmanager
def every_processor_taken(directory: Path) -> Iterator[None]:
    """One that never rests for each processor: whoever serves waits in its queue."""
    with contextlib.ExitStack() as children:
        for number in range(os.cpu_count() or 1):
            children.enter_context(Child([sys.executable, "-c", _BUSY], output=directory / f"{number}.log"))
        yield


def _sessions(cluster: Cluster) -> dict[str, int | None]:
    """Whose session each broker's node and the controller's belong to: another one after every end of a session."""
    witness = AskedZooKeeper(cluster.zookeeper.connect)
    paths = [layout.broker_path(broker_id) for broker_id in cluster.brokers]
    owners = {path: owner(witness, path) for path in (*paths, layout.CONTROLLER)}
    witness.close()
    return owners


def test_half_an_hour_at_full_cpu_ends_no_session(tmp_path: Path) -> None:
    """With the session timeout that a cluster has by default."""
    topic = "busy"
    history = History()
    with Cluster() as cluster:
        make_topic(cluster, topic, PARTITIONS)
        wait_for_isr(cluster, topic, 3)
        before = _sessions(cluster)
        assert None not in before.values()
        with every_processor_taken(tmp_path), Load(cluster, topic, history, PARTITIONS) as load:
            rest = time.monotonic() + BUSY_SECONDS
            while time.monotonic() < rest:
                load.wait_for_more(1_000)
            assert _sessions(cluster) == before
        wait_for_isr(cluster, topic, 3)
        read_everything(cluster, topic, history, PARTITIONS)
        assert history.anomalies(FINAL_READER) == []
        wait_for_equal_replicas(cluster, topic, PARTITIONS)
