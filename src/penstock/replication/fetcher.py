"""How a broker follows one leader (rows R1, R4): what to ask next, and what an answer means. Synchronous, no clock, no wire.

One request at a time asks for everything that is followed there. Each partition's place says up to where it has the
leader's records, and the epoch of the last of them: a leader whose history parted before that says where (KIP-595), the
log is cut to there, and asks again, once for every epoch that the two do not share (KIP-101, KIP-279). Nothing is ever cut
to the high watermark alone, but a log from before there were epochs.

Invariants:
- an answer counts only for a partition that still asks what it asked then (KAFKA-7786);
- with a diverging epoch nothing else of the answer counts (KAFKA-14704);
- a partition that failed waits, and the others go on;
- a log is cut only when what must be on disk before is there: a thread sees to that, and the partition asks nothing meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from penstock.base.errors import OffsetOutOfRangeError, PenstockError, StorageError
from penstock.base.files import ReadableBuffer
from penstock.base.ids import TopicPartition
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.replication.partition import Diverging, Partition

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 20
COMPLAINT_AFTER = 5
"""Failures in a row after which somebody should know; said once."""


class Cutter(Protocol):
    """Cuts logs (`LogDirectories`)."""

    def before_cut(self, partition: TopicPartition, offset: int, *, fully: bool = False) -> Callable[[], None] | None:
        """What must be on disk before the log is cut to `offset`: a job for a thread, or None where it is there."""

    def truncate(self, partition: TopicPartition, offset: int) -> None: ...

    def truncate_fully(self, partition: TopicPartition, offset: int) -> None: ...


class Asked(NamedTuple):
    """What a follower asks of one partition."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


class Got(NamedTuple):
    """What the leader said of one partition."""

    topic_partition: TopicPartition
    error: PenstockError | None
    high_watermark: int
    log_start_offset: int
    diverging: Diverging | None
    records: ReadableBuffer


class LeaderOffsets(NamedTuple):
    """Where the leader's log begins and ends, for a follower that is outside of it."""

    start: int
    end: int


class Taken(NamedTuple):
    """What an answer brought."""

    moved: list[TopicPartition]
    """Partitions whose end or high watermark moved: whoever waits for those looks again."""
    outside: list[Asked]
    """Partitions whose leader does not have what they ask for: they wait for its `LeaderOffsets`."""
    appended: list[Partition]
    cuts: list[Cut]
    """Logs that are to be cut, and wait for the disk."""


class Cut(NamedTuple):
    """A cut to come: `job` is for a thread, then `Fetcher.go_on`."""

    place: _Place
    offset: int
    fully: bool
    job: Callable[[], None]


class _Place:
    __slots__ = ("asked", "failures", "is_cutting", "is_outside", "partition", "ready_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.asked: Asked | None = None
        self.ready_ms = 0
        self.is_outside = False
        self.is_cutting = False
        self.failures = 0
        """In a row."""


class Fetcher:
    def __init__(self, leader_id: int, cutter: Cutter, backoff_ms: int) -> None:
        self.leader_id = leader_id
        self._cutter = cutter
        self._backoff_ms = backoff_ms
        self._places: dict[TopicPartition, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._places

    def add(self, partition: Partition) -> Cut | None:
        """Follows a partition from where its log ends; where it is to be cut first, from when it was."""
        place = self._places[partition.topic_partition] = _Place(partition)
        if partition.log.leader_epochs.latest < 0:
            return self._cut(place, partition.log.high_watermark)
        return None

    def remove(self, topic_partition: TopicPartition) -> bool:
        return self._places.pop(topic_partition, None) is not None

    # Asking.
    def ask(self, now_ms: int) -> list[Asked]:
        """Everything that can be asked now."""
        return [
            self._asked(place)
            for place in self._places.values()
            if place.ready_ms <= now_ms and not place.is_outside and not place.is_cutting
        ]

    def ready_ms(self) -> int | None:
        """When something can be asked again that waits now; None where nothing waits for the time."""
        return min(
            (place.ready_ms for place in self._places.values() if not place.is_outside and not place.is_cutting),
            default=None,
        )

    @staticmethod
    def _asked(place: _Place) -> Asked:
        """What the place asks now: the very value of the last time where it is the same."""
        partition = place.partition
        log = partition.log
        asked, last = place.asked, log.leader_epochs.latest
        if (
            asked is None
            or asked.offset != log.end_offset
            or asked.last_epoch != last
            or asked.leader_epoch != partition.leader_epoch
            or asked.log_start_offset != log.log_start_offset
        ):
            asked = place.asked = Asked(
                partition.topic_partition,
                partition.topic_id,
                partition.leader_epoch,
                log.end_offset,
                last,
                log.log_start_offset,
            )
        return asked

    # Answers.
    def take(self, asked: Iterable[Asked], answers: Iterable[Got], now_ms: int) -> Taken:
        """Carries out what the leader said."""
        questions = {one.topic_partition: one for one in asked}
        taken = Taken([], [], [], [])
        for got in answers:
            place = self._current(questions.get(got.topic_partition))
            if place is None:
                continue
            try:
                if got.error is not None:
                    raise got.error
                self._take_one(place, got, taken)
                place.failures = 0
            except OffsetOutOfRangeError as error:
                if error is not got.error:
                    self._complain(place, error, now_ms)
                    continue
                place.is_outside = True
                taken.outside.append(self._asked(place))
            except PenstockError as error:
                self._complain(place, error, now_ms)
            except Exception:
                # A mistake of ours: this partition stands until its role changes, the others go on.
                logger.exception("%s is not followed any more", got.topic_partition)
                place.is_outside = True
        return taken

    def _current(self, asked: Asked | None) -> _Place | None:
        """The place that asked this, if it would still ask the same."""
        if asked is None:
            return None
        place = self._places.get(asked.topic_partition)
        if place is None or place.is_cutting or place.partition.is_leader:
            return None
        now = self._asked(place)
        same = (
            now.leader_epoch == asked.leader_epoch and now.offset == asked.offset and now.last_epoch == asked.last_epoch
        )
        return place if same and now.topic_id == asked.topic_id else None

    def _take_one(self, place: _Place, got: Got, taken: Taken) -> None:
        partition = place.partition
        if got.diverging is not None:
            cut = self._cut(place, self._shared_end(partition, got.diverging))
            if cut is None:
                taken.moved.append(got.topic_partition)
            else:
                taken.cuts.append(cut)
            return
        moved = False
        if len(got.records):
            self._begin_with_batch(partition, got.records)
            partition.log.append_as_follower(got.records)
            taken.appended.append(partition)
            moved = True
        moved |= partition.follow(got.high_watermark, got.log_start_offset)
        if moved:
            taken.moved.append(got.topic_partition)

    def _begin_with_batch(self, partition: Partition, records: ReadableBuffer) -> None:
        """A leader's log may begin within a batch: an empty log then begins with the whole of it (KAFKA-6975)."""
        log = partition.log
        if log.log_start_offset == log.end_offset and len(records) >= HEADER_BYTES:
            first = read_header(records)
            if 0 <= first.base_offset < log.end_offset <= first.last_offset:
                self._cutter.truncate_fully(partition.topic_partition, first.base_offset)

    @staticmethod
    def _shared_end(partition: Partition, diverging: Diverging) -> int:
        """Up to where this log may agree with the leader's, which knows no later epoch than that (KIP-279)."""
        log = partition.log
        if diverging.epoch < 0 or diverging.end_offset < 0:
            return log.high_watermark
        # Where the leader's epoch is not known here, the end of the one before it; then the leader is asked again.
        _, end_offset = log.leader_epochs.end_offset_for(diverging.epoch, log.end_offset)
        if end_offset < 0:
            return min(diverging.end_offset, log.end_offset)
        return min(end_offset, diverging.end_offset, log.end_offset)

    def take_offsets(self, asked: Asked, offsets: LeaderOffsets | PenstockError, now_ms: int) -> bool | Cut:
        """Where the leader's log lies, for a partition outside of it. Says whether the log was cut, or the cut to come."""
        place = self._places.get(asked.topic_partition)
        if place is None or not place.is_outside:
            return False
        place.is_outside = False
        if self._current(asked) is None:
            return False
        if isinstance(offsets, PenstockError):
            self._complain(place, offsets, now_ms)
            return False
        partition = place.partition
        end_offset = partition.log.end_offset
        try:
            if offsets.end < end_offset:
                logger.warning("%s: its leader ends at %d, it is cut there", partition.topic_partition, offsets.end)
                return self._cut(place, offsets.end) or True
            if offsets.start > end_offset:
                logger.warning("%s: its leader begins at %d, so does it now", partition.topic_partition, offsets.start)
                return self._cut(place, offsets.start, fully=True) or True
        except PenstockError as error:
            self._complain(place, error, now_ms)
            return False
        place.ready_ms = now_ms + self._backoff_ms
        return False

    def go_on(self, cut: Cut, failure: Exception | None, now_ms: int) -> bool | Cut:
        """The job of a cut has ended, or failed. Says whether the log was cut; the cut once more where it waits again."""
        place = cut.place
        if self._places.get(place.partition.topic_partition) is not place or not place.is_cutting:
            return False
        place.is_cutting = False
        try:
            if failure is not None:
                raise failure if isinstance(failure, PenstockError) else StorageError(str(failure))
            return self._cut(place, cut.offset, fully=cut.fully) or True
        except PenstockError as error:
            self._complain(place, error, now_ms)
            return False

    def failed(self, now_ms: int) -> None:
        """The leader could not be asked at all."""
        for place in self._places.values():
            place.ready_ms = now_ms + self._backoff_ms
            place.is_outside = False

    def _cut(self, place: _Place, offset: int, *, fully: bool = False) -> Cut | None:
        """Cuts a log, at once where the disk is ready for that; else the cut to come."""
        topic_partition = place.partition.topic_partition
        job = self._cutter.before_cut(topic_partition, offset, fully=fully)
        if job is not None:
            place.is_cutting = True
            return Cut(place, offset, fully, job)
        if fully:
            self._cutter.truncate_fully(topic_partition, offset)
        else:
            self._cutter.truncate(topic_partition, offset)
        return None

    def _complain(self, place: _Place, error: PenstockError, now_ms: int) -> None:
        """The first waits are short: a new leader often hears of its role a moment after its followers do."""
        wait_ms = min(FIRST_BACKOFF_MS << min(place.failures, 20), self._backoff_ms)
        place.ready_ms = now_ms + wait_ms
        place.failures += 1
        if place.failures == COMPLAINT_AFTER:
            logger.warning("%s cannot be followed for now: %s", place.partition.topic_partition, error)
