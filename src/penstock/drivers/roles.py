"""Carries roles out on one node: what the image says about this broker's partitions becomes logs and partitions, or their end.

In a cluster the controller's LeaderAndIsr does this: `drivers.replicas`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.drivers.holdings import Holdings
from penstock.metadata import layout
from penstock.metadata.image import Image, TopicImage
from penstock.metadata.store import Committed, Create, Event, SetData

logger = logging.getLogger(__name__)


class RoleDriver:
    def __init__(self, *, node_id: int, image: Image, holdings: Holdings) -> None:
        self._node_id = node_id
        self._image = image
        self._holdings = holdings

    def prepare(self, events: Iterable[Event]) -> Callable[[], None] | None:
        """The logs of partitions that these events will bring here, made on a thread before they are followed."""
        wanted: dict[TopicPartition, uuid.UUID] = {}
        configs: dict[str, dict[str, str]] = {}
        for event in events:
            for operation in event.transaction.operations if isinstance(event, Committed) else ():
                if not isinstance(operation, Create | SetData):
                    continue
                name = layout.topic_of(operation.path)
                if name is not None:
                    wanted |= self._new_partitions(name, layout.decode_topic(operation.path, operation.data))
                elif (name := layout.config_topic_of(operation.path)) is not None:
                    configs[name] = layout.decode_config(operation.path, operation.data)
        return self._holdings.prepare(wanted, configs)

    def _new_partitions(self, name: str, node: layout.TopicNode) -> dict[TopicPartition, uuid.UUID]:
        return {
            TopicPartition(name, number): node.topic_id
            for number, replicas in node.replicas.items()
            if self._node_id in replicas and self._image.partition(name, number) is None
        }

    def follow(self, topics: Iterable[str]) -> None:
        """Brings the partitions of these topics to what the image says."""
        for name in sorted(topics):
            topic = None if name in self._image.deleting else self._image.topics.get(name)
            for held in self._holdings.partitions.of_topic(name):
                gone = topic is None or topic.topic_id.bytes != held.topic_id
                if gone or topic is None or held.topic_partition.partition not in topic.partitions:
                    try:
                        self._holdings.drop(held)
                    except PenstockError as error:
                        logger.error("the files of %s cannot be removed: %s", held.topic_partition, error)
            self._holdings.sync_names_now()
            if topic is not None:
                self._follow_topic(topic)

    def _follow_topic(self, topic: TopicImage) -> None:
        for number, state in topic.partitions.items():
            if self._node_id not in state.replicas or state.leader_epoch < 0:
                continue
            topic_partition = TopicPartition(topic.name, number)
            try:
                is_new = state.leader_epoch == 0  # a start raises the epoch of what was there before it
                partition = self._holdings.find_or_open(topic_partition, topic.topic_id, is_new=is_new)
            except PenstockError as error:
                logger.error("%s cannot be opened: %s", topic_partition, error)
                continue
            changed = partition.take_role(
                leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr, replicas=state.replicas
            )
            if changed:
                self._holdings.changed(topic_partition)
