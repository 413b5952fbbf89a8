"""The client writes and reads real brokers, in whatever versions they serve."""

from __future__ import annotations

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.config import client_config
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.produce import produce
from penstock.client.read import read_range
from penstock.records.arrow import to_arrow
from penstock.records.batch import Codec
from penstock.records.build import build_batch
from tests.pipelines.topics import new_topic


def test_what_was_produced_is_read_back(server: str) -> None:
    partition = TopicPartition(new_topic(server), 0)
    with Cluster(client_config({"bootstrap.servers": server})) as cluster:
        for number, codec in enumerate(Codec):
            records = [(1000 + n, b"k%d" % n, codec.name.encode() * 50, [("h", b"x")]) for n in range(10)]
            assert produce(cluster, partition, build_batch(records, codec=codec)).base_offset == 10 * number
        end_offset = list_offsets(cluster, {partition: LATEST})[partition].offset
        assert end_offset == 10 * len(Codec)
        assert list_offsets(cluster, {partition: EARLIEST})[partition].offset == 0
        assert list_offsets(cluster, {partition: 1004})[partition] == (4, 1004)
        values = [
            value
            for stretch in read_range(cluster, partition, 5, end_offset)
            for rows in to_arrow(stretch.data, stretch.batches, from_offset=5, to_offset=end_offset)
            for value in rows.column("value").to_pylist()
        ]
        assert values == [codec.name.encode() * 50 for codec in Codec for _ in range(10)][5:]
