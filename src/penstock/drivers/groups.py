"""Carries the group coordinator out: loads its shards, appends its records, sends its replies, keeps its deadlines.

A reply leaves when everything its shard has written is below the high watermark, so replies of one shard leave in the
order of the decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.topics import NewTopic
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.groups.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    NotCoordinatorError,
)
from penstock.coordinator.groups.messages import Answer, Asker, Decision, Record
from penstock.coordinator.groups.model import Group
from penstock.coordinator.groups.replay import Replay
from penstock.coordinator.groups.shard import Shard, partition_of
from penstock.drivers.delayed import Delayed
from penstock.drivers.flushes import Flushes
from penstock.drivers.loop import Loop
from penstock.drivers.loop import Timer as LoopTimer
from penstock.drivers.topics import TopicDriver
from penstock.metadata.image import Image
from penstock.metadata.store import StoreError
from penstock.protocol.group_records import GroupValue, OffsetValue, encode_group_value, encode_key, encode_offset_value
from penstock.purgatory.timing_wheel import Timer, TimingWheel
from penstock.records.build import build_batch
from penstock.replication.errors import (
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from penstock.replication.partition import ACKS_ALL, Partition
from penstock.replication.partitions import Partitions
from penstock.replication.wait_for_acks import AwaitedAppend, WaitForAcks
from penstock.storage.partition_log import Bound
from penstock.storage.producer_state import Origin

logger = logging.getLogger(__name__)

TOPIC = "__consumer_offsets"
COMMIT_TIMEOUT_MS = 5_000
LOAD_BYTES = 256 * 1024
RECORDS_A_TURN = 200
TOMBSTONES_A_BATCH = 500

Then = Callable[[PenstockError | None], object]


class LedShard:
    """One partition of the topic that this broker leads."""

    __slots__ = ("is_loaded", "leader_epoch", "partition", "shard", "timers", "written_end")

    def __init__(self, partition: Partition, shard: Shard) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.is_loaded = False
        self.written_end = 0
        self.timers: dict[str, Timer[tuple[LedShard, Group]]] = {}


class GroupDriver:
    def __init__(
        self,
        *,
        clock: Clock,
        loop: Loop,
        image: Image,
        partitions: Partitions,
        topics: TopicDriver,
        flushes: Flushes,
        produce_waits: Delayed[TopicPartition],
        fetch_waits: Delayed[TopicPartition],
        settings: GroupSettings,
        new_suffix: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._image = image
        self._partitions = partitions
        self._topics = topics
        self._flushes = flushes
        self._produce_waits = produce_waits
        self._fetch_waits = fetch_waits
        self._settings = settings
        self._new_suffix = new_suffix
        self._led: dict[int, LedShard] = {}
        self._wheel: TimingWheel[tuple[LedShard, Group]] = TimingWheel(clock.monotonic_ms())
        self._timer: LoopTimer | None = None
        self._wake_ms = 0
        self._expiry_timer: LoopTimer | None = None
        self._waiting_for_topic: list[Then] = []
        self._stopped = False

    def start(self) -> None:
        self._expiry_timer = self._loop.call_later(self._settings.retention_check_ms, self._expire_offsets)

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()

    # Which groups are here.
    def follow(self, topics: Iterable[str]) -> None:
        """The roles of these topics' partitions may have changed: to be called after the partitions follow."""
        names = set(topics)
        if TOPIC in names:
            self._follow_roles()
        gone = sorted(name for name in names if name != TOPIC and name not in self._image.topics)
        if gone:
            for led in self._led.values():
                if led.is_loaded:
                    self.run(led, led.shard.forget_topics(gone))

    def _follow_roles(self) -> None:
        held = {one.topic_partition.partition: one for one in self._partitions.of_topic(TOPIC) if one.is_leader}
        for number, led in list(self._led.items()):
            partition = held.get(number)
            if partition is not led.partition or partition.leader_epoch != led.leader_epoch:
                del self._led[number]
                self._give(led.shard.resign().replies)
        for number, partition in held.items():
            if number not in self._led:
                self._load(number, partition)

    def partition_of(self, group_id: str) -> int:
        topic = self._image.topics.get(TOPIC)
        return partition_of(group_id, 0 if topic is None else len(topic.partitions))

    def find(self, group_id: str) -> LedShard:
        """The shard of a group, ready; an error says why not."""
        led = self._led.get(self.partition_of(group_id))
        if led is None:
            raise NotCoordinatorError(f"group {group_id!r} is coordinated by another broker")
        if not led.is_loaded:
            raise CoordinatorLoadInProgressError(f"the records of group {group_id!r} are being read")
        return led

    def find_for_member(self, group_id: str) -> LedShard:
        """As `find`, where an empty id is none."""
        if group_id == "":
            raise InvalidGroupIdError("a group's id is not empty")
        return self.find(group_id)

    @property
    def shards(self) -> list[LedShard]:
        return list(self._led.values())

    def with_topic(self, then: Then) -> None:
        """Calls back when the topic is there, at once if it is."""
        if TOPIC in self._image.topics:
            then(None)
            return
        self._waiting_for_topic.append(then)
        if len(self._waiting_for_topic) == 1:
            self._create_topic()

    def _create_topic(self) -> None:
        settings = self._settings
        wanted = NewTopic(
            name=TOPIC,
            partitions=settings.topic_partitions,
            replication_factor=min(settings.topic_replication_factor, max(len(self._image.brokers), 1)),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.topic_segment_bytes),
            },
        )
        try:
            self._topics.create(self._topics.decide(wanted), self._topic_created)
        except PenstockError as error:
            self._topic_created(error)

    def _topic_created(self, error: PenstockError | StoreError | None) -> None:
        waiting, self._waiting_for_topic = self._waiting_for_topic, []
        missing = error is not None and TOPIC not in self._image.topics
        if missing:
            logger.error("%s cannot be created: %s", TOPIC, error)
        for then in waiting:
            then(CoordinatorNotAvailableError(f"{TOPIC} cannot be created: {error}") if missing else None)

    # Loading.
    def _load(self, number: int, partition: Partition) -> None:
        shard = Shard(self._settings, self._clock, self._new_suffix)
        led = self._led[number] = LedShard(partition, shard)
        self._read_on(led, Replay(shard, partition.log.log_start_offset))

    def _is_current(self, led: LedShard) -> bool:
        return not self._stopped and self._led.get(led.partition.topic_partition.partition) is led

    def _read_on(self, led: LedShard, replay: Replay) -> None:
        if not self._is_current(led):
            return
        log = led.partition.log
        try:
            found = None
            if replay.next_offset < log.end_offset:
                found = log.read(replay.next_offset, bytes_max=LOAD_BYTES, bound=Bound.LOG_END).slice
        except PenstockError:
            logger.exception("the groups in %s cannot be read", led.partition.topic_partition)
            return
        if found is None:
            self._loaded(led, replay)
        else:
            self._loop.run_in_thread(found.read, partial(self._feed, led, replay))

    def _feed(self, led: LedShard, replay: Replay, data: bytes | BaseException) -> None:
        if isinstance(data, BaseException):
            logger.error("the groups in %s cannot be read: %s", led.partition.topic_partition, data)
            return
        before = replay.next_offset
        self._feed_some(led, replay, replay.feed(data), before)

    def _feed_some(self, led: LedShard, replay: Replay, steps: Iterator[int], before: int) -> None:
        if not self._is_current(led):
            return
        done = 0
        try:
            for count in steps:
                done += count
                if done >= RECORDS_A_TURN:
                    self._loop.call_soon(partial(self._feed_some, led, replay, steps, before))
                    return
        except PenstockError:
            logger.exception("the groups in %s cannot be read", led.partition.topic_partition)
            return
        if replay.next_offset == before:
            logger.error("the groups in %s cannot be read beyond %d", led.partition.topic_partition, before)
            return
        self._loop.call_soon(partial(self._read_on, led, replay))

    def _loaded(self, led: LedShard, replay: Replay) -> None:
        led.is_loaded = True
        led.written_end = replay.next_offset
        if replay.passed_over:
            logger.warning("%s: %d records passed over", led.partition.topic_partition, replay.passed_over)
        self.run(led, led.shard.loaded())

    # Carrying out.
    def run(self, led: LedShard, decision: Decision, then: Then | None = None) -> None:
        """Appends the records; replies, and calls `then`, when they are below the high watermark or have failed."""
        if decision.records:
            try:
                self._append(led, decision)
            except PenstockError as error:
                self._failed(led, decision, _for_clients(error), then)
                return
        self._set_timers(led)
        if not decision.replies and then is None:
            return
        partition = led.partition
        if partition.log.high_watermark >= led.written_end:
            self._give(decision.replies)
            if then is not None:
                then(None)
            return
        awaited = AwaitedAppend(partition, led.leader_epoch, led.written_end, ACKS_ALL)
        wait = WaitForAcks([awaited], partial(self._acknowledged, led, decision, then))
        self._produce_waits.finish_or_wait(wait, wait.keys, COMMIT_TIMEOUT_MS)

    def _acknowledged(self, led: LedShard, decision: Decision, then: Then | None, wait: WaitForAcks) -> None:
        error: PenstockError | None = next(iter(wait.errors.values()), None)
        if error is None and wait.timed_out:
            error = CoordinatorNotAvailableError("the record is not replicated in time")
        if error is not None:
            self._failed(led, decision, _for_clients(error), then)
            return
        self._give(decision.replies)
        if then is not None:
            then(None)

    def _failed(self, led: LedShard, decision: Decision, error: PenstockError, then: Then | None) -> None:
        logger.error("%s: a group's records were not written: %s", led.partition.topic_partition, error)
        if decision.failed is not None:
            self.run(led, decision.failed(error))
        else:
            self._give(decision.replies)
        self._set_timers(led)
        if then is not None:
            then(error)

    @staticmethod
    def _give(replies: list[tuple[Answer, object]]) -> None:
        for answer, reply in replies:
            answer(reply)

    def _append(self, led: LedShard, decision: Decision) -> None:
        """One batch; only what merely removes may be cut into several."""
        records = decision.records
        size = len(records)
        if size > TOMBSTONES_A_BATCH and all(value is None for _, value in records):
            size = TOMBSTONES_A_BATCH
        partition, now_ms = led.partition, self._clock.wall_ms()
        for first in range(0, len(records), size):
            batch = build_batch([_encoded(record, now_ms) for record in records[first : first + size]])
            appended = partition.append(bytearray(batch), ACKS_ALL, Origin.COORDINATOR)
            led.written_end = appended.end_offset
            self._fetch_waits.changed(partition.topic_partition)
            if appended.high_watermark_moved:
                self._produce_waits.changed(partition.topic_partition)
            if appended.flush_due:
                self._flushes.ask(partition)
        led.shard.appended(decision)

    def heartbeat(self, group_id: str, asker: Asker) -> None:
        """Raises what the member must know: the one request that needs neither record nor wait."""
        led = self.find_for_member(group_id)
        try:
            led.shard.heartbeat(group_id, asker)
        finally:
            self._set_timers(led)

    # Deadlines.
    def _set_timers(self, led: LedShard) -> None:
        if not led.shard.touched:
            return
        touched, led.shard.touched = led.shard.touched, {}
        for group_id, group in touched.items():
            timer = led.timers.get(group_id)
            if timer is not None and timer.waiting and timer.payload[1] is group:
                if timer.deadline_ms <= group.wake_ms:
                    continue
                self._wheel.cancel(timer)
            led.timers[group_id] = self._wheel.add((led, group), group.wake_ms)
        self._set_loop_timer()

    def _set_loop_timer(self) -> None:
        wake_ms = self._wheel.next_wake_ms()
        if wake_ms is None or self._stopped or (self._timer is not None and self._wake_ms <= wake_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ms = wake_ms
        self._timer = self._loop.call_later(max(wake_ms - self._clock.monotonic_ms(), 0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        for led, group in self._wheel.advance(self._clock.monotonic_ms()):
            timer = led.timers.get(group.group_id)
            if timer is not None and not timer.waiting:
                del led.timers[group.group_id]
            if self._is_current(led):
                self.run(led, led.shard.expire(group))
        self._set_loop_timer()

    # Retention.
    def _expire_offsets(self) -> None:
        def steps() -> Iterator[None]:
            for led in self.shards:
                for decision in led.shard.expire_offsets() if led.is_loaded else ():
                    if decision.records and self._is_current(led):
                        self.run(led, decision)
                    yield

        self._expire_some(steps())
        self._expiry_timer = self._loop.call_later(self._settings.retention_check_ms, self._expire_offsets)

    def _expire_some(self, steps: Iterator[None]) -> None:
        for _ in range(RECORDS_A_TURN):
            if next(steps, self) is self:
                return
        if not self._stopped:
            self._loop.call_soon(partial(self._expire_some, steps))


def _encoded(record: Record, now_ms: int) -> tuple[int, bytes, bytes | None, tuple[()]]:
    key, value = record
    encoded = None
    if isinstance(value, OffsetValue):
        encoded = encode_offset_value(value)
    elif isinstance(value, GroupValue):
        encoded = encode_group_value(value)
    return now_ms, encode_key(key), encoded, ()


def _for_clients(error: PenstockError) -> PenstockError:
    """A failed append in terms that members understand: ask again, or ask elsewhere."""
    if isinstance(error, NotLeaderOrFollowerError | StorageError):
        return NotCoordinatorError(str(error))
    if isinstance(error, UnknownTopicOrPartitionError | NotEnoughReplicasError):
        return CoordinatorNotAvailableError(str(error))
    return error
