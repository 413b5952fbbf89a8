"""The controller of a cluster (rows C1 to C5): elected through the store, it watches, decides, writes, and tells brokers.

Everything it does is done one thing after the other. Each write is fenced by the version of `/controller_epoch`: whoever was
replaced meanwhile writes nothing, and resigns. What the store answered to nobody (a lost connection) is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.brokers import (
    decide_forget_eligible,
    decide_leaders,
    decide_preferred,
    decide_rebalance,
    decide_shutdown,
    every_key,
    keys_on,
    still_led,
)
from penstock.controller.cluster import Cluster, batches
from penstock.controller.errors import NotControllerError, StaleBrokerEpochError
from penstock.controller.isr_changes import answer_of, check_sender, decide_isr, refusal_of
from penstock.controller.peer_requests import (
    ControlledShutdown,
    IsrChanged,
    IsrRequest,
    LeaderAndIsr,
    PeerAnswer,
    PeerRequest,
    StopReplica,
)
from penstock.controller.recovery import decide_longest, find_leaderless
from penstock.controller.requests import (
    tell_brokers,
    tell_changes,
    tell_everything,
    tell_news,
    tell_return,
    tell_stop,
)
from penstock.controller.topics import decide_remove, decide_states
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.config_changes import telling
from penstock.drivers.controller_election import Holder, stand_for_controller
from penstock.drivers.controller_view import nodes_below, nodes_of, read_brokers, read_image, read_topics
from penstock.drivers.deletions import Deletions
from penstock.drivers.log_ends import Ends, LogEndsChannel
from penstock.drivers.longest_logs import LongestLogs
from penstock.drivers.loop import Loop, Timer
from penstock.drivers.outbox import Outbox, PeerChannel
from penstock.drivers.work_queue import WorkQueue
from penstock.metadata import layout
from penstock.metadata.store import (
    BadVersionError,
    Delete,
    Operation,
    Refused,
    SessionState,
    StoreError,
)

logger = logging.getLogger(__name__)

READ_AGAIN_MS = 500
TELL_MS_MAX = 2_000


class _Replaced(PenstockError):
    """Another controller was elected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    rebalance_interval_ms: int = 0
    """How often leaders are given back to their preferred replicas; 0 for never (`auto.leader.rebalance.enable`)."""
    imbalance_percent_max: int = 10
    listener: str = ""
    """Through which brokers reach each other."""
    unclean_recovery_timeout_ms: int = 300_000
    """How long a partition that nobody can be trusted with waits for all who may have its records."""


class ControllerChannel(PeerChannel, LogEndsChannel, Protocol):
    """The controller's ways to brokers."""


class Controller:
    """`start` once the broker is registered. At most one of a cluster is active at a time."""

    def __init__(
        self,
        *,
        node_id: int,
        loop: Loop,
        clock: Clock,
        store: ClusterStore,
        channel: ControllerChannel,
        log_values: Mapping[str, object],
        topic_configs: dict[str, dict[str, str]],
        settings: ControllerSettings | None = None,
    ) -> None:
        """`topic_configs` is kept in step with the store by whoever else needs it."""
        self._node_id = node_id
        self._loop = loop
        self._clock = clock
        self._store = store
        self._settings = settings or ControllerSettings()
        self._log_values = log_values
        self._topic_configs = topic_configs
        self.cluster = Cluster(controller_id=node_id, log_values=log_values)
        self.is_active = False
        self._rests = False
        self._is_elected = False
        """Before it is active it reads: whatever changes meanwhile is looked at afterwards."""
        self._longest = LongestLogs(
            loop=loop,
            clock=clock,
            channel=channel,
            cluster=lambda: self.cluster if self.is_active else None,
            told=lambda ends: self._work.put_once("longest", lambda: self._take_longest(ends)),
            timeout_ms=self._settings.unclean_recovery_timeout_ms,
        )
        self._outbox = Outbox(loop, channel, self._is_wanted, self._answered)
        self._work = WorkQueue(loop, self._failed)
        self._rebalance: Timer | None = None
        self._changed_configs: set[str] = set()
        self._grown: set[str] = set()
        """Topics whose node changed since it was read."""
        self._failed_logs: dict[int, set[TopicPartition]] = {}
        """What brokers could not take of what they were told, and nothing was done about yet."""
        self._deletions = Deletions(self._outbox.put, self._deleted)

    # Living.
    def start(self) -> None:
        self._store.on_watch(self._watched)
        self._store.on_session(self._session_changed)
        self._work.put_once("elect", self._elect)

    def stop(self) -> None:
        self._work.stop()
        self._resign("the broker stops")

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._resign("its session expired")
        elif state is SessionState.CONNECTED:
            self._work.put_once("elect", self._elect)

    def _watched(self, path: str) -> None:
        if path == layout.CONTROLLER:
            self._work.put_once("elect", self._elect)
        elif not self._is_elected:
            return
        elif path == layout.BROKERS:
            self._work.put_once("brokers", self._brokers_changed)
        elif path == layout.TOPICS:
            self._work.put_once("topics", self._topics_changed)
        elif (name := layout.topic_of(path)) is not None:
            self._grown.add(name)
            self._work.put_once("topics", self._topics_changed)
        elif path == layout.DELETED_TOPICS:
            self._work.put_once("deletions", self._deletions_changed)
        elif path == layout.LOG_DIRECTORY_EVENTS:
            self._work.put_once("log directories", self._directories_failed)

    def _failed(self, name: str, error: Exception) -> None:
        if isinstance(error, _Replaced):
            self._resign(str(error))
            self._work.put_once("elect", self._elect)
            return
        if isinstance(error, StoreError):
            # What happened is not known, or the image is behind: look at all of it again, when there is a connection.
            # Until then it answers nothing: what it refuses must not have happened.
            logger.warning("the controller looks at everything again: %s could not be done: %s", name, error)
            self.is_active = False
            if not self._store.is_connected:
                return
        else:
            logger.error("the controller failed at %s, and resigns", name, exc_info=error)
            self._step_down()
        self._loop.call_later(READ_AGAIN_MS, self._stand_again)

    def _stand_again(self) -> None:
        self._rests = False
        self._work.put_once("elect", self._elect)

    def _step_down(self) -> None:
        """Gives the office back, and lets others have it first: what this broker fails at they may not."""
        self._rests = True
        if self._is_elected:
            self._store.submit(self.cluster.fenced([Delete(path=layout.CONTROLLER)]), lambda _outcome: None)
        self._resign("it failed")

    # Being elected.
    async def _elect(self) -> None:
        if self._rests:
            return
        standing = await stand_for_controller(self._store, self._node_id, self._clock.wall_ms())
        if standing is None:
            self._work.put_once("elect", self._elect)
        elif isinstance(standing, Holder):
            self._resign(f"broker {standing.broker_id} is the controller")
        else:
            self._elected(standing.epoch, standing.version)
            await self._take_over()

    def _elected(self, epoch: int, version: int) -> None:
        if self._is_elected and self.cluster.controller_epoch == epoch:
            return
        logger.info("broker %d is the controller, in epoch %d", self._node_id, epoch)
        self._outbox.clear()
        self.cluster = Cluster(
            controller_id=self._node_id,
            controller_epoch=epoch,
            epoch_version=version,
            log_values=self._log_values,
            listener=self._settings.listener,
        )
        self._is_elected, self.is_active = True, False

    async def _take_over(self) -> None:
        self._grown.clear()
        self._failed_logs.clear()
        self._deletions.clear()
        image = await read_image(self._store)
        image.topic_configs = self._topic_configs
        cluster = self.cluster
        before = {one: broker.epoch for one, broker in cluster.image.brokers.items()}
        alike = {one for one, broker in image.brokers.items() if before.get(one) == broker.epoch}
        for broker_id in before.keys() - alike:
            self._outbox.forget(broker_id)
        cluster.shutting_down &= alike
        cluster.image = image
        self.is_active = True  # not before: what an image says that lacks something costs logs
        new = await self._give_first_states(list(cluster.image.topics))
        await self._commit(decide_leaders(cluster, every_key(cluster)))
        await self._commit(decide_forget_eligible(cluster, cluster.image.topics))
        self._outbox.put(tell_everything(cluster, cluster.image.brokers, new=set(new)))
        self._deletions.start(self.cluster)
        await self._directories_failed()
        self._plan_rebalance()
        self._longest.look()

    def _resign(self, why: str) -> None:
        if self.is_active:
            logger.info("broker %d is not the controller any more: %s", self._node_id, why)
        self.is_active = self._is_elected = False
        self._outbox.clear()
        self._deletions.clear()
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None

    # Brokers.
    async def _brokers_changed(self) -> None:
        if not self.is_active:
            return
        cluster = self.cluster
        before, now = cluster.image.brokers, await read_brokers(self._store)
        dead = before.keys() - now.keys()
        bounced = {one for one in before.keys() & now.keys() if before[one].epoch != now[one].epoch}
        come = (now.keys() - before.keys()) | bounced
        if not dead and not come:
            return
        logger.info("brokers alive: %s; gone: %s; new: %s", sorted(now), sorted(dead), sorted(come))
        for broker_id in dead | bounced:
            self._outbox.forget(broker_id)
            self._deletions.gone(broker_id)
            self._failed_logs.pop(broker_id, None)
            cluster.shutting_down.discard(broker_id)
            self._forget_offline(broker_id)
        cluster.image.brokers = now
        changed = await self._commit(decide_leaders(cluster, keys_on(cluster, dead | bounced), gone=bounced))
        changed += await self._commit(decide_leaders(cluster, keys_on(cluster, come)))
        self._outbox.put(tell_everything(cluster, come))  # first: who was told of something takes it for all there is
        self._outbox.put(tell_changes(cluster, changed) if changed else tell_brokers(cluster))
        self._outbox.put(tell_return(cluster, come, set(changed)))
        self._deletions.start(self.cluster)
        self._longest.look()

    # Where no log can be trusted.
    async def _take_longest(self, ends: Ends) -> None:
        if self.is_active:
            await self._rule(lambda: decide_longest(self.cluster, ends, self._longest.overdue))

    def _forget_offline(self, broker_id: int) -> None:
        offline = self.cluster.image.offline_replicas
        for key in [key for key, replicas in offline.items() if broker_id in replicas]:
            offline[key] = tuple(one for one in offline[key] if one != broker_id)

    # Topics.
    async def _topics_changed(self) -> None:
        if not self.is_active:
            return
        image = self.cluster.image
        names = await self._store.children(layout.TOPICS, watch=True)
        for gone in image.topics.keys() - set(names):
            image.forget_topic(gone)
        due = sorted((set(names) - image.topics.keys()) | (self._grown & set(names)))
        self._grown.clear()
        await read_topics(self._store, image, due)
        new = await self._give_first_states(due)
        self._outbox.put(tell_changes(self.cluster, new, new=new))

    async def _give_first_states(self, names: Iterable[str]) -> list[TopicPartition]:
        image = self.cluster.image
        operations: list[Operation] = []
        new: list[TopicPartition] = []
        for name in names:
            topic = image.topics.get(name)
            if topic is None or name in image.deleting:
                continue
            without = [TopicPartition(name, number) for number, one in topic.partitions.items() if one.leader_epoch < 0]
            if without:
                new += without
                operations += decide_states(self.cluster, topic, await nodes_below(self._store, name))
        await self._commit(operations)
        return new

    async def _deletions_changed(self) -> None:
        if not self.is_active:
            return
        image = self.cluster.image
        image.deleting = set(await self._store.children(layout.DELETED_TOPICS, watch=True))
        await self._topics_changed()
        self._deletions.start(self.cluster)

    def _deleted(self, name: str) -> None:
        self._work.put_once(f"end {name}", lambda: self._end_deletion(name))

    async def _end_deletion(self, name: str) -> None:
        if not self.is_active or name not in self.cluster.image.deleting:
            return
        there = await nodes_of(self._store, name)
        await self._commit(telling(decide_remove(name, there, logs_are_gone=True)).operations)
        self._deletions.forget(name)
        logger.info("topic %s is deleted", name)

    def configs_changed(self, topics: Collection[str]) -> None:
        """Topics whose configuration changed: their min ISR perhaps, or whether an unclean leader will do."""
        if self.is_active:
            self._changed_configs.update(topics)
            self._work.put_once("configurations", self._use_configs)

    async def _use_configs(self) -> None:
        topics, self._changed_configs = self._changed_configs, set()
        if self.is_active:
            changed = await self._commit(decide_forget_eligible(self.cluster, topics))
            self._outbox.put(tell_news(self.cluster, changed))
            leaderless = [key for key in find_leaderless(self.cluster) if key.topic in topics]
            led = await self._commit(decide_leaders(self.cluster, leaderless))
            self._outbox.put(tell_changes(self.cluster, led))

    # What leaders and brokers ask.
    def alter_partition(
        self, request: IsrRequest, done: Callable[[Sequence[IsrChanged] | PenstockError], object]
    ) -> None:
        self._asked("an ISR change", lambda: self._alter(request), done)

    async def _alter(self, request: IsrRequest) -> Sequence[IsrChanged]:
        check_sender(self.cluster, request)
        refused: dict[int, IsrChanged] = {}
        operations: list[Operation] = []
        for index, change in enumerate(request.changes):
            try:
                decided = decide_isr(self.cluster, request, change)
            except PenstockError as error:
                refused[index] = refusal_of(change, error)
            else:
                operations += [] if decided is None else [decided]
        changed = await self._commit(operations)
        self._outbox.put(tell_news(self.cluster, changed))
        return [
            refused[index] if index in refused else answer_of(self.cluster, change)
            for index, change in enumerate(request.changes)
        ]

    def shut_down(
        self, request: ControlledShutdown, done: Callable[[Sequence[TopicPartition] | PenstockError], object]
    ) -> None:
        """Moves leaders away from a broker that is about to stop; `done` gets the partitions that it still leads."""
        self._asked("a controlled shutdown", lambda: self._shut_down(request), self._when_told(done))

    def _when_told(self, done: Callable[[Any], object]) -> Callable[[Any], object]:
        """`done`, but not before every broker knows the new leaders: whoever hears that there are some asks any broker who they are.

        A client that loses its connection asks one of them, once, and again a second later.
        """
        return lambda answer: self._outbox.when_heard(lambda: done(answer), TELL_MS_MAX)

    async def _shut_down(self, request: ControlledShutdown) -> Sequence[TopicPartition]:
        cluster, broker_id = self.cluster, request.broker_id
        broker = cluster.image.brokers.get(broker_id)
        if broker is None or request.broker_epoch not in (-1, broker.epoch):
            raise StaleBrokerEpochError(f"broker {broker_id} is not registered in epoch {request.broker_epoch}")
        cluster.shutting_down.add(broker_id)
        changed = await self._commit(decide_shutdown(cluster, broker_id))
        self._outbox.put(tell_changes(cluster, changed))
        self._outbox.put(tell_stop(cluster, broker_id, changed))
        return still_led(cluster, broker_id)

    def elect_preferred(self, keys: Collection[TopicPartition], done: Callable[[PenstockError | None], object]) -> None:
        self._asked(
            "a preferred election",
            lambda: self._rule(lambda: decide_preferred(self.cluster, keys)),
            self._when_told(done),
        )

    def elect_unclean(self, keys: Collection[TopicPartition], done: Callable[[PenstockError | None], object]) -> None:
        self._asked(
            "an unclean election",
            lambda: self._rule(lambda: decide_leaders(self.cluster, keys, even_unclean=True)),
            self._when_told(done),
        )

    async def _rule(self, decide: Callable[[], list[Operation]]) -> None:
        changed = await self._commit(decide())
        self._outbox.put(tell_changes(self.cluster, changed))

    def _asked(self, what: str, ask: Callable[[], Coroutine[Any, Any, Any]], done: Callable[[Any], object]) -> None:
        async def work() -> None:
            if not self.is_active:
                done(NotControllerError(f"broker {self._node_id} is not the controller"))
                return
            try:
                answer = await ask()
            except StoreError as error:
                done(NotControllerError(f"{what} is not known to have happened: {error}"))
                raise
            except PenstockError as error:
                done(NotControllerError(str(error)) if isinstance(error, _Replaced) else error)
                if isinstance(error, _Replaced):
                    raise
                return
            done(answer)

        if self._work.is_stopped:
            done(NotControllerError(f"broker {self._node_id} stops"))
        else:
            self._work.put(what, work)

    # Writing and telling.
    async def _commit(self, operations: Iterable[Operation]) -> list[TopicPartition]:
        """Writes, and takes what was confirmed into the image. Returns the partitions that changed."""
        changed: list[TopicPartition] = []
        cluster = self.cluster
        for transaction in batches(cluster, list(operations)):
            outcome = await self._store.commit(transaction)
            if isinstance(outcome, Refused):
                if outcome.index == 0 and isinstance(outcome.error, BadVersionError):
                    raise _Replaced("another controller was elected")
                raise outcome.error
            cluster.image.apply(outcome)
            changed += [
                key
                for operation in transaction.operations
                if not isinstance(operation, Delete) and (key := layout.partition_of(operation.path)) is not None
            ]
        return changed

    def _is_wanted(self, broker_id: int, request: PeerRequest) -> bool:
        broker = self.cluster.image.brokers.get(broker_id)
        return (
            self.is_active
            and broker is not None
            and broker.epoch == request.broker_epoch
            and request.controller_epoch == self.cluster.controller_epoch
        )

    def _answered(self, broker_id: int, request: PeerRequest, answer: PeerAnswer) -> None:
        if not self.is_active:
            return
        if isinstance(request, StopReplica):
            self._deletions.stopped(broker_id, request, answer)
        elif isinstance(request, LeaderAndIsr):
            failed = [key for key, error in answer.partition_errors.items() if isinstance(error, StorageError)]
            if failed:
                self._failed_logs.setdefault(broker_id, set()).update(failed)
                self._work.put_once("failed logs", self._logs_failed)

    async def _directories_failed(self) -> None:
        """Brokers that lost a log directory say so: each is told its roles, and answers which it cannot take."""
        if not self.is_active:
            return
        names = await self._store.children(layout.LOG_DIRECTORY_EVENTS, watch=True)
        found = await self._store.all_data([f"{layout.LOG_DIRECTORY_EVENTS}/{name}" for name in names])
        brokers = {layout.decode_log_directory_event(path, node.data) for path, node in found.items()}
        self._outbox.put(tell_everything(self.cluster, brokers))
        await self._commit([Delete(path=path) for path in found])

    async def _logs_failed(self) -> None:
        if not self.is_active:
            return
        failed, self._failed_logs = self._failed_logs, {}
        image = self.cluster.image
        # Only what is new: the broker answers so each time that it is told of them, also by this.
        new = sorted({key for broker_id, keys in failed.items() for key in image.set_offline(keys, broker_id)})
        await self._commit(decide_leaders(self.cluster, new))
        self._outbox.put(tell_changes(self.cluster, new))
        self._longest.look()

    # Leaders go home.
    def _plan_rebalance(self) -> None:
        if self._settings.rebalance_interval_ms > 0 and self._rebalance is None:
            self._rebalance = self._loop.call_later(self._settings.rebalance_interval_ms, self._rebalance_due)

    def _rebalance_due(self) -> None:
        self._rebalance = None
        if self.is_active:
            percent = self._settings.imbalance_percent_max
            self._work.put_once("rebalance", lambda: self._rule(lambda: decide_rebalance(self.cluster, percent)))
            self._plan_rebalance()
