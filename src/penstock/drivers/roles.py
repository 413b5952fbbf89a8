"""Carries roles out: what the image says about this broker's partitions becomes logs and partitions, or their end."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.drivers.delayed import Delayed
from penstock.drivers.loop import Loop
from penstock.metadata import layout
from penstock.metadata.image import Image, TopicImage
from penstock.metadata.store import Committed, Create, Event, SetData
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories

logger = logging.getLogger(__name__)


class RoleDriver:
    def __init__(
        self,
        *,
        node_id: int,
        image: Image,
        partitions: Partitions,
        directories: LogDirectories,
        log_values: Mapping[str, object],
        loop: Loop,
        waits: Iterable[Delayed[TopicPartition]],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._directories = directories
        self._log_values = log_values
        self._loop = loop
        self._waits = tuple(waits)

    def prepare(self, events: Iterable[Event]) -> Callable[[], None] | None:
        """The directories of partitions that these events will bring here, made on a thread before they are followed."""
        wanted: dict[TopicPartition, uuid.UUID] = {}
        for event in events:
            for operation in event.transaction.operations if isinstance(event, Committed) else ():
                name = layout.topic_of(operation.path)
                if name is None or not isinstance(operation, Create | SetData):
                    continue
                node = layout.decode_topic(operation.path, operation.data)
                for number, replicas in node.replicas.items():
                    if self._node_id in replicas and self._image.partition(name, number) is None:
                        wanted[TopicPartition(name, number)] = node.topic_id
        try:
            return self._directories.prepare(wanted)
        except StorageError:
            return None

    def follow(self, topics: Iterable[str]) -> None:
        """Brings the partitions of these topics to what the image says."""
        for name in sorted(topics):
            topic = None if name in self._image.deleting else self._image.topics.get(name)
            for held in self._partitions.of_topic(name):
                gone = topic is None or topic.topic_id.bytes != held.topic_id
                if gone or topic is None or held.topic_partition.partition not in topic.partitions:
                    self._drop(held)
            if topic is not None:
                self._follow_topic(topic)

    def _follow_topic(self, topic: TopicImage) -> None:
        for number, state in topic.partitions.items():
            if self._node_id not in state.replicas or state.leader_epoch < 0:
                continue
            topic_partition = TopicPartition(topic.name, number)
            try:
                partition = self._partitions.find(topic.name, number) or self._open(
                    topic, topic_partition, state.leader_epoch
                )
            except PenstockError as error:
                logger.error("%s cannot be opened: %s", topic_partition, error)
                continue
            self._configure(partition)
            changed = partition.take_role(
                leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr, replicas=state.replicas
            )
            if changed:
                self._changed(topic_partition)

    def _configure(self, partition: Partition) -> None:
        """Takes over a changed configuration, while the log is in use."""
        topic = partition.topic_partition.topic
        config = log_config(self._image.topic_configs.get(topic, {}), self._log_values)
        if config != partition.log.config:
            partition.log.update_config(config)
            partition.use_config()

    def _open(self, topic: TopicImage, topic_partition: TopicPartition, leader_epoch: int) -> Partition:
        log = self._directories.get(topic_partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic.topic_id:
            logger.warning("%s on disk belongs to an earlier topic of this name: removed", topic_partition)
            self._remove_files(topic_partition)
            log = None
        config = log_config(self._image.topic_configs.get(topic.name, {}), self._log_values)
        if log is None and leader_epoch > 0 and self._directories.offline:
            # It was made before: what it holds lies in the directory that is offline, and an empty log would hide it.
            raise StorageError(f"{topic_partition} lies in none of the log directories that are online")
        if log is None:
            log = self._directories.create(topic_partition, config, topic.topic_id)
        partition = Partition(topic_partition, topic.topic_id.bytes, self._node_id, log)
        self._partitions.add(partition)
        return partition

    def _drop(self, partition: Partition) -> None:
        self._partitions.remove(partition.topic_partition)
        partition.is_leader = False
        self._remove_files(partition.topic_partition)
        self._changed(partition.topic_partition)

    def _remove_files(self, topic_partition: TopicPartition) -> None:
        try:
            job = self._directories.delete(topic_partition)
        except PenstockError:
            logger.exception("the files of %s cannot be removed", topic_partition)
            return
        self._loop.run_in_thread(job, _log_failure(topic_partition))

    def _changed(self, topic_partition: TopicPartition) -> None:
        for waits in self._waits:
            waits.changed(topic_partition)


def _log_failure(topic_partition: TopicPartition) -> Callable[[object], None]:
    def report(outcome: object) -> None:
        if isinstance(outcome, BaseException):
            logger.error("the files of %s were not removed: %s", topic_partition, outcome)

    return report
