"""The partitions that this broker holds, as files and as objects: opened, configured, let go."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.drivers.delayed import Delayed
from penstock.drivers.loop import Loop
from penstock.metadata.image import Image
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.storage.config import LogConfig, stored_log_config
from penstock.storage.log_directories import LogDirectories
from penstock.storage.new_logs import Wanted

logger = logging.getLogger(__name__)

NOTHING: Mapping[str, Mapping[str, str]] = MappingProxyType({})


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

    def prepare(
        self, wanted: Mapping[TopicPartition, uuid.UUID], to_come: Mapping[str, Mapping[str, str]] = NOTHING
    ) -> Callable[[], None] | None:
        """A job for a thread that makes the logs of partitions which will be opened; None where there is nothing to do.

        `to_come` are the configurations of topics that the image will have by then.
        """
        try:
            configs = {topic: self._config(topic, to_come) for topic in {partition.topic for partition in wanted}}
            return self.directories.prepare(
                {partition: Wanted(topic_id, configs[partition.topic]) for partition, topic_id in wanted.items()}
            )
        except PenstockError:
            return None

    def _config(self, topic: str, to_come: Mapping[str, Mapping[str, str]] = NOTHING) -> LogConfig:
        own = to_come[topic] if topic in to_come else self._image.topic_configs.get(topic, {})
        return stored_log_config(own, self._log_values)

    def find_or_open(self, topic_partition: TopicPartition, topic_id: uuid.UUID, *, is_new: bool) -> Partition:
        """A partition that this broker holds, configured as the image says."""
        config = self._config(topic_partition.topic)
        partition = self.partitions.find(*topic_partition)
        if partition is None:
            partition = self._open(topic_partition, topic_id, config, is_new=is_new)
        self._configure(partition, config)
        return partition

    def configure(self, partition: Partition) -> None:
        """Takes over a changed configuration, while the log is in use: with fewer in-sync replicas asked for, more may be committed."""
        self._configure(partition, self._config(partition.topic_partition.topic))
        if partition.maybe_move_high_watermark():
            self.changed(partition.topic_partition)

    def _configure(self, partition: Partition, config: LogConfig) -> None:
        if config != partition.log.config:
            partition.log.update_config(config)
            partition.use_config()

    def _open(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig, *, is_new: bool
    ) -> Partition:
        log = self.directories.get(topic_partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            logger.warning("%s on disk belongs to an earlier topic of this name: removed", topic_partition)
            self._take_away(topic_partition, self.directories.delete)
            self.sync_names_now()
            log = None
        if self.is_out_of_reach(topic_partition, is_new=is_new):
            raise _out_of_reach(topic_partition)
        if log is None:
            log = self.directories.create(topic_partition, config, topic_id)
        partition = Partition(topic_partition, topic_id.bytes, self._node_id, log)
        self.partitions.add(partition)
        return partition

    def is_out_of_reach(self, topic_partition: TopicPartition, *, is_new: bool) -> bool:
        """Whether a log that was made before may lie in a directory that is offline: an empty one would hide it, and lead in its place."""
        return not is_new and self.directories.get(topic_partition) is None and self.directories.has_failed

    def let_go(self, partition: Partition) -> None:
        """Holds a partition no more; its files stay."""
        self.partitions.remove(partition.topic_partition)
        partition.stop()
        self.changed(partition.topic_partition)

    def drop(self, partition: Partition) -> None:
        """Holds a partition no more, and removes its files; a crash may bring them back until names are synced.

        StorageError where their directory failed: they are there when it is back.
        """
        self.let_go(partition)
        self._take_away(partition.topic_partition, self.directories.delete)

    def set_strays_aside(self, known: Container[TopicPartition]) -> None:
        """Takes logs away that the cluster knows nothing of; their files stay under another name.

        Only such as a start found: one that has had a role since is known to somebody.
        """
        for key in [key for key in self.directories.logs if key not in known and self.partitions.find(*key) is None]:
            logger.warning("%s is on this disk, and not assigned here: set aside as -stray", key)
            try:
                self._take_away(key, self.directories.set_aside)
            except PenstockError as error:
                logger.error("%s cannot be set aside: %s", key, error)

    def remove_left_over(self, topic_partition: TopicPartition) -> None:
        """Removes the files of a partition that is not held, if there are any; StorageError where that cannot be told."""
        if self.directories.get(topic_partition) is not None:
            self._take_away(topic_partition, self.directories.delete)
        elif self.is_out_of_reach(topic_partition, is_new=False):
            raise _out_of_reach(topic_partition)

    def sync_names_now(self) -> None:
        """What was dropped or set aside stays so. Waits for the disk, once for each directory."""
        job = self.directories.sync_names()
        try:
            if job is not None:
                job()
        except PenstockError as error:
            logger.error("%s", error)

    def _take_away(self, topic_partition: TopicPartition, take: Callable[[TopicPartition], Callable[[], None]]) -> None:
        self.directories.home(topic_partition).health.check_failure()
        self._loop.run_in_thread(take(topic_partition), _log_failure(topic_partition))

    def changed(self, topic_partition: TopicPartition) -> None:
        """Whoever waits for something of the partition looks again."""
        for waits in self._waits:
            waits.changed(topic_partition)


def _out_of_reach(topic_partition: TopicPartition) -> StorageError:
    return StorageError(f"{topic_partition} lies in none of the log directories that are online")


def _log_failure(topic_partition: TopicPartition) -> Callable[[object], None]:
    def report(outcome: object) -> None:
        if isinstance(outcome, BaseException):
            logger.error("the files of %s were not removed: %s", topic_partition, outcome)

    return report
