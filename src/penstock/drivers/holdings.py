"""The partitions that this broker holds, as files and as objects: opened, configured, let go."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.drivers.delayed import Delayed
from penstock.drivers.loop import Loop
from penstock.metadata.image import Image
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories

logger = logging.getLogger(__name__)


class Holdings:
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
        self._log_values = log_values
        self._loop = loop
        self._waits = tuple(waits)
        self.partitions = partitions
        self.directories = directories

    def prepare(self, wanted: Mapping[TopicPartition, uuid.UUID]) -> Callable[[], None] | None:
        """A job for a thread that makes the directories of partitions which will be opened; None where there is nothing to do."""
        try:
            return self.directories.prepare(wanted)
        except StorageError:
            return None

    def find_or_open(self, topic_partition: TopicPartition, topic_id: uuid.UUID, leader_epoch: int) -> Partition:
        """A partition that this broker holds, configured as the image says."""
        partition = self.partitions.find(*topic_partition) or self._open(topic_partition, topic_id, leader_epoch)
        self.configure(partition)
        return partition

    def configure(self, partition: Partition) -> None:
        """Takes over a changed configuration, while the log is in use."""
        topic = partition.topic_partition.topic
        config = log_config(self._image.topic_configs.get(topic, {}), self._log_values)
        if config != partition.log.config:
            partition.log.update_config(config)
            partition.use_config()

    def _open(self, topic_partition: TopicPartition, topic_id: uuid.UUID, leader_epoch: int) -> Partition:
        log = self.directories.get(topic_partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            logger.warning("%s on disk belongs to an earlier topic of this name: removed", topic_partition)
            self._remove_files(topic_partition)
            log = None
        config = log_config(self._image.topic_configs.get(topic_partition.topic, {}), self._log_values)
        if log is None and leader_epoch > 0 and self.directories.offline:
            # It was made before: what it holds lies in the directory that is offline, and an empty log would hide it.
            raise StorageError(f"{topic_partition} lies in none of the log directories that are online")
        if log is None:
            log = self.directories.create(topic_partition, config, topic_id)
        partition = Partition(topic_partition, topic_id.bytes, self._node_id, log)
        self.partitions.add(partition)
        return partition

    def let_go(self, partition: Partition) -> None:
        """Holds a partition no more; its files stay."""
        self.partitions.remove(partition.topic_partition)
        partition.stop()
        self.changed(partition.topic_partition)

    def drop(self, partition: Partition) -> None:
        """Holds a partition no more, and removes its files."""
        self.let_go(partition)
        self._remove_files(partition.topic_partition)

    def remove_left_over(self, topic_partition: TopicPartition) -> None:
        """Removes the files of a partition that is not held, if there are any."""
        if self.directories.get(topic_partition) is not None:
            self._remove_files(topic_partition)

    def _remove_files(self, topic_partition: TopicPartition) -> None:
        try:
            job = self.directories.delete(topic_partition)
        except PenstockError:
            logger.exception("the files of %s cannot be removed", topic_partition)
            return
        self._loop.run_in_thread(job, _log_failure(topic_partition))

    def changed(self, topic_partition: TopicPartition) -> None:
        """Whoever waits for something of the partition looks again."""
        for waits in self._waits:
            waits.changed(topic_partition)


def _log_failure(topic_partition: TopicPartition) -> Callable[[object], None]:
    def report(outcome: object) -> None:
        if isinstance(outcome, BaseException):
            logger.error("the files of %s were not removed: %s", topic_partition, outcome)

    return report
