"""What the tree must say when a broker starts, before it serves anybody."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable

from penstock.base.errors import LogDirectoryError, PenstockError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition, topic_id_text
from penstock.controller.adoption import decide_adopt
from penstock.controller.leaders import decide_start_alone
from penstock.controller.topics import decide_delete
from penstock.metadata import layout
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image
from penstock.metadata.layout import BrokerNode
from penstock.metadata.store import Committed, Create, Operation, Transaction
from penstock.storage import checkpoints
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories
from penstock.storage.moves import take_unfinished


class Registration:
    """Nothing else uses the store meanwhile: each step waits for the disk where it stands."""

    def __init__(
        self,
        *,
        store: EmbeddedStore,
        image: Image,
        directories: LogDirectories,
        files: Files,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._store = store
        self._image = image
        self._directories = directories
        self._files = files
        self._new_id = new_id

    def register(self, broker: BrokerNode, wall_ms: int) -> dict[TopicPartition, DirectoryState]:
        """Returns replicas whose move between directories was cut off, with where they were going."""
        node_id = broker.broker_id
        self._commit_now(layout.permanent_nodes([node.path for node in self._store.nodes()]))
        if self._image.cluster_id is None:
            cluster_id = self._cluster_id_on_disk() or topic_id_text(self._new_id())
            self._commit_now((Create(path=layout.CLUSTER_ID, data=layout.encode_cluster_id(cluster_id)),))
        self._write_meta_properties(node_id)
        data = layout.encode_broker(broker, wall_ms)
        self._commit_now((Create(path=layout.broker_path(node_id), data=data, ephemeral=True),))
        moving = take_unfinished(self._directories, self._is_known, self._files)
        self._finish_deletions()
        self._adopt(node_id)
        offline = self._offline_partitions(node_id)
        self._image.set_offline(offline, node_id)
        self._commit_now(decide_start_alone(self._image, node_id, offline).operations)
        self._image.controller_id = node_id
        return moving

    def _is_known(self, partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        topic = self._image.topics.get(partition.topic)
        return (
            topic is not None
            and topic.name not in self._image.deleting
            and topic.topic_id == topic_id
            and partition.partition in topic.partitions
        )

    def _adopt(self, node_id: int) -> None:
        logs = self._directories.logs
        adopted = decide_adopt(
            self._image,
            {partition: log.topic_id for partition, log in logs.items()},
            {partition: log.leader_epochs.latest for partition, log in logs.items()},
            node_id,
            self._new_id,
        )
        self._commit_now(adopted.operations)

    def _commit_now(self, operations: tuple[Operation, ...]) -> None:
        """A transaction before anybody is served: waits for the disk where it stands."""
        if not operations:
            return
        store = self._store
        store.submit(Transaction(operations=operations))
        store.sync()
        store.synced(store.journal_position)
        for event in store.take_events():
            if not isinstance(event, Committed):
                raise PenstockError(f"the metadata store refused to start: {event}")
            self._image.apply(event)

    def _finish_deletions(self) -> None:
        """Topics whose deletion a crash cut off: their logs go now, and what the tree says of them."""
        for name in sorted(self._image.deleting):
            for partition in [partition for partition in self._directories.logs if partition.topic == name]:
                self._directories.delete(partition)()
            decided = decide_delete(self._image, name, logs_are_gone=not self._directories.offline)
            self._commit_now(decided.operations)

    def _offline_partitions(self, node_id: int) -> set[TopicPartition]:
        """What this broker should hold and does not find, while a directory is offline that may hold it."""
        if not self._directories.offline:
            return set()
        expected = {
            TopicPartition(topic.name, number)
            for topic in self._image.topics.values()
            for number, state in topic.partitions.items()
            if node_id in state.replicas
        }
        return expected - self._directories.logs.keys()

    def _cluster_id_on_disk(self) -> str | None:
        for state in self._directories.directories:
            with contextlib.suppress(FileNotFoundError):
                found = checkpoints.read_meta_properties(self._files, state.path).get("cluster.id")
                if found:
                    return found
        return None

    def _write_meta_properties(self, node_id: int) -> None:
        assert self._image.cluster_id is not None
        wanted = {"version": "1", "cluster.id": self._image.cluster_id, "node.id": str(node_id)}
        for state in self._directories.directories:
            try:
                known = checkpoints.read_meta_properties(self._files, state.path)
            except FileNotFoundError:
                known = {}
            if known.get("cluster.id", self._image.cluster_id) != self._image.cluster_id:
                raise LogDirectoryError(
                    f"{state.path} belongs to cluster {known['cluster.id']}, this is cluster {self._image.cluster_id}"
                )
            if any(known.get(key) != value for key, value in wanted.items()):
                checkpoints.write_meta_properties(self._files, state.path, {**known, **wanted})
