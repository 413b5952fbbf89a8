"""One simulated broker: the real parts of a broker of a cluster, on a disk in memory and a simulated network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, cast

from penstock.app.config import BrokerConfig
from penstock.app.generation import take_generation
from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.base.jobs import InlineJobs
from penstock.controller.topics import TopicDefaults
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.transactions.config import TransactionSettings
from penstock.drivers.appends import HeavyAppends
from penstock.drivers.cluster_producer_ids import ClusterProducerIds
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.cluster_topics import ClusterTopics
from penstock.drivers.config_changes import ConfigChanges
from penstock.drivers.controller import Controller
from penstock.drivers.delayed import Delayed
from penstock.drivers.directory_events import DirectoryEvents
from penstock.drivers.doubts import Doubts
from penstock.drivers.failures import Failures
from penstock.drivers.flushes import Flushes
from penstock.drivers.followers import Followers, LeaderChannel
from penstock.drivers.groups import GroupDriver
from penstock.drivers.holdings import Holdings
from penstock.drivers.isr import IsrDriver
from penstock.drivers.markers import LocalMarkers
from penstock.drivers.replicas import Replicas
from penstock.drivers.shards import ShardsSurroundings
from penstock.drivers.steps import run_steps
from penstock.drivers.transactions import TransactionDriver
from penstock.handlers.api import CloseConnectionError, Peer
from penstock.handlers.authoriser import AllowAll
from penstock.handlers.registry import make_registry
from penstock.handlers.services import ClusterServices, Services
from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.metadata.store import Create, SessionState, StoreError
from penstock.peers.channels import BrokerLinks, ControllerLink, LeaderLink
from penstock.peers.replica_fetch import FetchLimits
from penstock.peers.transactions import ClusterMarkers, CoordinatorQuestions
from penstock.protocol.errors import MalformedMessageError
from penstock.replication.fetch_sessions import FetchSessions
from penstock.replication.partitions import Partitions
from penstock.server.dispatch import Dispatcher, Waiting
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories
from tests.simulation.events import Events, NodeLoop
from tests.simulation.network import Network, SimLink, content_of
from tests.simulation.store import SimTree
from tests.support.forgetful_files import ForgetfulFiles

HOUSEKEEPING_MS = 700
LAG_MS = 600


class SimBroker:
    """A process: made when it starts, `end`ed when it dies."""

    def __init__(
        self,
        node_id: int,
        events: Events,
        network: Network,
        tree: SimTree,
        files: ForgetfulFiles,
        paths: Sequence[str],
        new_generation: Callable[[], str],
        boot_id: str,
        settings: dict[str, str],
    ) -> None:
        self.node_id = node_id
        self._is_started = False
        self._events = events
        self._network = network
        self._tree = tree
        self.files = files
        self.loop = loop = NodeLoop(events)
        clock = events.clock
        config = BrokerConfig(
            {
                **settings,
                "replica.lag.time.max.ms": str(LAG_MS),
                "replica.fetch.backoff.ms": "50",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "150",
            }
        )
        self.image = Image()
        self.image.topic_configs.update(tree.topic_configs())
        self.directories = LogDirectories(
            paths,
            cast(Any, files),
            clock,
            config_for=lambda key: log_config(self.image.topic_configs.get(key.topic, {}), config.log_values),
            jobs=InlineJobs(),
            new_id=events.new_id,
        )
        self.directories.open()
        self.generation = take_generation(cast(Any, files), self.directories.directories, boot_id, new_generation)
        self.partitions = Partitions()
        produce: Delayed[TopicPartition] = Delayed("Produce", clock, loop)
        fetch: Delayed[TopicPartition] = Delayed("Fetch", clock, loop)
        self._waits = produce, fetch
        holdings = Holdings(
            node_id=node_id,
            image=self.image,
            partitions=self.partitions,
            directories=self.directories,
            log_values=config.log_values,
            loop=loop,
            waits=self._waits,
        )
        self._failures = Failures(
            self.directories,
            self._waits,
            went_offline=lambda _lost: self._directory_events.tell(),
            all_failed=lambda _reason: None,
        )
        self._flushes = Flushes(loop, self._waits, self._failures)
        self.followers = Followers(
            loop=loop,
            clock=clock,
            cutter=self.directories,
            flushes=self._flushes,
            backoff_ms=config["replica.fetch.backoff.ms"],
            open_channel=self._open_channel,
            moved=self._moved,
        )
        self.replicas = Replicas(
            node_id=node_id,
            loop=loop,
            clock=clock,
            image=self.image,
            holdings=holdings,
            followers=self.followers,
            roles_changed=self._roles_changed,
            brokers_gone=self._give_up,
        )
        self.replicas.doubts = Doubts(cast(Any, files), self.generation, self.directories.recovery_points())
        session = tree.open(node_id, lambda: loop.call_soon(self._store.hand_out))
        self._store = ClusterStore(session, loop)
        self._directory_events = DirectoryEvents(node_id, self._store, loop)
        self.controller = Controller(
            node_id=node_id,
            loop=loop,
            clock=clock,
            store=self._store,
            channel=BrokerLinks(self._link),
            log_values=config.log_values,
            topic_configs=self.image.topic_configs,
        )
        self._configs = ConfigChanges(self._store, self.image, clock, self._take_configs)
        defaults = TopicDefaults(partitions=1, replication_factor=3, log_values=config.log_values)
        self.topics = ClusterTopics(self.image, self._store, defaults, events.new_id, loop)
        self._controller_link = ControllerLink(
            self._link, node_id, lambda: self.replicas.broker_epoch, lambda: self.image.controller_id
        )
        self.isr = IsrDriver(
            node_id=node_id,
            loop=loop,
            clock=clock,
            partitions=self.partitions,
            channel=self._controller_link,
            lag_ms_max=LAG_MS,
            broker_epoch=lambda: self.replicas.broker_epoch,
            moved=self._moved,
        )
        surroundings = ShardsSurroundings(
            loop=loop,
            image=self.image,
            partitions=self.partitions,
            topics=self.topics,
            flushes=self._flushes,
            produce_waits=produce,
            fetch_waits=fetch,
            is_in_cluster=True,
        )
        self.groups = GroupDriver(
            surroundings, clock=clock, settings=GroupSettings.read(config), new_suffix=lambda: str(events.new_id())
        )
        markers = LocalMarkers(surroundings, self.groups, clock)
        to_leaders = ClusterMarkers(node_id, loop, self.image, markers, self._link)
        questions = CoordinatorQuestions(self.image, self._link)
        self._links = (self._controller_link.links, to_leaders.links, questions.links)
        self.transactions = TransactionDriver(
            surroundings,
            clock=clock,
            settings=TransactionSettings.read(config),
            producer_ids=ClusterProducerIds(node_id, self._store),
            markers=to_leaders,
        )
        numbers = count(1)
        nothing: Any = None
        services = Services(
            node_id=node_id,
            clock=clock,
            image=self.image,
            partitions=self.partitions,
            directories=self.directories,
            moves=nothing,
            produce_waits=produce,
            fetch_waits=fetch,
            fetch_sessions=FetchSessions(clock, 10, lambda: next(numbers)),
            flushes=self._flushes,
            heavy_appends=HeavyAppends(loop, clock),
            topics=nothing,
            producer_ids=nothing,
            groups=self.groups,
            transactions=self.transactions,
            markers=markers,
            authoriser=AllowAll(),
            settings=config,
            cluster=ClusterServices(
                replicas=self.replicas,
                isr=self.isr,
                controller=self.controller,
                questions=questions,
                reads_from_nearest=False,
            ),
        )
        self._dispatcher = Dispatcher(make_registry(cluster=True), services)
        self._peer = Peer("PLAINTEXT", "sim", None)
        self.isr.start()
        self.groups.start()
        self.transactions.start()
        self._store.on_session(self._session_changed)
        self._store.start()
        self._register()
        loop.call_later(events.chance.randrange(HOUSEKEEPING_MS), self._keep_house)

    def _link(self, broker_id: int) -> SimLink:
        return self._network.link(self.node_id, broker_id, self.loop)

    def _give_up(self, broker_ids: set[int]) -> None:
        for links in self._links:
            links.give_up(broker_ids)

    # Being known.
    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.replicas.broker_epoch = -1
        elif state is SessionState.CONNECTED:
            self._register()

    def _register(self) -> None:
        run_steps(self._registered(), lambda _none: None)

    async def _registered(self) -> None:
        """As the real registration does; a node of an earlier session is waited for."""
        endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="sim", port=self.node_id)
        broker = BrokerNode(broker_id=self.node_id, endpoints=(endpoint,), generation=self.generation)
        path, session_id = layout.broker_path(self.node_id), self._store.session_id
        try:
            await self._store.commit_one(
                Create(path=path, data=layout.encode_broker(broker, self._events.clock.wall_ms()), ephemeral=True)
            )
            node = await self._store.data(path)
        except StoreError:
            node = None
        if session_id != self._store.session_id:
            return
        if node is not None and node.stat.ephemeral_owner == session_id:
            self.replicas.broker_epoch = node.stat.created_zxid
            if not self._is_started:
                self._start()
        else:
            self.loop.call_later(30, self._register)

    def _start(self) -> None:
        """Not before it is registered: a controller would count on what the node of its last life says of its logs."""
        self._is_started = True
        self._configs.start()
        self.controller.start()

    def _open_channel(self, leader: int) -> LeaderChannel:
        limits = FetchLimits(100, 1, 1 << 20, self._events.chance.choice((200, 1 << 20)))
        return LeaderLink(self._link(leader), self.node_id, lambda: self.replicas.broker_epoch, limits)

    def _roles_changed(self, topics: set[str]) -> None:
        self.topics.follow(topics)
        self.groups.follow(topics)
        self.transactions.follow(topics)

    def _take_configs(self, topics: set[str]) -> None:
        self.replicas.configs_changed(topics)
        self.controller.configs_changed(topics)

    def _moved(self, topic_partition: TopicPartition) -> None:
        for waits in self._waits:
            waits.changed(topic_partition)

    def _keep_house(self) -> None:
        """Now and then what is written is synced, and the high watermarks are remembered."""
        chance = self._events.chance
        for partition in self.partitions:
            if chance.random() < 0.3:
                with suppress(StorageError):
                    partition.log.flush()
        if chance.random() < 0.5:
            with suppress(StorageError):
                self.directories.checkpoint()
        self._failures.look()
        self.loop.call_later(HOUSEKEEPING_MS, self._keep_house)

    # Serving.
    def serve(self, frame: bytes, answered: Callable[[bytes], object], failed: Callable[[], object]) -> None:
        try:
            outcome = self._dispatcher.dispatch(frame, self._peer)
        except (MalformedMessageError, CloseConnectionError, PenstockError):
            failed()
            return

        def send(parts: Any) -> None:
            try:
                content = content_of(parts)
            except OSError:  # a file that cannot be read any more
                failed()
            else:
                answered(content)

        if isinstance(outcome, Waiting):
            waiting = outcome

            def resolved(answer: Any) -> None:
                if not self.loop.is_dead:
                    send(waiting.encode(answer))

            waiting.pending.listen(resolved)
        else:
            assert outcome is not None
            send(outcome)

    def shut_down(self, done: Callable[[int | PenstockError], object]) -> None:
        """Asks the controller to move leaders away; `done` gets how many are left."""
        self._controller_link.shut_down(done)

    def close(self) -> None:
        """A clean end: its logs are flushed, and its session is over."""
        self.controller.stop()
        self.groups.stop()
        self.transactions.stop()
        self.followers.stop()
        self.directories.close()
        self._tree.end(self._store.session_id)
        self.end()

    def end(self) -> None:
        """The process is gone; its disk is as the page cache has it."""
        self.loop.is_dead = True
        self._network.died(self.node_id)
        self.files.kill()
