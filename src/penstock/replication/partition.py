"""One partition as this broker holds it: the role, the in-sync replicas, the high watermark over the log.

Invariants:
- the leader epoch never falls;
- the high watermark is at most the smallest end offset in the maximal ISR, and a partition led alone follows its own end;
- the high watermark stands still while the ISR is smaller than `min.insync.replicas` (KAFKA-15583), and after that was lowered until
  the controller says that nobody who left the ISR will be elected any more: the two hear of it in any order;
- the high watermark waits for a flush where `flush.messages` asks for one.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import OffsetOutOfRangeError
from penstock.base.files import ReadableBuffer
from penstock.base.ids import TopicPartition
from penstock.controller.errors import FencedLeaderEpochError
from penstock.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, Batch, read_header
from penstock.replication.errors import (
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from penstock.replication.isr import Followers, Proposal
from penstock.replication.traffic import Traffic
from penstock.replication.verification import Verifications
from penstock.storage.answers import AppendResult, Bound, ReadResult
from penstock.storage.append import Prepared
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.short_append import ShortAppend

ACKS_ALL = -1


class Appended(NamedTuple):
    """What an append did, and what must be true before it is acknowledged."""

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    log_start_offset: int
    flush_due: bool
    high_watermark_moved: bool
    leader_epoch: int
    """Of the append: who asks later whether it counts may find another one."""


class Fetched(NamedTuple):
    """What a follower's fetch changed."""

    high_watermark_moved: bool
    proposal: Proposal | None


class Diverging(NamedTuple):
    epoch: int
    end_offset: int


class Partition:
    __slots__ = (
        "flush_offset",
        "followers",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "led_from_offset",
        "led_since",
        "local_id",
        "log",
        "min_isr",
        "replicas",
        "topic_id",
        "topic_partition",
        "traffic",
        "verifications",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes, local_id: int, log: PartitionLog) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.local_id = local_id
        self.log = log
        self.leader = -1
        self.leader_epoch = -1
        self.is_leader = False
        self.led_since = -1
        """The first of the epochs, up to now, in which this broker led and nobody in between."""
        self.led_from_offset = 0
        """The log's end when that began. Below it the high watermark may be behind what the leader before had told."""
        self.followers: Followers | None = None
        """On a leader with other replicas; None where nobody follows."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.min_isr = log.config.min_insync_replicas
        self.traffic = Traffic()
        """What is counted of the topic; `Partitions` puts the topic's own here."""
        self.flush_offset = -1
        """Appends up to here wait for a flush; -1 if none does."""
        self.verifications = Verifications()

    # Roles.
    def take_role(
        self,
        *,
        leader: int,
        leader_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        partition_epoch: int = 0,
        now_ms: int = 0,
        has_eligible: bool = False,
    ) -> bool:
        """Follows the metadata. Returns whether anything changed; a state of an older epoch changes nothing."""
        if leader_epoch < self.leader_epoch:
            return False
        if (leader, leader_epoch, isr, replicas) == (self.leader, self.leader_epoch, self.isr, self.replicas):
            return self.confirm_isr(leader_epoch, isr, partition_epoch, has_eligible=has_eligible)
        newly_led = leader == self.local_id and (leader_epoch > self.leader_epoch or not self.is_leader)
        if not self.is_leader:
            self.led_since, self.led_from_offset = leader_epoch, self.log.end_offset
        if not self.is_leader or leader != self.local_id:
            self.flush_offset = -1  # the log may be cut below it, and nobody waits for it any more
            self.verifications.clear()
        self.leader, self.leader_epoch, self.replicas = leader, leader_epoch, replicas
        self.is_leader = leader == self.local_id
        if newly_led:
            self.isr = isr
            self.log.assign_epoch(leader_epoch)
            self.followers = None
            if replicas != (self.local_id,):
                self.followers = Followers(
                    self.local_id,
                    replicas,
                    isr,
                    partition_epoch,
                    now_ms,
                    start_offset=self.log.end_offset,
                    has_eligible=has_eligible,
                )
        elif not self.is_leader:
            self.isr, self.followers = isr, None
        elif self.followers is None:
            self.isr = isr
        else:
            self.followers.use_replicas(replicas, now_ms)
            self.confirm_isr(leader_epoch, isr, partition_epoch, has_eligible=has_eligible)
        if self.is_leader:
            self.maybe_move_high_watermark()
        return True

    def stop(self) -> None:
        """This broker holds the partition no more: whoever waits for it is told so."""
        self.is_leader, self.leader, self.followers = False, -1, None
        self.verifications.clear()

    def confirm_isr(
        self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int, *, has_eligible: bool = False
    ) -> bool:
        """The store has this ISR, in this leader epoch. Says whether that moved the high watermark (KAFKA-13091)."""
        followers = self.followers
        if followers is None or leader_epoch != self.leader_epoch:
            return False
        if not followers.confirm(isr, partition_epoch, has_eligible=has_eligible):
            return False
        self.isr = isr
        return self.maybe_move_high_watermark()

    def withdraw_isr(self) -> bool:
        """The change that was asked for will not be: nobody waits for a newcomer. Says whether that moved the high watermark."""
        assert self.followers is not None
        self.followers.withdraw()
        return self.maybe_move_high_watermark()

    def use_config(self) -> None:
        """The log's configuration changed."""
        self.min_isr = self.log.config.min_insync_replicas

    @property
    def effective_min_isr(self) -> int:
        """A partition with fewer replicas than `min.insync.replicas` asks for could never be written."""
        return min(self.min_isr, len(self.replicas))

    def check_leader(self, client_epoch: int) -> None:
        """Refuses a client that asks the wrong broker, or one that knows another epoch (-1: it knows none)."""
        self._check_epoch(client_epoch)
        if not self.is_leader:
            raise self._not_leader()

    def check_reader(self, client_epoch: int) -> None:
        """The same for one that may read from a follower too (KIP-392)."""
        self._check_epoch(client_epoch)
        if self.leader < 0:
            raise self._not_leader()

    def _check_epoch(self, client_epoch: int) -> None:
        if client_epoch != -1 and client_epoch != self.leader_epoch:
            if client_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(
                    f"{self.topic_partition} has leader epoch {self.leader_epoch}, the request says {client_epoch}"
                )
            raise UnknownLeaderEpochError(
                f"{self.topic_partition} has leader epoch {self.leader_epoch} here, the request says {client_epoch}"
            )

    def _not_leader(self) -> NotLeaderOrFollowerError:
        """Why this broker does not lead; a failed directory is the nearer reason, and is raised."""
        self.log.check_online()
        return NotLeaderOrFollowerError(f"{self.topic_partition} is led by broker {self.leader}")

    # Writing.
    def append(self, records: ReadableBuffer, acks: int, origin: Origin = Origin.CLIENT) -> Appended:
        self._check_append(acks)
        in_transaction = None
        if origin is Origin.CLIENT and len(records) >= HEADER_BYTES and records[22] & TRANSACTIONAL_BIT:
            in_transaction = self._check_transaction(read_header(records))
        result = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin)
        if in_transaction is not None:
            self.verifications.end(in_transaction)
        return self._appended(result)

    def begin_short(self) -> ShortAppend | None:
        """Takes small batches that need no flush; None where every append needs more."""
        if not self.is_leader or self.flush_offset >= 0:
            return None
        return self.log.begin_short(self.leader_epoch)

    @property
    def takes_acks_all(self) -> bool:
        """Whether so many replicas are in sync as an append that waits for all of them needs."""
        return len(self.isr) >= self.effective_min_isr

    def finish_short(self, append: ShortAppend) -> bool:
        """Writes what was taken since `begin_short`, and says whether the high watermark moved. StorageError where that fails."""
        append.write()
        return self.maybe_move_high_watermark()

    def append_prepared(self, prepared: Prepared, acks: int) -> Appended:
        """The same for bytes of a client that were prepared elsewhere."""
        self._check_append(acks)
        in_transaction = None
        if prepared.batches[0].is_transactional:
            in_transaction = self._check_transaction(prepared.batches[0])
        result = self.log.append_prepared(prepared, leader_epoch=self.leader_epoch)
        if in_transaction is not None:
            self.verifications.end(in_transaction)
        return self._appended(result)

    def append_marker(self, marker: bytes) -> Appended:
        """The end of a producer's transaction here, from its coordinator."""
        self._check_append(ACKS_ALL)
        result = self.log.append_as_leader(bytearray(marker), leader_epoch=self.leader_epoch, origin=Origin.COORDINATOR)
        self.verifications.end(read_header(marker).producer_id)
        return self._appended(result)

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open here, in this epoch: what it writes needs no word of a coordinator."""
        producer = self.log.producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset >= 0 and producer.epoch == producer_epoch

    def _check_transaction(self, batch: Batch) -> int | None:
        """Raises unless a transactional batch may open its transaction here. Gives the producer whose first batch it is."""
        if self.is_in_transaction(batch.producer_id, batch.producer_epoch):
            return None
        producers = self.log.producers
        if producers.check(batch, Origin.CLIENT) is not None:
            return None  # sent twice: answered from memory, nothing is written
        self.verifications.check(batch, producers.get(batch.producer_id))
        return batch.producer_id

    def _check_append(self, acks: int) -> None:
        if not self.is_leader:
            raise self._not_leader()
        if acks == ACKS_ALL and not self.takes_acks_all:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {len(self.isr)} replicas in sync, {self.effective_min_isr} are needed"
            )

    def _appended(self, result: AppendResult) -> Appended:
        end_offset = result.last_offset + 1
        if result.flush_due:
            self.flush_offset = end_offset
        return Appended(
            result.base_offset,
            end_offset,
            result.log_append_time_ms,
            result.log_start_offset,
            result.flush_due,
            self.maybe_move_high_watermark(),
            self.leader_epoch,
        )

    def maybe_move_high_watermark(self) -> bool:
        """Moves the high watermark to what every in-sync replica has. Returns whether it moved."""
        if not self.is_leader:
            return False
        log = self.log
        end_offset = log.end_offset
        if self.flush_offset > log.recovery_point:
            end_offset = log.recovery_point
        if self.followers is not None:
            if not self.takes_acks_all or self.followers.has_eligible:
                return False
            end_offset = self.followers.smallest_end(end_offset)
        return log.set_high_watermark(end_offset)

    # Followers.
    def fetched_by(
        self, broker_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> Fetched | None:
        """A follower asked for what follows `offset`, and was given it. None where it is no replica, or of an earlier life."""
        followers = self.followers
        follower = None if followers is None else followers.get(broker_id)
        if followers is None or follower is None:
            return None
        if broker_epoch != follower.broker_epoch:
            if broker_epoch < follower.broker_epoch:
                return None
            follower.broker_epoch = broker_epoch
        moved = follower.fetched(offset, log_start_offset, self.log.end_offset, now_ms)
        proposal = None
        if broker_id not in self.isr and broker_epoch >= 0:  # in no life of its broker there is nothing to be held to
            proposal = followers.propose_expand(follower, self.leader_epoch, self.log.high_watermark)
        return Fetched(self.maybe_move_high_watermark() if moved else False, proposal)

    def follow(self, high_watermark: int, log_start_offset: int) -> bool:
        """Takes over what a leader says of its log. Says whether the high watermark moved."""
        log = self.log
        moved = log.set_high_watermark(high_watermark)
        if log_start_offset > log.log_start_offset:
            log.raise_log_start(min(log_start_offset, log.high_watermark))
        return moved

    def propose_shrink(self, now_ms: int, lag_ms_max: int) -> Proposal | None:
        """Called now and then: the ISR without those who fell behind."""
        if self.followers is None or len(self.isr) < 2:
            return None
        return self.followers.propose_shrink(self.leader_epoch, self.log.end_offset, now_ms, lag_ms_max)

    def check_follower(self, broker_id: int, client_epoch: int) -> None:
        """Refuses a fetch of a broker that does not follow this one."""
        self.check_leader(client_epoch)
        if broker_id not in self.replicas:
            raise UnknownTopicOrPartitionError(f"broker {broker_id} holds no replica of {self.topic_partition}")

    # Reading.
    def read(self, offset: int, bytes_max: int, bound: Bound, client_epoch: int, *, minimum_one: bool) -> ReadResult:
        if client_epoch != -1 or not self.is_leader:
            self.check_reader(client_epoch)
        return self.log.read(offset, bytes_max=bytes_max, bound=bound, minimum_one=minimum_one)

    def diverging(self, offset: int, last_epoch: int) -> Diverging | None:
        """Where a reader's log parted from this one, if the last epoch it read says that it did (KIP-595)."""
        log = self.log
        epoch, end_offset = log.leader_epochs.end_offset_for(last_epoch, log.end_offset)
        if epoch < 0 or end_offset < 0 or offset < log.log_start_offset:  # KAFKA-12996
            raise OffsetOutOfRangeError(offset, log.log_start_offset, log.end_offset)
        return Diverging(epoch, end_offset) if epoch < last_epoch or end_offset < offset else None

    def read_nothing(self) -> ReadResult:
        """The partition's offsets, without data."""
        log = self.log
        return ReadResult(None, log.high_watermark, log.last_stable_offset, log.log_start_offset, None)

    def readable_end(self, bound: Bound) -> int:
        """How far a reader with this bound may see."""
        if bound is Bound.HIGH_WATERMARK:
            return self.log.high_watermark
        return self.log.last_stable_offset if bound is Bound.LAST_STABLE else self.log.end_offset
