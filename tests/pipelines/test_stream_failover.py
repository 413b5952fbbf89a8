"""A stream over the topics of a cluster whose brokers are killed and stopped: no row is lost or doubled, and it goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.testing import Cluster
from tests.pipelines.test_streams import Stream
from tests.support import judges
from tests.support.cluster_load import (
    FINAL_READER,
    QUICK_TO_NOTICE,
    WAIT_SECONDS,
    Load,
    leader_of,
    make_topic,
    read_everything,
    wait_for_isr,
)
from tests.support.history import History
from tests.support.processes import wait_until

pytestmark = pytest.mark.long


class SinkByBatch(Stream):
    """A batch that is run again, as after a stop in its middle, takes the place of its first try: with the same rows."""

    def __init__(self, spark: SparkSession, server: str, topic: str, checkpoint: Path, **options: str) -> None:
        super().__init__(spark, server, topic, checkpoint, **options)
        self._batch_ids: list[int] = []

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        super()._keep(frame, batch_id)
        if batch_id in self._batch_ids:
            again = self.batches.pop()
            assert again == self.batches[self._batch_ids.index(batch_id)]
        else:
            self._batch_ids.append(batch_id)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(**QUICK_TO_NOTICE) as cluster:
        yield cluster


@pytest.mark.parametrize("source", ["penstock", "kafka"])
def test_a_stream_goes_on_through_failover(spark: SparkSession, cluster: Cluster, tmp_path: Path, source: str) -> None:
    """Ours, and Spark's own connector over Apache's client."""
    if source == "kafka":
        judges.require("spark-connector")
    topic = f"streamed-by-{source}"
    make_topic(cluster, topic)
    wait_for_isr(cluster, topic, 3)
    history = History()
    reading = SinkByBatch(spark, cluster.bootstrap_servers, topic, tmp_path / "checkpoint", startingOffsets="earliest")
    reading.source = source

    def wait_for_rows(more: int) -> None:
        wanted = len(reading.values) + more
        wait_until(
            lambda: query.exception() is not None or len(reading.values) >= wanted,
            seconds=WAIT_SECONDS,
            what=f"{more} rows more",
        )
        assert query.exception() is None

    with Load(cluster, topic, history) as load:
        load.wait_for_more()
        query = reading.start(processingTime="0 seconds")
        try:
            wait_for_rows(100)
            for harm in (cluster.kill, cluster.stop_broker):
                leader = leader_of(cluster, topic)
                harm(leader)
                wait_until(
                    lambda leader=leader: leader_of(cluster, topic) != leader,  # type: ignore[misc]
                    seconds=WAIT_SECONDS,
                    what="another one leads",
                )
                load.wait_for_more(100)
                wait_for_rows(300)
                cluster.start_broker(leader)
                wait_for_isr(cluster, topic, 3)
                wait_for_rows(100)
        finally:
            query.stop()
    reading.run()
    read_everything(cluster, topic, history)
    assert history.anomalies(FINAL_READER) == []
    assert sorted(reading.values) == sorted(one.value.encode().decode() for one in history.seen)
