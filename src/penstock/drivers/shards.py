"""What the coordinators' drivers share: their topic made, its partitions that this broker leads, each log read into a
shard, records appended and waited for.

A shard is loaded when everything that was read is below the high watermark: what is not may be lost with its leader.
A wait ends when everything its shard has written is below the high watermark, so what waits for one shard goes on in the
order of its writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.topics import NewTopic
from penstock.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from penstock.coordinator.places import partition_of
from penstock.coordinator.replay import Replay
from penstock.drivers.delayed import Delayed
from penstock.drivers.flushes import Flushes
from penstock.drivers.loop import Loop
from penstock.drivers.topics import TopicDriver
from penstock.metadata.image import Image
from penstock.metadata.store import NodeExistsError, StoreError
from penstock.replication.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from penstock.replication.partition import ACKS_ALL, Appended, Partition
from penstock.replication.partitions import Partitions
from penstock.replication.wait_for_acks import AwaitedAppend, WaitForAcks
from penstock.storage.answers import Bound
from penstock.storage.producer_state import Origin

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000
LOAD_RETRY_MS = 100
READ_RETRY_MS = 1_000
LOAD_BYTES = 256 * 1024
RECORDS_A_TURN = 200

Then = Callable[[PenstockError | None], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsSurroundings:
    """The parts of a broker that a coordinator's driver stands on."""

    loop: Loop
    image: Image
    partitions: Partitions
    topics: TopicDriver
    flushes: Flushes
    produce_waits: Delayed[TopicPartition]
    fetch_waits: Delayed[TopicPartition]
    is_in_cluster: bool = False
    """Whether coordinators' topics have replicas: in a cluster they wait for enough brokers rather than have fewer."""

    def appended(self, partition: Partition, appended: Appended) -> None:
        """Lets those know who wait for a partition that was written to."""
        self.fetch_waits.changed(partition.topic_partition)
        if appended.high_watermark_moved:
            self.produce_waits.changed(partition.topic_partition)
        if appended.flush_due:
            self.flushes.ask(partition)

    def when_committed(self, partition: Partition, leader_epoch: int, end_offset: int, then: Then) -> None:
        """Calls back when the high watermark is at `end_offset`, at once if it is, or will not be in time."""
        if partition.log.high_watermark >= end_offset:
            then(None)
            return

        def same_epoch(error: PenstockError | None) -> None:
            if error is None and partition.leader_epoch != leader_epoch:
                error = NotCoordinatorError(f"{partition.topic_partition} is read again in a new epoch")
            then(error)

        wait = WaitForAcks(
            [AwaitedAppend(partition, leader_epoch, end_offset, ACKS_ALL)], partial(_acknowledged, same_epoch)
        )
        self.produce_waits.finish_or_wait(wait, wait.keys, COMMIT_TIMEOUT_MS)


class CoordinatorTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


S = TypeVar("S")
L = TypeVar("L", bound="Led[Any]")


class Led(Generic[S]):
    """One partition of the topic that this broker leads."""

    __slots__ = ("began_told", "is_loaded", "leader_epoch", "partition", "shard", "written_end")

    def __init__(self, partition: Partition, shard: S, told: int) -> None:
        """`told` is how often a controller had told of the cluster when this began."""
        self.began_told = told
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.is_loaded = False
        self.written_end = 0


class Shards(Generic[L]):
    """`new_led` makes an empty shard, `replay` what reads its log; `loaded` and `resigned` hear of its begin and end."""

    def __init__(
        self,
        surroundings: ShardsSurroundings,
        topic: CoordinatorTopic,
        *,
        new_led: Callable[[Partition], L],
        replay: Callable[[L], Replay],
        loaded: Callable[[L], object],
        resigned: Callable[[L], object],
    ) -> None:
        self._surroundings = surroundings
        self._loop = surroundings.loop
        self._image = surroundings.image
        self._topic = topic
        self._new_led = new_led
        self._replay = replay
        self._loaded = loaded
        self._resigned = resigned
        self._led: dict[int, L] = {}
        self._waiting_for_topic: list[Then] = []
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True

    # Which shards are here.
    def follow(self) -> None:
        """The roles of the topic's partitions may have changed."""
        held = {
            one.topic_partition.partition: one
            for one in self._surroundings.partitions.of_topic(self._topic.name)
            if one.is_leader
        }
        for number, led in list(self._led.items()):
            partition = held.get(number)
            if partition is not led.partition or partition.leader_epoch != led.leader_epoch:
                del self._led[number]
                self._resigned(led)
        for number, partition in held.items():
            if number not in self._led:
                led = self._led[number] = self._new_led(partition)
                self._read_on(led, self._replay(led))

    def partition_of(self, name: str) -> int:
        topic = self._image.topics.get(self._topic.name)
        return partition_of(name, 0 if topic is None else len(topic.partitions))

    def find(self, name: str) -> L:
        """The shard of a name, ready; an error says why not."""
        return self.at(self.partition_of(name))

    def at(self, number: int) -> L:
        """The shard of a partition, ready; an error says why not."""
        led = self._led.get(number)
        if led is None:
            raise NotCoordinatorError(f"{self._topic.name}-{number} is led by another broker")
        if not led.is_loaded:
            raise CoordinatorLoadInProgressError(f"{self._topic.name}-{number} is not yet read, or not yet committed")
        return led

    @property
    def all(self) -> list[L]:
        return list(self._led.values())

    def is_current(self, led: L) -> bool:
        return not self.is_stopped and self._led.get(led.partition.topic_partition.partition) is led

    # The topic.
    def with_topic(self, then: Then) -> None:
        """Calls back when the topic is there, at once if it is."""
        if self._topic.name in self._image.topics:
            then(None)
            return
        self._waiting_for_topic.append(then)
        if len(self._waiting_for_topic) == 1:
            self._create_topic()

    def _create_topic(self) -> None:
        topic = self._topic
        wanted = NewTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor if self._surroundings.is_in_cluster else 1,
            configs=dict(topic.configs),
        )
        topics = self._surroundings.topics
        try:
            topics.create(topics.decide(wanted), self._topic_created)
        except PenstockError as error:
            self._topic_created(error)

    def _topic_created(self, error: PenstockError | StoreError | None) -> None:
        waiting, self._waiting_for_topic = self._waiting_for_topic, []
        name = self._topic.name
        missing = error is not None and name not in self._image.topics
        if isinstance(error, NodeExistsError):
            logger.info("another broker creates %s, and the controller has not told of it yet", name)
        elif missing:
            logger.error("%s cannot be created: %s", name, error)
        for then in waiting:
            then(CoordinatorNotAvailableError(f"{name} cannot be created: {error}") if missing else None)

    # Loading.
    def _read_on(self, led: L, replay: Replay) -> None:
        if not self.is_current(led):
            return
        log = led.partition.log
        try:
            found = None
            if replay.next_offset < log.end_offset:
                found = log.read(replay.next_offset, bytes_max=LOAD_BYTES, bound=Bound.LOG_END).slice
        except PenstockError as error:
            self._feed(led, replay, error)
            return
        if found is None:
            self._read(led, replay)
        else:
            self._loop.run_in_thread(found.read, partial(self._feed, led, replay))

    def _feed(self, led: L, replay: Replay, data: bytes | BaseException) -> None:
        if isinstance(data, BaseException):
            logger.error("the records in %s cannot be read for now: %s", led.partition.topic_partition, data)
            self._loop.call_later(READ_RETRY_MS, partial(self._read_on, led, replay))
            return
        before = replay.next_offset
        self._feed_some(led, replay, replay.feed(data), before)

    def _feed_some(self, led: L, replay: Replay, steps: Iterator[int], before: int) -> None:
        if not self.is_current(led):
            return
        done = 0
        try:
            for count in steps:
                done += count
                if done >= RECORDS_A_TURN:
                    self._loop.call_soon(partial(self._feed_some, led, replay, steps, before))
                    return
        except PenstockError:
            logger.exception("the records in %s cannot be read", led.partition.topic_partition)
            return
        if replay.next_offset == before:
            logger.error("the records in %s cannot be read beyond %d", led.partition.topic_partition, before)
            return
        self._loop.call_soon(partial(self._read_on, led, replay))

    def _read(self, led: L, replay: Replay) -> None:
        led.written_end = replay.next_offset
        if replay.passed_over:
            logger.warning("%s: %d records passed over", led.partition.topic_partition, replay.passed_over)
        self._load_when_committed(led)

    def _load_when_committed(self, led: L) -> None:
        """What was read above the high watermark may be lost yet: nobody acts on it, and nobody is told of it."""
        self.when_committed(led, partial(self._end_load, led))

    def _end_load(self, led: L, error: PenstockError | None) -> None:
        if not self.is_current(led):
            return
        if error is not None:
            logger.info("the records in %s are read, and not yet committed: %s", led.partition.topic_partition, error)
            self._loop.call_later(LOAD_RETRY_MS, partial(self._load_when_committed, led))
            return
        led.is_loaded = True
        self._loaded(led)

    # Writing.
    def append(self, led: L, batch: bytes) -> None:
        appended = led.partition.append(bytearray(batch), ACKS_ALL, Origin.COORDINATOR)
        led.written_end = appended.end_offset
        self._surroundings.appended(led.partition, appended)

    def append_marker(self, led: L, marker: bytes) -> None:
        appended = led.partition.append_marker(marker)
        led.written_end = appended.end_offset
        self._surroundings.appended(led.partition, appended)

    def when_committed(self, led: L, then: Then) -> None:
        """Calls back when everything written is below the high watermark, at once if it is, or will not be in time."""
        self._surroundings.when_committed(led.partition, led.leader_epoch, led.written_end, then)

    def in_turns(self, steps: Iterator[object]) -> None:
        """Takes many small steps, some in each turn of the loop."""
        for _ in range(RECORDS_A_TURN):
            if next(steps, self) is self:
                return
        if not self.is_stopped:
            self._loop.call_soon(partial(self.in_turns, steps))


def _acknowledged(then: Then, wait: WaitForAcks) -> None:
    error: PenstockError | None = next(iter(wait.errors.values()), None)
    if error is None and wait.timed_out:
        error = CoordinatorNotAvailableError("the record is not replicated in time")
    then(None if error is None else for_clients(error))


def for_clients(error: PenstockError) -> PenstockError:
    """A failed append in terms that a coordinator's clients understand: ask again, or ask elsewhere."""
    if isinstance(error, NotLeaderOrFollowerError | StorageError):
        return NotCoordinatorError(str(error))
    if isinstance(error, UnknownTopicOrPartitionError | NotEnoughReplicasError | NotEnoughReplicasAfterAppendError):
        return CoordinatorNotAvailableError(str(error))
    return error
