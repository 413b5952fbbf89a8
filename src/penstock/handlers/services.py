"""What handlers may use. The composition root makes one, and tests make their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import Clock
from penstock.base.config import ConfigKey
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.drivers.appends import HeavyAppends
from penstock.drivers.delayed import Delayed
from penstock.drivers.flushes import Flushes
from penstock.drivers.groups import GroupDriver
from penstock.drivers.markers import MarkerWriter
from penstock.drivers.moves import Moves
from penstock.drivers.producer_ids import ProducerIds
from penstock.drivers.topics import TopicDriver
from penstock.drivers.transactions import TransactionDriver
from penstock.handlers.authoriser import Authoriser
from penstock.metadata.image import Image
from penstock.replication.fetch_sessions import FetchSessions
from penstock.replication.partitions import Partitions
from penstock.storage.log_directories import LogDirectories

if TYPE_CHECKING:  # the cluster's code, which a broker alone starts without
    from penstock.controller.peer_requests import ControlledShutdown, IsrChanged, IsrRequest
    from penstock.drivers.isr import IsrDriver
    from penstock.drivers.replicas import Replicas
    from penstock.peers.transactions import CoordinatorQuestions


class HandlerSettings(Protocol):
    """The configuration that handlers ask for."""

    @property
    def keys(self) -> Mapping[str, ConfigKey[Any]]:
        """Every key of the broker."""

    @property
    def given(self) -> Mapping[str, str]:
        """What somebody set, as they wrote it."""

    @property
    def defaults(self) -> Mapping[str, str]:
        """The text of every default there is."""

    def check_dynamic(self, changed: Mapping[str, str]) -> None:
        """ConfigError where these could not be set while the broker runs."""

    @property
    def auto_create_topics(self) -> bool: ...

    @property
    def delete_topics(self) -> bool: ...

    @property
    def fetch_bytes_max(self) -> int: ...

    @property
    def describe_partitions_max(self) -> int: ...


class ControllerPort(Protocol):
    """The controller of a cluster, on this broker if anywhere; `done` gets a NotControllerError where it is elsewhere."""

    def alter_partition(
        self, request: IsrRequest, done: Callable[[Sequence[IsrChanged] | PenstockError], object]
    ) -> None: ...

    def shut_down(
        self, request: ControlledShutdown, done: Callable[[Sequence[TopicPartition] | PenstockError], object]
    ) -> None:
        """Moves leaders away from a broker that is about to stop; `done` gets the partitions that it still leads."""

    def elect_preferred(
        self, keys: Collection[TopicPartition], done: Callable[[PenstockError | None], object]
    ) -> None: ...

    def elect_unclean(
        self, keys: Collection[TopicPartition], done: Callable[[PenstockError | None], object]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterServices:
    """What a broker of a cluster has beside the rest."""

    replicas: Replicas
    isr: IsrDriver
    controller: ControllerPort
    questions: CoordinatorQuestions
    reads_from_nearest: bool
    """Whether consumers that name their rack are sent to a replica there (`replica.selector.class`)."""


class Services:
    __slots__ = (
        "authoriser",
        "clock",
        "cluster",
        "directories",
        "fetch_sessions",
        "fetch_waits",
        "flushes",
        "groups",
        "heavy_appends",
        "image",
        "kept_topics",
        "markers",
        "moves",
        "node_id",
        "partitions",
        "produce_waits",
        "producer_ids",
        "settings",
        "topics",
        "transactions",
    )

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        image: Image,
        partitions: Partitions,
        directories: LogDirectories,
        moves: Moves,
        produce_waits: Delayed[TopicPartition],
        fetch_waits: Delayed[TopicPartition],
        fetch_sessions: FetchSessions,
        flushes: Flushes,
        heavy_appends: HeavyAppends,
        topics: TopicDriver,
        producer_ids: ProducerIds,
        groups: GroupDriver,
        transactions: TransactionDriver,
        markers: MarkerWriter,
        authoriser: Authoriser,
        settings: HandlerSettings,
        cluster: ClusterServices | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        """None on a node of its own."""
        self.clock = clock
        self.image = image
        self.kept_topics: dict[tuple[int, str], Any] = {}
        """Metadata's: encoded parts of its answers."""
        self.partitions = partitions
        self.directories = directories
        self.moves = moves
        self.produce_waits = produce_waits
        self.fetch_waits = fetch_waits
        self.fetch_sessions = fetch_sessions
        self.flushes = flushes
        self.heavy_appends = heavy_appends
        self.topics = topics
        self.producer_ids = producer_ids
        self.groups = groups
        self.transactions = transactions
        self.markers = markers
        self.authoriser = authoriser
        self.settings = settings
