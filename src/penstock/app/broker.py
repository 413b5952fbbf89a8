"""One broker: made from its configuration, started, stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.app.config import BrokerConfig
from penstock.app.listeners import told_address
from penstock.app.metrics import BrokerMetrics
from penstock.app.progress import RecoveryProgress
from penstock.app.registration import Registration
from penstock.base.clock import SystemClock
from penstock.base.errors import ConfigError, LogDirectoryError
from penstock.base.files import Files, SystemFiles
from penstock.base.ids import TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.base.randomness import SystemRandomness, new_topic_id
from penstock.controller.leaders import decide_offline
from penstock.controller.topics import TopicDefaults
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.transactions.config import TransactionSettings
from penstock.drivers.appends import HeavyAppends
from penstock.drivers.cleaner import Cleaner
from penstock.drivers.delayed import Delayed
from penstock.drivers.failures import Failures
from penstock.drivers.flushes import Flushes
from penstock.drivers.groups import GroupDriver
from penstock.drivers.holdings import Holdings
from penstock.drivers.housekeeping import Housekeeping
from penstock.drivers.loop import AsyncioLoop
from penstock.drivers.loop_watch import LoopWatch
from penstock.drivers.markers import LocalMarkers
from penstock.drivers.moves import Moves
from penstock.drivers.producer_ids import ProducerIds
from penstock.drivers.roles import RoleDriver
from penstock.drivers.shards import ShardsSurroundings
from penstock.drivers.store import StoreDriver
from penstock.drivers.topics import TopicDriver
from penstock.drivers.transactions import TransactionDriver
from penstock.handlers.authoriser import AllowAll
from penstock.handlers.registry import make_registry
from penstock.handlers.services import ClusterServices, Services
from penstock.metadata import layout
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.replication.fetch_sessions import FetchSessions
from penstock.replication.partitions import Partitions
from penstock.server.dispatch import Dispatch, Dispatcher
from penstock.server.listener import Address, Server
from penstock.server.metrics_page import MetricsPage
from penstock.server.turn import Turn
from penstock.storage.config import LogConfig, stored_log_config
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories

if TYPE_CHECKING:
    from penstock.app.cluster import ClusterParts

logger = logging.getLogger(__name__)

CLOSING_THREADS = 8
"""They wait for the disk, which takes the syncs of several at once: two need more than twice as long, sixteen no less."""


class Broker:
    """`start`, then `stop`, once each, on one event loop. `failed` is set when the broker cannot go on."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        intercept: Callable[[Dispatch], Dispatch] = lambda dispatch: dispatch,
        files: Files | None = None,
    ) -> None:
        """`intercept` stands between connections and dispatch, `files` before the disk: for tests that want faults."""
        self.config = config
        self._intercept = intercept
        self.failed = asyncio.Event()
        self.endpoints: tuple[Address, ...] = ()
        self._clock = SystemClock()
        self._files: Files = files or SystemFiles()
        self._randomness = SystemRandomness()
        # Compactions last long: flushes never wait for a thread that one of them holds.
        self._loop = AsyncioLoop(asyncio.get_running_loop(), threads=4 + config["log.cleaner.threads"])
        self._image = Image()
        self._partitions = Partitions()
        self._store: EmbeddedStore | None = None
        self._cluster: ClusterParts | None = self._make_cluster() if config["zookeeper.connect"] else None
        self._dynamic: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self._directories = LogDirectories(
            config.log_directories,
            self._files,
            self._clock,
            config_for=self._config_for,
            jobs=ThreadJobs(config["num.recovery.threads.per.data.dir"]),
            closing_jobs=ThreadJobs(max(CLOSING_THREADS, config["num.recovery.threads.per.data.dir"])),
            new_id=self._randomness.uuid,
            jitter_for=self._jitter_ms,
            node_id=config.node_id,
        )
        self._waits: tuple[Delayed[TopicPartition], ...] = ()
        self._roles: RoleDriver | None = None
        self._server: Server | None = None
        self._housekeeping: Housekeeping | None = None
        self._cleaner: Cleaner | None = None
        self._groups: GroupDriver | None = None
        self._transactions: TransactionDriver | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._watch = LoopWatch(self._loop, self._clock)
        self._metrics_page: MetricsPage | None = None

    # Starting.
    async def start(self) -> None:
        for complaint in self.config.complaints:
            logger.warning("%s", complaint)
        for path in self.config.log_directories:
            self._make_parents(path)
        if self._cluster is not None:
            await self._cluster.open()
            self._directories.node_id = self.config.node_id
        progress = RecoveryProgress(self._clock)
        for report in self._directories.open(progress.segment):
            progress.partition(report)
        self._check_directories()
        waits = self._waits = self._make_waits()
        holdings = Holdings(
            node_id=self.config.node_id,
            image=self._image,
            partitions=self._partitions,
            directories=self._directories,
            log_values=self.config.log_values,
            loop=self._loop,
            waits=waits,
        )
        if self._cluster is None:
            services, failures = self._make_alone(holdings, waits)
        else:
            services, failures = self._make_clustered(self._cluster, holdings, waits)
        dispatcher = Dispatcher(make_registry(cluster=self._cluster is not None), services, self._loop.run_in_thread)
        dispatch = self._intercept(dispatcher.dispatch)
        is_intercepted = dispatch != dispatcher.dispatch
        self._server = Server(
            dispatch,
            frame_bytes_max=self.config["socket.request.max.bytes"],
            connections_max=self.config["max.connections"],
            backlog=self.config["socket.listen.backlog.size"],
            run_in_thread=self._loop.run_in_thread,
            turn=None if is_intercepted else Turn(dispatcher),
        )
        self.endpoints = tuple([await self._server.bind(address) for address in self.config.listeners])
        if self._cluster is None:
            moving = self._register()
            self._follow(self._image.topics)
            for partition, target in moving.items():
                services.moves.start(partition, target)
        else:
            await self._cluster.register(self._broker_node())
        self._start_housekeeping(services, failures)
        self._watch.start()
        await self._start_metrics(services, dispatcher)
        await self._server.start()
        for bound in self.endpoints:
            if self.advertised(bound) != bound:
                logger.info("listening at %s; clients are told %s", bound, self.advertised(bound))
        if self._cluster is not None:
            self._cluster.start()

    def _make_alone(
        self, holdings: Holdings, waits: tuple[Delayed[TopicPartition], Delayed[TopicPartition]]
    ) -> tuple[Services, Failures]:
        """A node of its own: the store is a journal, and roles come from it."""
        self._open_store()
        self._roles = RoleDriver(node_id=self.config.node_id, image=self._image, holdings=holdings)
        store = StoreDriver(
            self._opened_store,
            self._image,
            self._loop,
            prepare=self._roles.prepare,
            applied=self._follow,
            failed=self._fail,
        )

        def went_offline(partitions: list[TopicPartition]) -> None:
            self._image.set_offline(partitions, self.config.node_id)
            store.submit(decide_offline(self._image, partitions), lambda event: None)

        failures = Failures(self._directories, waits, went_offline=went_offline, all_failed=self._fail)
        flushes = Flushes(self._loop, waits, failures)
        blocks = [node.data for node in self._opened_store.nodes() if node.path == layout.PRODUCER_IDS]
        topics = TopicDriver(
            self._image,
            store,
            self._topic_defaults(),
            self._new_topic_id,
            is_every_log_here=lambda: not self._directories.has_failed,
        )
        producer_ids = ProducerIds(self.config.node_id, store, blocks[0] if blocks else None)
        return self._make_services(waits, failures, flushes, topics, producer_ids, None), failures

    def _make_clustered(
        self,
        cluster: ClusterParts,
        holdings: Holdings,
        waits: tuple[Delayed[TopicPartition], Delayed[TopicPartition]],
    ) -> tuple[Services, Failures]:
        """One of several: the store is ZooKeeper, and roles come from the controller."""
        failures = Failures(self._directories, waits, went_offline=cluster.went_offline, all_failed=self._fail)
        flushes = Flushes(self._loop, waits, failures)
        parts = cluster.make(holdings=holdings, directories=self._directories, flushes=flushes, waits=waits)
        topics, producer_ids = cluster.make_topics(self._topic_defaults()), cluster.make_producer_ids()
        return self._make_services(waits, failures, flushes, topics, producer_ids, parts), failures

    def _make_cluster(self) -> ClusterParts:
        from penstock.app.cluster import ClusterParts  # a broker alone starts without the cluster's code

        return ClusterParts(
            self.config,
            loop=self._loop,
            clock=self._clock,
            files=self._files,
            randomness=self._randomness,
            image=self._image,
            new_topic_id=self._new_topic_id,
            roles_changed=self._follow,
            configs_changed=self._use_dynamic,
        )

    async def _start_metrics(self, services: Services, dispatcher: Dispatcher) -> None:
        address = self.config.metrics_address
        if address is None:
            return
        assert self._server is not None
        self._metrics_page = MetricsPage(
            BrokerMetrics(
                clock=self._clock,
                services=services,
                directories=self._directories,
                dispatcher=dispatcher,
                server=self._server,
                watch=self._watch,
            )
        )
        try:
            bound = await self._metrics_page.start(address)
        except ConfigError as error:
            raise ConfigError(f"metrics.listener: {error}") from None
        told = bound if bound.host else replace(bound, host="localhost")
        logger.info("metrics are at http://%s/metrics", str(told).partition("://")[2])

    def _follow(self, topics: Iterable[str]) -> None:
        names = tuple(topics)
        self._use_dynamic()
        if self._roles is not None:
            self._roles.follow(names)
        if self._cluster is not None:
            self._cluster.topics.follow(names)
        if self._groups is not None:
            self._groups.follow(names)
        if self._transactions is not None:
            self._transactions.follow(names)

    def _use_dynamic(self) -> None:
        """Takes over brokers' configurations that were changed in the tree; most are looked up when they are needed."""
        configs = self._image.broker_configs
        layers = configs.get(layout.CLUSTER_DEFAULT, {}), configs.get(str(self.config.node_id), {})
        if layers == self._dynamic:
            return
        self._dynamic = layers
        for complaint in self.config.use_dynamic(*layers):
            logger.warning("%s", complaint)
        if self._server is not None:
            self._server.connections_max = self.config["max.connections"]

    @staticmethod
    def _make_parents(path: str) -> None:
        parent = os.path.dirname(os.path.abspath(path))
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError as error:
            raise LogDirectoryError(
                f"log directory {path} cannot be made: {error.filename}: {error.strerror}"
            ) from None

    def _check_directories(self) -> None:
        for reason in self._directories.offline.values():
            logger.error("%s", reason)
        first = self.config.log_directories[0].rstrip("/")
        if self._cluster is None and all(state.path != first for state in self._directories.directories):
            reason = self._directories.offline.get(self.config.log_directories[0], f"{first} is offline")
            raise LogDirectoryError(f"{reason}; it holds the broker's metadata, so it must come back first")

    def _config_for(self, partition: TopicPartition) -> LogConfig:
        """A log's configuration while directories are loaded: the first one is locked by then, and holds the journal."""
        if self._cluster is None:
            self._open_store()
        return stored_log_config(self._image.topic_configs.get(partition.topic, {}), self.config.log_values)

    def _open_store(self) -> None:
        if self._store is None:
            self._store = EmbeddedStore(self._files, self.config.log_directories[0].rstrip("/"), self._clock)
            if self._store.cut is not None:
                logger.log(logging.ERROR if self._store.cut.entries_after else logging.WARNING, "%s", self._store.cut)
            self._image.load(self._store.nodes())
            self._use_dynamic()

    @property
    def _opened_store(self) -> EmbeddedStore:
        assert self._store is not None
        return self._store

    def _register(self) -> dict[TopicPartition, DirectoryState]:
        """Everything the tree must say before the first client is served."""
        registration = Registration(
            store=self._opened_store,
            image=self._image,
            directories=self._directories,
            files=self._files,
            new_id=self._new_topic_id,
        )
        return registration.register(self._broker_node(), self._clock.wall_ms())

    def _broker_node(self) -> BrokerNode:
        endpoints = tuple(
            Endpoint(listener=bound.name, security_protocol="PLAINTEXT", host=told.host, port=told.port)
            for bound in self.endpoints
            for told in (self.advertised(bound),)
        )
        return BrokerNode(broker_id=self.config.node_id, endpoints=endpoints, rack=self.config["broker.rack"] or None)

    def advertised(self, bound: Address) -> Address:
        """What clients are told of a listener: never an address that means every interface."""
        return told_address(bound, self.config.advertised)

    def _make_waits(self) -> tuple[Delayed[TopicPartition], Delayed[TopicPartition]]:
        return Delayed("Produce", self._clock, self._loop), Delayed("Fetch", self._clock, self._loop)

    def _topic_defaults(self) -> TopicDefaults:
        return TopicDefaults(
            partitions=self.config["num.partitions"],
            replication_factor=self.config["default.replication.factor"],
            log_values=self.config.log_values,
        )

    def _make_services(
        self,
        waits: tuple[Delayed[TopicPartition], Delayed[TopicPartition]],
        failures: Failures,
        flushes: Flushes,
        topics: TopicDriver,
        producer_ids: ProducerIds,
        cluster: ClusterServices | None,
    ) -> Services:
        config = self.config
        surroundings = ShardsSurroundings(
            loop=self._loop,
            image=self._image,
            partitions=self._partitions,
            topics=topics,
            flushes=flushes,
            produce_waits=waits[0],
            fetch_waits=waits[1],
            is_in_cluster=cluster is not None,
        )
        self._groups = GroupDriver(
            surroundings,
            clock=self._clock,
            settings=GroupSettings.read(config),
            new_suffix=lambda: str(self._randomness.uuid()),
        )
        for log in self._directories.logs.values():
            for producer in log.producers.values():
                producer_ids.pass_over(producer.producer_id)
        markers = LocalMarkers(surroundings, self._groups, self._clock)
        self._transactions = TransactionDriver(
            surroundings,
            clock=self._clock,
            settings=TransactionSettings.read(config),
            producer_ids=producer_ids,
            markers=markers if self._cluster is None else self._cluster.make_markers(markers),
        )
        return Services(
            node_id=config.node_id,
            clock=self._clock,
            image=self._image,
            partitions=self._partitions,
            directories=self._directories,
            moves=Moves(
                loop=self._loop,
                files=self._files,
                directories=self._directories,
                partitions=self._partitions,
                failures=failures,
                new_id=self._randomness.uuid,
            ),
            produce_waits=waits[0],
            fetch_waits=waits[1],
            fetch_sessions=FetchSessions(
                self._clock,
                config["max.incremental.fetch.session.cache.slots"],
                lambda: 1 + self._randomness.below(2**31 - 1),
            ),
            flushes=flushes,
            groups=self._groups,
            transactions=self._transactions,
            markers=markers,
            heavy_appends=HeavyAppends(self._loop, self._clock),
            topics=topics,
            producer_ids=producer_ids,
            authoriser=AllowAll(),
            settings=config,
            cluster=cluster,
        )

    def _start_housekeeping(self, services: Services, failures: Failures) -> None:
        self._housekeeping = Housekeeping(
            loop=self._loop,
            clock=self._clock,
            files=self._files,
            directories=self._directories,
            partitions=self._partitions,
            flushes=services.flushes,
            failures=failures,
            values=self.config,
        )
        self._housekeeping.start()
        services.groups.start()
        services.transactions.start()
        self._start_cleaner(failures)
        self._plan_idle_check()

    def _start_cleaner(self, failures: Failures) -> None:
        self._cleaner = Cleaner(
            loop=self._loop,
            clock=self._clock,
            files=self._files,
            directories=self._directories,
            failures=failures,
            values=self.config,
            new_seed=partial(self._randomness.bytes, 16),
        )
        self._cleaner.start()

    def _plan_idle_check(self) -> None:
        idle_ms = self.config["connections.max.idle.ms"]
        if idle_ms > 0:
            # Silent for a whole interval means silent for `idle_ms` at least, and less than twice that.
            self._idle_timer = asyncio.get_running_loop().call_later(idle_ms / 1000, self._close_idle)

    def _close_idle(self) -> None:
        if self._server is not None:
            self._server.close_idle()
        self._plan_idle_check()

    def _fail(self, reason: str) -> None:
        logger.critical("%s", reason)
        self.failed.set()

    # Stopping.
    async def stop(self) -> list[str]:
        """A clean end: nothing is accepted, everything is flushed, the marker is written. Returns what went wrong."""
        if self._cluster is not None:
            await self._cluster.leave()
        if self._server is not None:
            self._server.stop()
        if self._housekeeping is not None:
            self._housekeeping.stop()
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._groups is not None:
            self._groups.stop()
        if self._transactions is not None:
            self._transactions.stop()
        for waits in self._waits:
            waits.stop()
        self._watch.stop()
        if self._metrics_page is not None:
            self._metrics_page.stop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._cluster is not None:
            await self._cluster.close()
        await asyncio.sleep(0)
        await asyncio.to_thread(self._loop.close)
        await asyncio.sleep(0)
        complaints = []
        try:
            if self._store is not None:
                self._store.close()
        except OSError as error:
            complaints.append(f"the metadata journal cannot be closed: {error}")
        # Nobody asks the logs for anything now; whoever still has a turn is refused. The loop goes on turning meanwhile.
        return complaints + await asyncio.to_thread(self._directories.close_job())

    def _new_topic_id(self) -> uuid.UUID:
        return new_topic_id(self._randomness)

    def _jitter_ms(self, config: LogConfig) -> int:
        """Drawn for each segment: rolls of many logs spread out."""
        most_ms = min(config.segment_jitter_ms, config.segment_ms)
        return self._randomness.below(most_ms) if most_ms > 0 else 0
