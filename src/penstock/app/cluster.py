"""The parts of a broker that only a cluster needs: the store's session, the controller, replicas, and the ways between brokers."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from penstock.app.cluster_registration import (
    ClusterRegistration,
    claim_directories,
    cluster_id_on_disk,
    node_id_on_disk,
)
from penstock.app.config import BrokerConfig
from penstock.app.generation import read_boot_id, take_generation
from penstock.base.clock import Clock
from penstock.base.errors import ConfigError, PenstockError
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.base.randomness import Randomness
from penstock.controller.peer_requests import LiveLeader
from penstock.controller.topics import TopicDefaults
from penstock.drivers.cluster_producer_ids import ClusterProducerIds
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.cluster_topics import ClusterTopics
from penstock.drivers.config_changes import ConfigChanges
from penstock.drivers.controller import Controller, ControllerSettings
from penstock.drivers.delayed import Delayed
from penstock.drivers.directory_events import DirectoryEvents
from penstock.drivers.doubts import Doubts
from penstock.drivers.flushes import Flushes
from penstock.drivers.followers import Followers, FollowerSettings
from penstock.drivers.holdings import Holdings
from penstock.drivers.isr import IsrDriver
from penstock.drivers.loop import AsyncioLoop
from penstock.drivers.markers import LocalMarkers
from penstock.drivers.replicas import Replicas
from penstock.drivers.steps import run_steps
from penstock.handlers.services import ClusterServices
from penstock.metadata.image import Image
from penstock.metadata.layout import BrokerNode
from penstock.metadata.store import ConnectionLostError, SessionState
from penstock.metadata.zookeeper import ZooKeeperStore
from penstock.peers.channels import BrokerLinks, ControllerLink, LeaderLink
from penstock.peers.link import Address, Link, TcpLink
from penstock.peers.links import Links
from penstock.peers.replica_fetch import FetchLimits
from penstock.peers.transactions import ClusterMarkers, CoordinatorQuestions
from penstock.storage.log_directories import LogDirectories

logger = logging.getLogger(__name__)

T = TypeVar("T")
_SHUTDOWN_TRIES = 3
_SHUTDOWN_SECONDS_MAX = 10
_AGAIN_MS = 500
_PAUSE_SECONDS = 0.05


async def steps(work: Coroutine[Any, Any, T]) -> T:
    """Waits for work in steps from asyncio."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def told() -> None:
        try:
            result = await work
        except Exception as error:
            if not outcome.done():
                outcome.set_exception(error)
        else:
            if not outcome.done():
                outcome.set_result(result)

    run_steps(told(), lambda _none: None)
    return await outcome


class ClusterParts:
    """`open` before the logs are loaded, `make` after that, `register`, `start`; `leave`, then `close`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        loop: AsyncioLoop,
        clock: Clock,
        files: Files,
        randomness: Randomness,
        image: Image,
        new_topic_id: Callable[[], uuid.UUID],
        roles_changed: Callable[[set[str]], object],
        configs_changed: Callable[[], object],
    ) -> None:
        """`roles_changed` hears of topics that changed hands, `configs_changed` when configurations did."""
        self._config = config
        self._loop = loop
        self._clock = clock
        self._files = files
        self._randomness = randomness
        self._image = image
        self._new_topic_id = new_topic_id
        self._roles_changed = roles_changed
        self._configs_changed = configs_changed
        self._asyncio_loop = asyncio.get_running_loop()
        self._session_timeout_ms: int = config["zookeeper.session.timeout.ms"]
        self._zookeeper = ZooKeeperStore(
            config["zookeeper.connect"],
            session_timeout_ms=self._session_timeout_ms,
            clock=clock,
            wake=self._wake,
        )
        self.store = ClusterStore(self._zookeeper, loop)
        self._registration = ClusterRegistration(
            store=self.store,
            loop=loop,
            clock=clock,
            files=files,
            session_timeout_ms=self._session_timeout_ms,
            new_id=new_topic_id,
        )
        self._configs = ConfigChanges(self.store, image, clock, self._take_configs)
        self._broker: BrokerNode | None = None
        self._live_leaders: dict[int, Address] = {}
        self._is_leaving = False
        self._is_open = False

    def _wake(self) -> None:
        """In the store's thread: its events are handed out on the loop."""
        if not self._asyncio_loop.is_closed():
            self._asyncio_loop.call_soon_threadsafe(self.store.hand_out)

    # Starting.
    async def open(self) -> None:
        """The session with the store, and every configuration: logs are loaded with theirs."""
        self.store.start()
        try:
            await asyncio.to_thread(self._zookeeper.connect, self._config["zookeeper.connection.timeout.ms"])
        except asyncio.CancelledError:
            self._zookeeper.give_up()
            raise
        self._is_open = True
        await self._patiently(self._registration.make_permanent_nodes)
        if self._config.node_id < 0:
            self._config.node_id = await self._find_node_id()
        await self._patiently(self._configs.load)
        self._configs_changed()

    async def _find_node_id(self) -> int:
        config = self._config
        known = node_id_on_disk(self._files, config.log_directories)
        if known is not None:
            return known
        if not config["broker.id.generation.enable"]:
            raise ConfigError("this broker has no number; in a cluster give each its own broker.id")
        given = await self._patiently(lambda: self._registration.new_broker_id(config["reserved.broker.max.id"]))
        logger.info("this broker is given number %d, and its directories remember it", given)
        return given

    def make(
        self,
        *,
        holdings: Holdings,
        directories: LogDirectories,
        flushes: Flushes,
        waits: tuple[Delayed[TopicPartition], Delayed[TopicPartition]],
    ) -> ClusterServices:
        config, node_id = self._config, self._config.node_id
        self._directory_events = DirectoryEvents(node_id, self.store, self._loop)
        self._directories = directories
        settings = FollowerSettings.read(config)
        limits = FetchLimits(settings.wait_ms_max, settings.bytes_min, settings.bytes_max, settings.partition_bytes_max)

        def moved(key: TopicPartition) -> None:
            for wait in waits:
                wait.changed(key)

        self._followers = Followers(
            loop=self._loop,
            clock=self._clock,
            cutter=directories,
            flushes=flushes,
            backoff_ms=settings.backoff_ms,
            open_channel=lambda leader: LeaderLink(self._open_link(leader), node_id, self._broker_epoch, limits),
            moved=moved,
        )
        self.replicas = Replicas(
            node_id=node_id,
            loop=self._loop,
            clock=self._clock,
            image=self._image,
            holdings=holdings,
            followers=self._followers,
            roles_changed=self._roles_changed,
            brokers_changed=self._learn_leaders,
            brokers_gone=self._give_up,
        )
        self._to_controller = ControllerLink(
            self._open_link, node_id, self._broker_epoch, lambda: self._image.controller_id
        )
        self._isr = IsrDriver(
            node_id=node_id,
            loop=self._loop,
            clock=self._clock,
            partitions=holdings.partitions,
            channel=self._to_controller,
            lag_ms_max=config["replica.lag.time.max.ms"],
            broker_epoch=self._broker_epoch,
            moved=moved,
        )
        self._broker_links = BrokerLinks(self._open_link)
        interval_s = config["leader.imbalance.check.interval.seconds"]
        self.controller = Controller(
            node_id=node_id,
            loop=self._loop,
            clock=self._clock,
            store=self.store,
            channel=self._broker_links,
            log_values=config.log_values,
            topic_configs=self._image.topic_configs,
            settings=ControllerSettings(
                rebalance_interval_ms=interval_s * 1000 if config["auto.leader.rebalance.enable"] else 0,
                imbalance_percent_max=config["leader.imbalance.per.broker.percentage"],
                listener=config["inter.broker.listener.name"],
                unclean_recovery_timeout_ms=config["unclean.recovery.timeout.ms"],
            ),
        )
        self._questions = CoordinatorQuestions(self._image, self._open_link)
        return ClusterServices(
            replicas=self.replicas,
            isr=self._isr,
            controller=self.controller,
            questions=self._questions,
            reads_from_nearest=config["replica.selector.class"].endswith("RackAwareReplicaSelector"),
        )

    def make_topics(self, defaults: TopicDefaults) -> ClusterTopics:
        self.topics = ClusterTopics(self._image, self.store, defaults, self._new_topic_id, self._loop)
        return self.topics

    def make_markers(self, local: LocalMarkers) -> ClusterMarkers:
        """What ends transactions wherever their partitions are led."""
        self._markers = ClusterMarkers(self._config.node_id, self._loop, self._image, local, self._open_link)
        return self._markers

    def make_producer_ids(self) -> ClusterProducerIds:
        return ClusterProducerIds(self._config.node_id, self.store)

    async def register(self, broker: BrokerNode) -> None:
        """From here on other brokers count on this one."""
        states = self._directories.directories
        on_disk = cluster_id_on_disk(self._files, self._directories)
        self._image.cluster_id = await self._patiently(lambda: self._registration.find_cluster_id(on_disk))
        claim_directories(self._files, self._directories, self._config.node_id, self._image.cluster_id)
        generation = take_generation(self._files, states, read_boot_id(), lambda: str(self._randomness.uuid()))
        self.replicas.doubts = Doubts(self._files, generation, self._directories.recovery_points())
        registered = replace(broker, generation=generation)
        self.replicas.broker_epoch = await self._patiently(lambda: self._registration.register(registered, states))
        self._broker = registered

    async def _patiently(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Again after a lost connection: a long recovery stops the loop, and costs the session."""
        deadline_ms = self._clock.monotonic_ms() + self._config["zookeeper.connection.timeout.ms"]
        while True:
            try:
                return await steps(ask())
            except ConnectionLostError:
                if self._clock.monotonic_ms() > deadline_ms:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)

    def start(self) -> None:
        self.store.on_session(self._session_changed)
        self._configs.start()
        self._isr.start()
        self.controller.start()

    # Living.
    def _session_changed(self, state: SessionState) -> None:
        """A session that expired takes the registration with it: the next one registers anew."""
        if state is SessionState.EXPIRED:
            self.replicas.broker_epoch = -1
        elif state is SessionState.CONNECTED and self.replicas.broker_epoch < 0:
            self._register_again()

    def _register_again(self) -> None:
        if self._is_leaving or self._broker is None or self.replicas.broker_epoch >= 0:
            return

        async def registered() -> None:
            assert self._broker is not None
            try:
                self.replicas.broker_epoch = await self._registration.register(
                    self._broker, self._directories.directories
                )
            except (PenstockError, OSError) as error:
                logger.error("the broker could not register again, and tries on: %s", error)
                self._loop.call_later(_AGAIN_MS, self._register_again)

        run_steps(registered(), lambda _none: None)

    def went_offline(self, partitions: list[TopicPartition]) -> None:
        """A log directory failed: the controller is told, and asks what is left."""
        logger.error("%d partitions of this broker are offline", len(partitions))
        self._directory_events.tell()

    def _take_configs(self, topics: set[str]) -> None:
        self._configs_changed()
        self.replicas.configs_changed(topics)
        self.controller.configs_changed(topics)

    def _broker_epoch(self) -> int:
        return self.replicas.broker_epoch

    def _learn_leaders(self, leaders: Iterable[LiveLeader]) -> None:
        for leader in leaders:
            self._live_leaders[leader.broker_id] = Address(leader.host, leader.port)

    def _links_to_peers(self) -> tuple[Links, ...]:
        """Those on which this broker asks others in its own name."""
        return self._to_controller.links, self._questions.links, self._markers.links

    def _give_up(self, broker_ids: set[int]) -> None:
        for links in self._links_to_peers():
            links.give_up(broker_ids)

    def _open_link(self, broker_id: int) -> Link:
        timeout_ms = self._config["controller.socket.timeout.ms"]
        return TcpLink(lambda: self._address(broker_id), f"broker-{self._config.node_id}", timeout_ms)

    def _address(self, broker_id: int) -> Address | None:
        wanted = self._config["inter.broker.listener.name"]
        for known in (self.controller.cluster.image.brokers if self.controller.is_active else {}, self._image.brokers):
            broker = known.get(broker_id)
            if broker is not None:
                endpoint = broker.endpoint(wanted)
                return Address(endpoint.host, endpoint.port)
        return self._live_leaders.get(broker_id)

    # Stopping.
    async def leave(self) -> None:
        """Asks the controller to move leaders away; a broker that it does not hear stops without."""
        self._is_leaving = True
        if not self._is_open or self._broker is None or not self._config["controlled.shutdown.enable"]:
            return
        for _ in range(_SHUTDOWN_TRIES):
            answer: asyncio.Future[int | PenstockError] = self._asyncio_loop.create_future()

            def answered(told: int | PenstockError, answer: asyncio.Future[int | PenstockError] = answer) -> None:
                if not answer.done():
                    answer.set_result(told)

            self._to_controller.shut_down(answered)
            try:
                left = await asyncio.wait_for(answer, _SHUTDOWN_SECONDS_MAX)
            except TimeoutError:
                continue
            if left == 0:
                logger.info("no partition is led here any more")
                return
            logger.info("before the broker stops: %s", f"{left} partitions led" if isinstance(left, int) else left)
            await asyncio.sleep(_AGAIN_MS / 1000)

    async def close(self) -> None:
        if hasattr(self, "controller"):
            self._directory_events.stop()
            self.controller.stop()
            self._isr.stop()
            self._followers.stop()
            self._broker_links.close()
            for links in self._links_to_peers():
                links.close()
        self.store.stop()
        if self._is_open:
            await asyncio.to_thread(self._zookeeper.close)
