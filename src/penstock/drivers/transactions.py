"""Carries the transaction coordinator out: loads its shards, writes its transitions and the markers, keeps its deadlines.

A transition counts, and its asker hears of it, when its record is below the high watermark. Then, where a transaction
ended, its markers are written to every partition, again and again until each stands, and last the record that completes
it. What a crash cuts off anywhere is taken up from the records when the shard is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import InvalidProducerEpochError, PenstockError
from penstock.base.ids import TopicPartition
from penstock.coordinator.errors import CoordinatorNotAvailableError, NotCoordinatorError
from penstock.coordinator.transactions.config import TransactionSettings
from penstock.coordinator.transactions.errors import ConcurrentTransactionsError
from penstock.coordinator.transactions.messages import (
    AddPartitions,
    Decision,
    EndTransaction,
    InitProducerId,
    Markers,
    ProducerStamp,
    Transition,
)
from penstock.coordinator.transactions.model import EPOCH_BUMPS_FROM
from penstock.coordinator.transactions.replay import Replay
from penstock.coordinator.transactions.shard import Shard
from penstock.drivers.markers import Marker, MarkerWriter
from penstock.drivers.producer_ids import ProducerIds
from penstock.drivers.shards import CoordinatorTopic, Led, Shards, ShardsSurroundings, Then, for_clients
from penstock.metadata.store import StoreError
from penstock.protocol.transaction_records import encode_transaction_key, encode_transaction_value
from penstock.records.build import Record, build_batch
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

TOPIC = "__transaction_state"
RETRY_MS = 100
NEWS_MS = 30_000
TOMBSTONES_A_BATCH = 500
TOMBSTONES_BYTES_MAX = 256 * 1024

Answer = Callable[[ProducerStamp | PenstockError], object]


class LedShard(Led[Shard]):
    __slots__ = ("began_ms",)

    def __init__(self, partition: Partition, shard: Shard, told: int, now_ms: int) -> None:
        super().__init__(partition, shard, told)
        self.began_ms = now_ms


class TransactionDriver:
    def __init__(
        self,
        surroundings: ShardsSurroundings,
        *,
        clock: Clock,
        settings: TransactionSettings,
        producer_ids: ProducerIds,
        markers: MarkerWriter,
    ) -> None:
        self._clock = clock
        self._loop = surroundings.loop
        self._image = surroundings.image
        self._is_in_cluster = surroundings.is_in_cluster
        self._producer_ids = producer_ids
        self._marker_writer = markers
        self.settings = settings
        self.aborted_by_timeout = 0
        topic = CoordinatorTopic(
            TOPIC,
            settings.topic_partitions,
            settings.topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.topic_min_isr),
                "segment.bytes": str(settings.topic_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
        self._shards: Shards[LedShard] = Shards(
            surroundings,
            topic,
            new_led=lambda partition: LedShard(
                partition, Shard(settings, clock), self._image.told, clock.monotonic_ms()
            ),
            replay=lambda led: Replay(led.shard, led.partition.log.log_start_offset),
            loaded=self._loaded,
            resigned=lambda led: None,
        )

    def start(self) -> None:
        self._later(self.settings.timeout_check_ms, self._abort_timed_out)
        self._later(self.settings.expiration_check_ms, self._forget_expired)

    def stop(self) -> None:
        self._shards.stop()

    # Which transactional ids are here.
    def follow(self, topics: Iterable[str]) -> None:
        """The roles of these topics' partitions may have changed: to be called after the partitions follow."""
        if TOPIC in topics:
            self._shards.follow()

    def partition_of(self, transactional_id: str) -> int:
        return self._shards.partition_of(transactional_id)

    def find(self, transactional_id: str) -> LedShard:
        """The shard of a transactional id, ready; an error says why not."""
        return self._shards.find(transactional_id)

    def with_topic(self, then: Then) -> None:
        """Calls back when the topic is there, at once if it is."""
        self._shards.with_topic(then)

    @property
    def shards(self) -> list[LedShard]:
        return self._shards.all

    @property
    def open_count(self) -> int:
        return sum(len(led.shard.ongoing) for led in self.shards)

    @property
    def longest_open_ms(self) -> int:
        """The age of the transaction that has been open longest."""
        starts = [next(iter(led.shard.ongoing.values())).start_ms for led in self.shards if led.shard.ongoing]
        return max(self._clock.wall_ms() - min(starts), 0) if starts else 0

    # Requests.
    def init_producer_id(self, request: InitProducerId, answer: Answer) -> None:
        def decide(shard: Shard, new_id: int | None) -> Decision:
            return shard.init_producer_id(request, new_id)

        def given(led: LedShard, decision: Decision, error: PenstockError | None) -> None:
            if error is None and decision.reply is None:
                error = ConcurrentTransactionsError("the open transaction is being aborted")
            self._answer(answer, decision, error)

        self._with_producer_id(request.transactional_id, decide, given, answer)

    def end(self, request: EndTransaction, answer: Answer) -> None:
        def decide(shard: Shard, new_id: int | None) -> Decision:
            return shard.end(request, new_id)

        def given(led: LedShard, decision: Decision, error: PenstockError | None) -> None:
            self._answer(answer, decision, error)

        if request.client_version < EPOCH_BUMPS_FROM:
            self._decide(request.transactional_id, lambda shard: decide(shard, None), given, answer)
        else:
            self._with_producer_id(request.transactional_id, decide, given, answer)

    def add_partitions(self, request: AddPartitions, then: Then) -> None:
        def given(led: LedShard, decision: Decision, error: PenstockError | None) -> None:
            then(error)

        self._decide(request.transactional_id, lambda shard: shard.add_partitions(request), given, then)

    @staticmethod
    def _answer(answer: Answer, decision: Decision, error: PenstockError | None) -> None:
        if error is not None:
            answer(error)
        else:
            assert decision.reply is not None
            answer(decision.reply)

    def _with_producer_id(
        self,
        transactional_id: str,
        decide: Callable[[Shard, int | None], Decision],
        given: Callable[[LedShard, Decision, PenstockError | None], object],
        refused: Callable[[PenstockError], object],
    ) -> None:
        """Decides with a new producer id at hand where one may be needed."""
        try:
            needed = self.find(transactional_id).shard.needs_producer_id(transactional_id)
        except PenstockError as error:
            refused(error)
            return
        if not needed:
            self._decide(transactional_id, lambda shard: decide(shard, None), given, refused)
            return

        def taken(outcome: int | StoreError) -> None:
            if isinstance(outcome, int):
                self._decide(transactional_id, lambda shard: decide(shard, outcome), given, refused)
            else:
                refused(CoordinatorNotAvailableError(f"there is no producer id to give: {outcome}"))

        self._producer_ids.take(taken)

    def _decide(
        self,
        transactional_id: str,
        decide: Callable[[Shard], Decision],
        given: Callable[[LedShard, Decision, PenstockError | None], object],
        refused: Callable[[PenstockError], object],
    ) -> None:
        try:
            led = self.find(transactional_id)
            decision = decide(led.shard)
        except PenstockError as error:
            refused(error)
            return
        if decision.transition is None:
            given(led, decision, None)
        else:
            self._carry_out(led, (decision.transition,), lambda error: given(led, decision, error))

    # Carrying out.
    def _carry_out(self, led: LedShard, transitions: Sequence[Transition], then: Then) -> None:
        """Writes the records; when they are below the high watermark, they count, and what ended gets its markers."""
        try:
            self._shards.append(led, build_batch(self._records(transitions)))
        except PenstockError as error:
            self._written(led, transitions, then, for_clients(error))
            return
        self._shards.when_committed(led, partial(self._written, led, transitions, then))

    def _records(self, transitions: Sequence[Transition]) -> Iterator[Record]:
        now_ms = self._clock.wall_ms()
        for transactional_id, value, *_ in transitions:
            encoded = None if value is None else encode_transaction_value(value)
            yield now_ms, encode_transaction_key(transactional_id), encoded, ()

    def _written(
        self, led: LedShard, transitions: Sequence[Transition], then: Then, error: PenstockError | None
    ) -> None:
        if not self._shards.is_current(led):
            then(NotCoordinatorError("the coordinator moved"))
            return
        if error is not None:
            logger.error("%s: transactions were not written: %s", led.partition.topic_partition, error)
            for transition in transitions:
                led.shard.failed(transition)
            then(error)
            return
        ended = [led.shard.committed(transition) for transition in transitions]
        then(None)
        for markers in ended:
            if markers is not None:
                self._write_markers(led, markers)

    # Markers.
    def _loaded(self, led: LedShard) -> None:
        for transaction in led.shard.transactions.values():
            self._producer_ids.pass_over(max(transaction.producer_id, transaction.next_producer_id))
        ended = led.shard.loaded()
        if ended:
            logger.info("%s: %d transactions are to be completed", led.partition.topic_partition, len(ended))
        self._shards.in_turns(map(partial(self._write_markers, led), ended))

    def _write_markers(self, led: LedShard, markers: Markers) -> None:
        if not self._shards.is_current(led):
            return
        remaining = set(markers.partitions)
        if not remaining:
            self._complete(led, markers)
        for partition in sorted(markers.partitions):
            self._write_marker(led, markers, remaining, partition)

    def _write_marker(
        self, led: LedShard, markers: Markers, remaining: set[TopicPartition], partition: TopicPartition
    ) -> None:
        if not self._shards.is_current(led):
            return
        marker = Marker(*markers.producer, markers.commit, led.leader_epoch, markers.client_version)
        then = partial(self._marker_written, led, markers, remaining, partition)
        self._marker_writer.write(partition, marker, then)

    def _marker_written(
        self,
        led: LedShard,
        markers: Markers,
        remaining: set[TopicPartition],
        partition: TopicPartition,
        error: PenstockError | None,
    ) -> None:
        if error is not None and self._is_worth_retrying(led, partition, error):
            again = partial(self._write_marker, led, markers, remaining, partition)
            self._loop.call_later(RETRY_MS, again)
            return
        remaining.discard(partition)
        if not remaining and self._shards.is_current(led):
            self._complete(led, markers)

    def _is_worth_retrying(self, led: LedShard, partition: TopicPartition, error: PenstockError) -> bool:
        if self._image.partition(*partition) is None and self._is_image_whole(led):
            logger.info("%s is gone: the transaction ends without it", partition)
            return False
        if isinstance(error, InvalidProducerEpochError):
            logger.error("%s knows a newer epoch than a transaction that ends: %s", partition, error)
            return False
        logger.warning("%s: a marker was not written, it is tried again: %s", partition, error)
        return True

    def _is_image_whole(self, led: LedShard) -> bool:
        """Whether a partition that the image lacks is gone, and not one that this broker is yet to be told of.

        A new controller gives out roles first, and says right after that what there is. A shard that began when that was
        said may hear no more of it: there time decides.
        """
        is_told = self._image.told != led.began_told
        return not self._is_in_cluster or is_told or self._clock.monotonic_ms() - led.began_ms >= NEWS_MS

    def _complete(self, led: LedShard, markers: Markers) -> None:
        transition = led.shard.complete(markers)

        def completed(error: PenstockError | None) -> None:
            if not self._shards.is_current(led):
                return
            if error is None:
                led.shard.committed(transition)
                return
            logger.error("%s: a transaction was not completed: %s", led.partition.topic_partition, error)
            led.shard.completion_failed(transition)
            self._loop.call_later(RETRY_MS, again)

        def again() -> None:
            if self._shards.is_current(led):
                self._complete(led, markers)

        try:
            self._shards.append(led, build_batch(self._records((transition,))))
        except PenstockError as error:
            completed(error)
            return
        self._shards.when_committed(led, completed)

    # What time does.
    def _later(self, delay_ms: int, job: Callable[[], Iterator[object]]) -> None:
        """Does a job again and again, a little in each turn."""

        def run() -> None:
            if not self._shards.is_stopped:
                self._later(delay_ms, job)  # before the job: one that fails is not the last
                self._shards.in_turns(job())

        self._loop.call_later(delay_ms, run)

    def _abort_timed_out(self) -> Iterator[object]:
        for led in self.shards:
            for transition in led.shard.timed_out() if led.is_loaded else ():
                if not self._shards.is_current(led):
                    break
                logger.info("the transaction of %s stayed open too long: aborted", transition.transactional_id)
                self._carry_out(led, (transition,), self._aborted)
                yield led

    def _aborted(self, error: PenstockError | None) -> None:
        if error is None:
            self.aborted_by_timeout += 1

    def _forget_expired(self) -> Iterator[object]:
        """Tombstones, several in a batch: how many depends on how long the ids are (KAFKA-13099)."""
        for led in self.shards:
            batch: list[Transition] = []
            size_bytes = 0
            for transition in led.shard.expired() if led.is_loaded else ():
                batch.append(transition)
                size_bytes += len(transition.transactional_id.encode())
                if size_bytes >= TOMBSTONES_BYTES_MAX or len(batch) >= TOMBSTONES_A_BATCH:
                    self._forget(led, batch)
                    batch, size_bytes = [], 0
                    yield led
            self._forget(led, batch)

    def _forget(self, led: LedShard, batch: list[Transition]) -> None:
        if batch and self._shards.is_current(led):
            self._carry_out(led, batch, lambda error: None)
