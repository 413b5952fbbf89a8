"""What a stream has finished is committed to its group, if it has one, for tools that watch lag."""

from __future__ import annotations

import uuid

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.base.ids import TopicPartition
from penstock.client.groups import committed_offsets
from pyspark_penstock.clusters import cluster_for
from pyspark_penstock.options import read_stream_options
from pyspark_penstock.stream import StreamReader
from tests.pipelines.topics import new_topic, send


def test_a_batch_is_committed_once_the_next_one_is_asked_for(penstock_server: str) -> None:
    topic, group = new_topic(penstock_server), f"g-{uuid.uuid4().hex[:8]}"
    send(penstock_server, topic, [b"%d" % n for n in range(30)])
    options = read_stream_options(
        {
            "kafka.bootstrap.servers": penstock_server,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.group.id": group,
        }
    )
    reader, cluster = StreamReader(options), cluster_for(options.common)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
    assert committed_offsets(cluster, group) == {}, "nothing is finished yet"
    second = reader.latestOffset(first, ReadAllAvailable())
    assert committed_offsets(cluster, group) == {TopicPartition(topic, 0): 20}
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    assert committed_offsets(cluster, group) == {TopicPartition(topic, 0): 30}
