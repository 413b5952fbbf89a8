"""Carries out what the controller says to this broker (rows R5, C3): roles, ends of roles, and what to tell clients.

Requests are taken one after the other, in the order they came, each after what it needs of the disk was done on a thread. A
request of a controller that was replaced is refused, and one that was meant for an earlier life of this broker.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import BrokerNotAvailableError, StaleBrokerEpochError, StaleControllerEpochError
from penstock.controller.peer_requests import (
    EPOCH_DURING_DELETION,
    LEADER_DURING_DELETION,
    LeaderAndIsr,
    LiveLeader,
    PartitionState,
    PeerAnswer,
    PeerRequest,
    RequestType,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from penstock.drivers.doubts import Doubts
from penstock.drivers.followers import Followers
from penstock.drivers.holdings import Holdings
from penstock.drivers.loop import Loop
from penstock.drivers.steps import Reply, run_steps
from penstock.metadata.image import Image, PartitionImage
from penstock.replication.errors import InconsistentTopicIdError, UnknownTopicOrPartitionError
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

Done = Callable[[PeerAnswer], object]
Errors = dict[TopicPartition, PenstockError]


class Replicas:
    """`broker_epoch` is this broker's life, as its registration has it; -1 while it has none, when every request has to wait."""

    def __init__(
        self,
        *,
        node_id: int,
        loop: Loop,
        clock: Clock,
        image: Image,
        holdings: Holdings,
        followers: Followers,
        roles_changed: Callable[[set[str]], object],
        brokers_changed: Callable[[Iterable[LiveLeader]], object] = lambda _brokers: None,
        brokers_gone: Callable[[set[int]], object] = lambda _brokers: None,
    ) -> None:
        """`roles_changed` hears of topics whose partitions changed hands, `brokers_changed` of where other brokers are, `brokers_gone`
        of those that are not there any more, when everything else is as it was told."""
        self._node_id = node_id
        self._loop = loop
        self._clock = clock
        self._image = image
        self._holdings = holdings
        self._followers = followers
        self._roles_changed = roles_changed
        self._brokers_changed = brokers_changed
        self._brokers_gone = brokers_gone
        self.doubts: Doubts | None = None
        """Logs to be cut before they follow; None where there are none."""
        self.broker_epoch = -1
        self.controller_id = -1
        self.controller_epoch = 0
        self._serial = 0
        """Of the newest request that was carried out in this controller epoch."""
        self._queue: deque[tuple[PeerRequest, Done]] = deque()
        self._is_busy = False
        self.is_told = False
        """Whether clients' metadata came: who coordinates must know of every partition that there is."""
        self._untold: set[str] = set()
        """Topics whose roles came before the news of them."""
        self._waiting_for_news: list[Callable[[], object]] = []

    def when_told(self, go_on: Callable[[], object]) -> None:
        """Calls back when the controller has told what there is, for the first time."""
        if self.is_told:
            go_on()
        else:
            self._waiting_for_news.append(go_on)

    # One after the other.
    def take(self, request: PeerRequest, done: Done) -> None:
        """Carries a request out in its turn; `done` gets the answer, at once where nothing stands before it."""
        self._queue.append((request, done))
        self._next()

    def _next(self) -> None:
        while self._queue and not self._is_busy:
            request, done = self._queue.popleft()
            self._is_busy = True
            run_steps(self._taken(request), partial(self._finished, done))

    async def _taken(self, request: PeerRequest) -> PeerAnswer:
        try:
            refusal = self._refusal(request)
            if refusal is None and isinstance(request, LeaderAndIsr):
                refusal = await self._prepare(request)
            if refusal is not None:
                logger.info("refused: %s", refusal)
                return PeerAnswer(error=refusal)
            answer = self._carry_out(request)
            # What the request took away is gone for good when the controller hears of it.
            job = self._holdings.directories.sync_names()
            outcome = None if job is None else await self._in_thread(job)
            if isinstance(outcome, BaseException):
                return PeerAnswer(error=BrokerNotAvailableError(f"what was taken away may come back: {outcome}"))
            return answer
        finally:
            self._is_busy = False

    def _finished(self, done: Done, answer: PeerAnswer) -> None:
        done(answer)
        self._next()

    # What roles need of the disk.
    async def _prepare(self, request: LeaderAndIsr) -> PenstockError | None:
        """Makes directories, and settles doubts. From here on the request is carried out, even if this broker's session ends meanwhile:
        as if it had been a moment earlier. What was settled for a role without getting it would be in doubt no more, and not cut."""
        job = self._directories_for(request)
        outcome = None if job is None else await self._in_thread(job)
        if isinstance(outcome, BaseException):
            logger.warning("directories could not be prepared: %s", outcome)  # whoever opens them meets it again
        if self.doubts is None or not len(self.doubts):
            return None
        states = [state for state in request.partitions if self._will_be_taken(state, self.doubts)]
        cuts = [
            (state.topic_partition, self.doubts.offset(state.topic_partition))
            for state in states
            if state.leader != self._node_id
        ]
        try:
            for topic_partition, offset in cuts:
                await self._cut(topic_partition, offset)
            job = self.doubts.settle(one.topic_partition for one in states)
            if job is not None:
                await self._in_thread_or_raise(job)
        except PenstockError as error:
            return BrokerNotAvailableError(f"logs that may have lost records cannot be made ready: {error}")
        return None

    def _will_be_taken(self, state: PartitionState, doubts: Doubts) -> bool:
        """Whether a log in doubt gets a role by this, and so leaves it; or a new one, where that in doubt went with an earlier topic."""
        key, directories = state.topic_partition, self._holdings.directories
        if key not in doubts or state.leader < 0 or self._node_id not in state.replicas:
            return False
        if directories.get(key) is None:
            return not self._holdings.is_out_of_reach(key, is_new=state.is_new)
        known = self._holdings.partitions.find(*key)
        is_stale = known is not None and known.leader_epoch > state.leader_epoch
        return not is_stale and directories.home(key).health.failure is None

    async def _cut(self, topic_partition: TopicPartition, offset: int) -> None:
        directories = self._holdings.directories
        log = directories.get(topic_partition)
        if log is None or log.end_offset <= offset:
            return
        logger.info("%s may have lost records: cut to %d", topic_partition, offset)
        while (job := directories.before_cut(topic_partition, offset)) is not None:
            await self._in_thread_or_raise(job)
        directories.truncate(topic_partition, offset)

    async def _in_thread_or_raise(self, job: Callable[[], None]) -> None:
        outcome = await self._in_thread(job)
        if isinstance(outcome, BaseException):
            raise outcome if isinstance(outcome, PenstockError) else StorageError(str(outcome))

    def _in_thread(self, job: Callable[[], None]) -> Reply[BaseException | None]:
        reply: Reply[BaseException | None] = Reply()
        self._loop.run_in_thread(job, reply.give)
        return reply

    def _directories_for(self, request: LeaderAndIsr) -> Callable[[], None] | None:
        wanted: dict[TopicPartition, uuid.UUID] = {
            state.topic_partition: state.topic_id
            for state in request.partitions
            if self._node_id in state.replicas
            and state.leader != LEADER_DURING_DELETION
            and self._holdings.partitions.find(state.topic, state.partition) is None
            and not self._holdings.is_out_of_reach(state.topic_partition, is_new=state.is_new)
        }
        return self._holdings.prepare(wanted)

    def _refusal(self, request: PeerRequest) -> PenstockError | None:
        if request.controller_epoch < self.controller_epoch:
            return StaleControllerEpochError(
                f"controller {request.controller_id} has epoch {request.controller_epoch}, "
                f"known is {self.controller_epoch}"
            )
        if request.controller_epoch == self.controller_epoch and request.serial < self._serial:
            return StaleControllerEpochError(
                f"request {request.serial} of controller {request.controller_id} comes after {self._serial}"
            )
        if self.broker_epoch < 0:
            # A request for the life before this one may be on its way still, to make a leader of a log that lost its end.
            return BrokerNotAvailableError("this broker is not registered for now")
        if 0 <= request.broker_epoch < self.broker_epoch:
            return StaleBrokerEpochError(
                f"the request is for epoch {request.broker_epoch} of this broker, which is in {self.broker_epoch}"
            )
        return None

    def _carry_out(self, request: PeerRequest) -> PeerAnswer:
        self.controller_id, self.controller_epoch = request.controller_id, request.controller_epoch
        self._serial = request.serial
        if isinstance(request, LeaderAndIsr):
            return self._become(request)
        if isinstance(request, StopReplica):
            return self._stop(request)
        return self._tell(request)

    # Roles.
    def _become(self, request: LeaderAndIsr) -> PeerAnswer:
        self._brokers_changed(request.live_leaders)
        if request.type is RequestType.FULL:
            self._holdings.set_strays_aside({state.topic_partition for state in request.partitions})
        errors: Errors = {}
        taken: dict[TopicPartition, tuple[Partition, PartitionState]] = {}
        for state in request.partitions:
            if state.leader == LEADER_DURING_DELETION:
                continue  # StopReplica follows
            try:
                partition = self._check(state)
            except PenstockError as error:
                errors[state.topic_partition] = error
                continue
            taken[state.topic_partition] = partition, state
            # Followers ask by id, and may do so before clients are told of the topic.
            self._image.names_by_id[state.topic_id.bytes] = state.topic
        now_ms = self._clock.monotonic_ms()
        for topic_partition, (partition, state) in taken.items():
            if partition.leader_epoch != state.leader_epoch or partition.is_leader:
                self._followers.unfollow(topic_partition)
            partition.take_role(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                replicas=state.replicas,
                partition_epoch=state.partition_epoch,
                now_ms=now_ms,
                has_eligible=state.has_eligible,
            )
            self._holdings.changed(topic_partition)
        for topic_partition, (partition, _) in taken.items():
            try:
                partition.log.check_online()  # the controller hears of a failed directory by its logs, and moves their leaders
                self._follow(partition)
            except PenstockError as error:
                errors[topic_partition] = error
        self._followers.close_idle()
        self._untold |= {state.topic for _, state in taken.values()}
        if self.is_told:
            self._roles_changed(self._now_told())
        return PeerAnswer(partition_errors=errors)

    def _check(self, state: PartitionState) -> Partition:
        """The partition that takes this state."""
        if self._node_id not in state.replicas:
            raise UnknownTopicOrPartitionError(f"{state.topic_partition} has no replica on broker {self._node_id}")
        partition = self._holdings.find_or_open(state.topic_partition, state.topic_id, is_new=state.is_new)
        if partition.topic_id != state.topic_id.bytes:
            raise InconsistentTopicIdError(f"{state.topic_partition} is of another topic here")
        if state.leader_epoch < partition.leader_epoch:
            raise StaleControllerEpochError(
                f"{state.topic_partition} is in leader epoch {partition.leader_epoch}, the request says {state.leader_epoch}"
            )
        return partition

    def _follow(self, partition: Partition) -> None:
        if partition.is_leader or partition.leader < 0 or self._followers.is_followed(partition.topic_partition):
            return
        self._followers.follow(partition)

    def _stop(self, request: StopReplica) -> PeerAnswer:
        errors: Errors = {}
        topics = set()
        for one in request.partitions:
            partition = self._holdings.partitions.find(one.topic, one.partition)
            if partition is not None:
                topics.add(one.topic)
            try:
                self._stop_one(one, partition)
            except PenstockError as error:
                errors[TopicPartition(one.topic, one.partition)] = error
        self._followers.close_idle()
        self._roles_changed(topics)
        return PeerAnswer(partition_errors=errors)

    def _stop_one(self, one: StoppedPartition, partition: Partition | None) -> None:
        """Where its log is to go and cannot, as its directory failed, the error has the controller wait for this broker's next life."""
        topic_partition = TopicPartition(one.topic, one.partition)
        if partition is None:
            if one.delete:
                self._holdings.remove_left_over(topic_partition)
            return
        if one.leader_epoch != EPOCH_DURING_DELETION and 0 <= one.leader_epoch < partition.leader_epoch:
            raise StaleControllerEpochError(
                f"{topic_partition} is in leader epoch {partition.leader_epoch}, the request says {one.leader_epoch}"
            )
        self._followers.unfollow(topic_partition)
        if one.delete:
            self._holdings.drop(partition)
        else:
            self._holdings.let_go(partition)

    # What clients are told.
    def _tell(self, request: UpdateMetadata) -> PeerAnswer:
        image = self._image
        image.told += 1
        image.controller_id = request.controller_id
        gone = image.brokers.keys() - {broker.broker_id for broker in request.brokers}
        image.tell_brokers(request.brokers)
        topics: dict[str, list[PartitionState]] = {}
        for state in request.partitions:
            topics.setdefault(state.topic, []).append(state)
        self._forget_gone(request, {topic: states[0].topic_id for topic, states in topics.items()})
        for topic, states in topics.items():
            image.forget_partitions(topic, {one.partition for one in states if one.leader == LEADER_DURING_DELETION})
            kept = [state for state in states if state.leader != LEADER_DURING_DELETION]
            if not kept:
                continue
            image.tell_partitions(
                topic,
                kept[0].topic_id,
                {
                    one.partition: PartitionImage(
                        one.replicas, one.leader, one.leader_epoch, one.isr, one.partition_epoch
                    )
                    for one in kept
                },
                {one.partition: one.offline_replicas for one in kept},
            )
            for state in kept:
                self._confirm(state)
        self.is_told = True
        self._untold -= topics.keys()
        self._roles_changed(self._now_told() | topics.keys())
        waiting, self._waiting_for_news = self._waiting_for_news, []
        for go_on in waiting:
            go_on()
        if gone:
            self._brokers_gone(gone)
        return PeerAnswer()

    def _forget_gone(self, request: UpdateMetadata, named: Mapping[str, uuid.UUID]) -> None:
        """Topics of whose end this broker heard nothing: a full account leaves them out, or one of the same name is another."""
        known, is_full = self._image.topics, request.type is RequestType.FULL
        gone = {name for name, topic in known.items() if (topic.topic_id != named[name] if name in named else is_full)}
        for name in gone:
            self._image.forget_topic(name)
        if gone:
            self._roles_changed(gone)

    def _now_told(self) -> set[str]:
        """Topics with new roles, without such as the image lacks: they are not gone, the news of them is on its way."""
        told = self._untold & self._image.topics.keys()
        self._untold -= told
        return told

    def _confirm(self, state: PartitionState) -> None:
        """What the store has of an ISR that this broker leads: the answer to its own request may have been lost."""
        partition = self._holdings.partitions.find(state.topic, state.partition)
        if partition is not None and partition.confirm_isr(
            state.leader_epoch, state.isr, state.partition_epoch, has_eligible=state.has_eligible
        ):
            self._holdings.changed(state.topic_partition)

    def configs_changed(self, topics: Iterable[str]) -> None:
        """Topics whose configurations changed in the image."""
        for topic in topics:
            for partition in self._holdings.partitions.of_topic(topic):
                self._holdings.configure(partition)
