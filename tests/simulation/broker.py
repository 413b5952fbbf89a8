"""One simulated broker: the real parts of a broker of a cluster, on a disk in memory and a simulated network."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, cast

from penstock.app.config import BrokerConfig
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.base.jobs import InlineJobs
from penstock.controller.errors import NotControllerError
from penstock.controller.peer_requests import ControlledShutdown, IsrRequest
from penstock.drivers.appends import HeavyAppends
from penstock.drivers.delayed import Delayed
from penstock.drivers.failures import Failures
from penstock.drivers.flushes import Flushes
from penstock.drivers.followers import Followers, LeaderChannel
from penstock.drivers.holdings import Holdings
from penstock.drivers.isr import IsrDriver
from penstock.drivers.replicas import Replicas
from penstock.handlers.api import CloseConnectionError, Peer
from penstock.handlers.authoriser import AllowAll
from penstock.handlers.registry import make_registry
from penstock.handlers.services import ClusterServices, ControllerPort, Services
from penstock.metadata.image import Image
from penstock.peers.channels import ControllerLink, LeaderLink
from penstock.peers.replica_fetch import FetchLimits
from penstock.protocol.errors import MalformedMessageError
from penstock.replication.fetch_sessions import FetchSessions
from penstock.replication.partitions import Partitions
from penstock.server.dispatch import Dispatcher, Waiting
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories
from tests.simulation.events import Events, NodeLoop
from tests.simulation.network import Network, content_of
from tests.support.forgetful_files import ForgetfulFiles

CONTROLLER_ID = 100
"""The model of a controller has a place of its own on the network."""
HOUSEKEEPING_MS = 700
LAG_MS = 600


class _NoController:
    """No simulated broker is the controller."""

    def alter_partition(self, request: IsrRequest, done: Callable[[Any], object]) -> None:
        done(NotControllerError("elsewhere"))

    def shut_down(self, request: ControlledShutdown, done: Callable[[Any], object]) -> None:
        done(NotControllerError("elsewhere"))


class SimBroker:
    """A process: made when it starts, `end`ed when it dies."""

    def __init__(
        self, node_id: int, events: Events, network: Network, files: ForgetfulFiles, settings: dict[str, str]
    ) -> None:
        self.node_id = node_id
        self._events = events
        self._network = network
        self.files = files
        self.loop = loop = NodeLoop(events)
        clock = events.clock
        config = BrokerConfig({**settings, "replica.lag.time.max.ms": str(LAG_MS), "replica.fetch.backoff.ms": "50"})
        self.directories = LogDirectories(
            ["/data"],
            cast(Any, files),
            clock,
            config_for=lambda _partition: log_config({}, config.log_values),
            jobs=InlineJobs(),
        )
        self.directories.open()
        self.partitions = Partitions()
        self.image = Image()
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
        failures = Failures(
            self.directories, self._waits, went_offline=lambda _lost: None, all_failed=lambda _reason: None
        )
        self._flushes = Flushes(loop, self._waits, failures)
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
            roles_changed=lambda _topics: None,
        )
        self._controller = ControllerLink(
            lambda broker_id: network.link(node_id, broker_id, loop),
            node_id,
            lambda: self.replicas.broker_epoch,
            lambda: CONTROLLER_ID,
        )
        self.isr = IsrDriver(
            node_id=node_id,
            loop=loop,
            clock=clock,
            partitions=self.partitions,
            channel=self._controller,
            lag_ms_max=LAG_MS,
            broker_epoch=lambda: self.replicas.broker_epoch,
            moved=self._moved,
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
            groups=nothing,
            transactions=nothing,
            markers=nothing,
            authoriser=AllowAll(),
            settings=config,
            cluster=ClusterServices(
                replicas=self.replicas,
                isr=self.isr,
                controller=cast(ControllerPort, _NoController()),
                questions=nothing,
                reads_from_nearest=False,
            ),
        )
        self._dispatcher = Dispatcher(make_registry(cluster=True), services)
        self._peer = Peer("PLAINTEXT", "sim", None)
        self.isr.start()
        loop.call_later(events.chance.randrange(HOUSEKEEPING_MS), self._keep_house)

    def _open_channel(self, leader: int) -> LeaderChannel:
        limits = FetchLimits(100, 1, 1 << 20, self._events.chance.choice((200, 1 << 20)))
        link = self._network.link(self.node_id, leader, self.loop)
        return LeaderLink(link, self.node_id, lambda: self.replicas.broker_epoch, limits)

    def _moved(self, topic_partition: TopicPartition) -> None:
        for waits in self._waits:
            waits.changed(topic_partition)

    def _keep_house(self) -> None:
        """Now and then what is written is synced, and the high watermarks are remembered."""
        chance = self._events.chance
        for partition in self.partitions:
            if chance.random() < 0.3:
                partition.log.flush()
        if chance.random() < 0.5:
            self.directories.checkpoint()
        self.loop.call_later(HOUSEKEEPING_MS, self._keep_house)

    # Serving.
    def serve(self, frame: bytes, answered: Callable[[bytes], object], failed: Callable[[], object]) -> None:
        try:
            outcome = self._dispatcher.dispatch(frame, self._peer)
        except (MalformedMessageError, CloseConnectionError, PenstockError):
            failed()
            return
        if isinstance(outcome, Waiting):
            waiting = outcome

            def resolved(answer: Any) -> None:
                if not self.loop.is_dead:
                    answered(content_of(waiting.encode(answer)))

            waiting.pending.listen(resolved)
        else:
            assert outcome is not None
            answered(content_of(outcome))

    def end(self) -> None:
        """The process is gone; its disk is as the page cache has it."""
        self.loop.is_dead = True
        self._network.died(self.node_id)
        self.files.kill()
