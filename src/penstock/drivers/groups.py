"""Carries the group coordinator out: loads its shards, appends its records, sends its replies, keeps its deadlines.

A reply leaves when everything its shard has written is below the high watermark, so replies of one shard leave in the
order of the decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.groups.errors import InvalidGroupIdError
from penstock.coordinator.groups.messages import Answer, Asker, Decision, Record
from penstock.coordinator.groups.model import Group
from penstock.coordinator.groups.replay import Replay
from penstock.coordinator.groups.shard import Shard
from penstock.drivers.loop import Timer as LoopTimer
from penstock.drivers.shards import CoordinatorTopic, Led, Shards, ShardsSurroundings, Then, for_clients
from penstock.protocol.group_records import GroupValue, OffsetValue, encode_group_value, encode_key, encode_offset_value
from penstock.purgatory.timing_wheel import Timer, TimingWheel
from penstock.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.records.build import build_batch
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

TOPIC = "__consumer_offsets"
TOMBSTONES_A_BATCH = 500


class LedShard(Led[Shard]):
    __slots__ = ("gone", "timers")

    def __init__(self, partition: Partition, shard: Shard, told: int) -> None:
        super().__init__(partition, shard, told)
        self.timers: dict[str, Timer[tuple[LedShard, Group]]] = {}
        self.gone: set[str] = set()
        """Topics that went while the shard was being loaded."""


class GroupDriver:
    def __init__(
        self,
        surroundings: ShardsSurroundings,
        *,
        clock: Clock,
        settings: GroupSettings,
        new_suffix: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._loop = surroundings.loop
        self._image = surroundings.image
        self._settings = settings
        topic = CoordinatorTopic(
            TOPIC,
            settings.topic_partitions,
            settings.topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.topic_segment_bytes),
            },
        )
        self._shards = Shards(
            surroundings,
            topic,
            new_led=lambda partition: LedShard(partition, Shard(settings, clock, new_suffix), self._image.told),
            replay=lambda led: Replay(led.shard, led.partition.log.log_start_offset),
            loaded=self._loaded,
            resigned=lambda led: self._give(led.shard.resign().replies),
        )
        self._wheel: TimingWheel[tuple[LedShard, Group]] = TimingWheel(clock.monotonic_ms())
        self._timer: LoopTimer | None = None
        self._wake_ms = 0
        self._expiry_timer: LoopTimer | None = None

    def start(self) -> None:
        self._expiry_timer = self._loop.call_later(self._settings.retention_check_ms, self._expire_offsets)

    def stop(self) -> None:
        self._shards.stop()
        for timer in (self._timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()

    # Which groups are here.
    def follow(self, topics: Iterable[str]) -> None:
        """The roles of these topics' partitions may have changed: to be called after the partitions follow."""
        names = set(topics)
        if TOPIC in names:
            self._shards.follow()
        gone = sorted(name for name in names if name != TOPIC and name not in self._image.topics)
        if not gone:
            return
        for led in self._shards.all:
            if led.began_told + 1 == self._image.told:
                self._loop.call_soon(partial(self._forget_absent, led, gone))
            else:
                self._forget(led, gone)

    def _forget_absent(self, led: LedShard, gone: list[str]) -> None:
        """What is told first of a shard that has just begun: of a topic that was made again it has what its coordinator before
        kept for the new one, and forgot for the old one."""
        absent = [name for name in gone if name not in self._image.topics]
        if absent and self._shards.is_current(led):
            self._forget(led, absent)

    def _forget(self, led: LedShard, gone: list[str]) -> None:
        if led.is_loaded:
            self.run(led, led.shard.forget_topics(gone))
        else:
            led.gone.update(gone)

    def _loaded(self, led: LedShard) -> None:
        self.run(led, led.shard.loaded())
        if led.gone:
            self.run(led, led.shard.forget_topics(led.gone))

    def partition_of(self, group_id: str) -> int:
        return self._shards.partition_of(group_id)

    def find(self, group_id: str) -> LedShard:
        """The shard of a group, ready; an error says why not."""
        return self._shards.find(group_id)

    def find_for_member(self, group_id: str) -> LedShard:
        """As `find`, where an empty id is none."""
        if group_id == "":
            raise InvalidGroupIdError("a group's id is not empty")
        return self.find(group_id)

    @property
    def shards(self) -> list[LedShard]:
        return self._shards.all

    def with_topic(self, then: Then) -> None:
        """Calls back when the topic is there, at once if it is."""
        self._shards.with_topic(then)

    # Carrying out.
    def run(self, led: LedShard, decision: Decision, then: Then | None = None) -> None:
        """Appends the records; replies, and calls `then`, when they are below the high watermark or have failed."""
        if decision.records:
            try:
                self._append(led, decision)
            except PenstockError as error:
                self._failed(led, decision, for_clients(error), then)
                return
        self._set_timers(led)
        if decision.replies or then is not None:
            self._shards.when_committed(led, partial(self._committed, led, decision, then))

    def when_committed(self, led: LedShard, then: Then) -> None:
        """Calls back when everything its shard has written is below the high watermark, at once if it is, or will not be in time."""
        self._shards.when_committed(led, then)

    def _committed(self, led: LedShard, decision: Decision, then: Then | None, error: PenstockError | None) -> None:
        if error is not None:
            self._failed(led, decision, error, then)
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
        now_ms, writer = self._clock.wall_ms(), decision.writer
        for first in range(0, len(records), size):
            batch = build_batch(
                [_encoded(record, now_ms) for record in records[first : first + size]],
                producer_id=NO_PRODUCER_ID if writer is None else writer.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if writer is None else writer.producer_epoch,
                transactional=writer is not None,
            )
            self._shards.append(led, batch)
        led.shard.appended(decision)

    def end_transaction(self, number: int, producer_id: int, marker: bytes, then: Then, *, commit: bool) -> None:
        """Writes a producer's marker to a partition of the topic; what it committed there counts from then on."""
        try:
            led = self._shards.at(number)
            self._shards.append_marker(led, marker)
        except PenstockError as error:
            then(error)
            return
        led.shard.end_transaction(producer_id, commit=commit)
        self._shards.when_committed(led, then)

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
        if wake_ms is None or self._shards.is_stopped or (self._timer is not None and self._wake_ms <= wake_ms):
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
            if self._shards.is_current(led):
                self.run(led, led.shard.expire(group))
        self._set_loop_timer()

    # Retention.
    def _expire_offsets(self) -> None:
        def steps() -> Iterator[None]:
            for led in self.shards:
                for decision in led.shard.expire_offsets() if led.is_loaded else ():
                    if decision.records and self._shards.is_current(led):
                        self.run(led, decision)
                    yield

        self._shards.in_turns(steps())
        self._expiry_timer = self._loop.call_later(self._settings.retention_check_ms, self._expire_offsets)


def _encoded(record: Record, now_ms: int) -> tuple[int, bytes, bytes | None, tuple[()]]:
    key, value = record
    encoded = None
    if isinstance(value, OffsetValue):
        encoded = encode_offset_value(value)
    elif isinstance(value, GroupValue):
        encoded = encode_group_value(value)
    return now_ms, encode_key(key), encoded, ()
