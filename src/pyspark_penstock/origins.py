"""Where partitions lie on disk, asked once of their leaders; whether a task can read there, it finds out itself."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import AnswerError, ClientError
from penstock.client.log_directories import leader_directories
from pyspark_penstock.options import CommonOptions
from pyspark_penstock.ranges import Origin

log = logging.getLogger(__name__)


class Origins:
    """Remembers answers as long as the leader is the same: directories change seldom, and a task that finds nothing goes by wire.

    A former leader's directory may be at hand still, with records behind its last high watermark that nobody else has.
    """

    def __init__(self, options: CommonOptions) -> None:
        self._options = options
        self._known: dict[TopicPartition, Origin] = {}
        self._gave_up = False

    def find(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Origin]:
        """None of them under mode=wire. Under mode=segments an error where the leaders do not tell.

        The caller has just asked for the topics' metadata: leaders are those.
        """
        if self._options.mode == "wire":
            return {}
        for partition in partitions:
            if partition in self._known and not self._still_leads(cluster, partition):
                del self._known[partition]
        unknown = [] if self._gave_up else [partition for partition in partitions if partition not in self._known]
        if unknown:
            try:
                self._known |= self._ask(cluster, unknown)
            except ClientError as error:
                if self._options.mode == "segments":
                    raise
                log.warning("records are read over the wire: %s", error)
                self._gave_up = True
        return self._known

    def _still_leads(self, cluster: Cluster, partition: TopicPartition) -> bool:
        try:
            return cluster.leader(partition).node == self._known[partition].node_id
        except AnswerError:
            return False

    def _ask(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Origin]:
        cluster_id = cluster.metadata(()).cluster_id
        if self._options.path:
            return {one: Origin(self._options.path, cluster_id, cluster.leader(one).node) for one in partitions}
        found = leader_directories(cluster, partitions)
        return {one: Origin(place.path, cluster_id, place.node) for one, place in found.items()}
