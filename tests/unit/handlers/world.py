"""A broker without sockets and threads: handlers called with real frames on a manual clock and loop."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.app.config import BrokerConfig
from penstock.app.registration import Registration
from penstock.base.clock import ManualClock
from penstock.base.files import Files, SystemFiles
from penstock.base.ids import TopicPartition
from penstock.controller.leaders import decide_offline
from penstock.controller.topics import NewTopic, TopicDefaults
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.transactions.config import TransactionSettings
from penstock.drivers.appends import HeavyAppends
from penstock.drivers.delayed import Delayed
from penstock.drivers.failures import Failures
from penstock.drivers.flushes import Flushes
from penstock.drivers.groups import GroupDriver
from penstock.drivers.holdings import Holdings
from penstock.drivers.markers import LocalMarkers
from penstock.drivers.moves import Moves
from penstock.drivers.producer_ids import ProducerIds
from penstock.drivers.roles import RoleDriver
from penstock.drivers.shards import ShardsSurroundings
from penstock.drivers.store import StoreDriver
from penstock.drivers.topics import TopicDriver
from penstock.drivers.transactions import TransactionDriver
from penstock.handlers.api import Peer
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.registry import make_registry
from penstock.handlers.services import Services
from penstock.metadata import layout
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.protocol.schemas import Shape
from penstock.replication.fetch_sessions import FetchSessions
from penstock.replication.partitions import Partitions
from penstock.server.connection import FileSlice
from penstock.server.dispatch import Dispatcher, Outcome, Waiting
from penstock.storage.config import log_config
from penstock.storage.directory_state import DirectoryState
from penstock.storage.log_directories import LogDirectories

T = TypeVar("T")


class ManualTimer:
    def __init__(self, due_ms: int, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualLoop:
    """A loop that turns when it is told to; jobs for threads run in the turn after the one that asked."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: list[Callable[[], object]] = []
        self._timers: list[ManualTimer] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(self._clock.monotonic_ms() + delay_ms, callback)
        self._timers.append(timer)
        return timer

    def run_in_thread(self, job: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
        def run() -> None:
            try:
                result: T | BaseException = job()
            except Exception as error:
                result = error
            done(result)

        self._soon.append(run)

    def turn(self) -> None:
        while self._soon:
            soon, self._soon = self._soon, []
            for callback in soon:
                callback()

    def advance(self, ms: int) -> None:
        """Lets time pass, with every timer at its moment."""
        self.turn()
        end_ms = self._clock.monotonic_ms() + ms
        while True:
            due = [timer for timer in self._timers if timer.callback is not None and timer.due_ms <= end_ms]
            if not due:
                break
            timer = min(due, key=lambda one: one.due_ms)
            self._timers.remove(timer)
            self._clock.advance(max(timer.due_ms - self._clock.monotonic_ms(), 0))
            assert timer.callback is not None
            timer.callback()
            self.turn()
        self._clock.advance(end_ms - self._clock.monotonic_ms())


class Denying:
    """Allows everything but what is listed."""

    def __init__(self) -> None:
        self.denied: set[tuple[Action, str]] = set()

    def allows(self, principal: str, action: Action, resource: Resource, name: str) -> bool:
        return (action, name) not in self.denied


class World:
    def __init__(self, *directories: Path, files: Files | None = None, **settings: str) -> None:
        self.clock = ManualClock()
        self.loop = ManualLoop(self.clock)
        self.files: Files = files or SystemFiles()
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.directories = LogDirectories(
            map(str, directories),
            self.files,
            self.clock,
            config_for=lambda _partition: log_config({}, self.config.log_values),
        )
        self.directories.open()
        self.store = EmbeddedStore(self.files, str(directories[0]), self.clock)
        self.image = Image()
        self.image.load(self.store.nodes())
        self.partitions = Partitions()
        produce: Delayed[TopicPartition] = Delayed("Produce", self.clock, self.loop)
        fetch: Delayed[TopicPartition] = Delayed("Fetch", self.clock, self.loop)
        self.holdings = Holdings(
            node_id=1,
            image=self.image,
            partitions=self.partitions,
            directories=self.directories,
            log_values=self.config.log_values,
            loop=self.loop,
            waits=(produce, fetch),
        )
        self.roles = RoleDriver(node_id=1, image=self.image, holdings=self.holdings)
        driver = StoreDriver(
            self.store,
            self.image,
            self.loop,
            prepare=self.roles.prepare,
            applied=self.follow,
            failed=self._fail,
        )
        self.failed: list[str] = []
        self.failures = Failures(
            self.directories,
            (produce, fetch),
            went_offline=lambda lost: self._went_offline(lost, driver),
            all_failed=self.failed.append,
        )
        self._numbers = numbers = count(1)
        self.moves = Moves(
            loop=self.loop,
            files=self.files,
            directories=self.directories,
            partitions=self.partitions,
            failures=self.failures,
            new_id=lambda: uuid.UUID(int=next(numbers)),
        )
        moving = self._register()
        self.authoriser = Denying()
        defaults = TopicDefaults(
            partitions=self.config["num.partitions"], replication_factor=1, log_values=self.config.log_values
        )
        flushes = Flushes(self.loop, (produce, fetch), self.failures)
        topics = TopicDriver(
            self.image,
            driver,
            defaults,
            lambda: uuid.UUID(int=1000 + next(numbers)),
            is_every_log_here=lambda: not self.directories.offline,
        )
        surroundings = ShardsSurroundings(
            loop=self.loop,
            image=self.image,
            partitions=self.partitions,
            topics=topics,
            flushes=flushes,
            produce_waits=produce,
            fetch_waits=fetch,
        )
        self.groups = GroupDriver(
            surroundings,
            clock=self.clock,
            settings=GroupSettings.read(self.config),
            new_suffix=lambda: str(next(numbers)),
        )
        blocks = [node.data for node in self.store.nodes() if node.path == layout.PRODUCER_IDS]
        producer_ids = ProducerIds(1, driver, blocks[0] if blocks else None)
        markers = LocalMarkers(surroundings, self.groups, self.clock)
        self.transactions = TransactionDriver(
            surroundings,
            clock=self.clock,
            settings=TransactionSettings.read(self.config),
            producer_ids=producer_ids,
            markers=markers,
        )
        self.services = Services(
            node_id=1,
            clock=self.clock,
            image=self.image,
            partitions=self.partitions,
            directories=self.directories,
            moves=self.moves,
            produce_waits=produce,
            fetch_waits=fetch,
            fetch_sessions=FetchSessions(self.clock, 2, lambda: next(numbers)),
            flushes=flushes,
            groups=self.groups,
            transactions=self.transactions,
            markers=markers,
            heavy_appends=HeavyAppends(self.loop, self.clock),
            topics=topics,
            producer_ids=producer_ids,
            authoriser=self.authoriser,
            settings=self.config,
        )
        self.follow(self.image.topics)
        for partition, target in moving.items():
            self.moves.start(partition, target)
        self.apis = make_registry()
        self.dispatcher = Dispatcher(self.apis, self.services)
        self._dispatch = self.dispatcher.dispatch
        self._peer = Peer("PLAINTEXT", "127.0.0.1", None)

    def follow(self, topics: Iterable[str]) -> None:
        names = tuple(topics)
        configs = self.image.broker_configs
        assert self.config.use_dynamic(configs.get("<default>", {}), configs.get("1", {})) == []
        self.roles.follow(names)
        self.groups.follow(names)
        self.transactions.follow(names)

    def _fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def _went_offline(self, lost: list[TopicPartition], driver: StoreDriver) -> None:
        self.image.set_offline(lost, 1)
        driver.submit(decide_offline(self.image, lost), lambda event: None)

    def _register(self) -> dict[TopicPartition, DirectoryState]:
        endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9)
        registration = Registration(
            store=self.store,
            image=self.image,
            directories=self.directories,
            files=self.files,
            new_id=lambda: uuid.UUID(int=1000 + next(self._numbers)),
        )
        return registration.register(BrokerNode(broker_id=1, endpoints=(endpoint,)), 0)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        wanted = NewTopic(
            name=name,
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        self.services.topics.create(self.services.topics.decide(wanted), lambda error: None)
        self.loop.turn()
        assert name in self.image.topics

    def frame(self, key: int, version: int, request: Any, correlation_id: int = 7) -> bytes:
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + b"\x00\x01c"
        if version >= self.apis[key].flexible_from:
            header += b"\x00"
        return header + body.getvalue()

    def send(self, key: int, version: int, **values: Any) -> Answer:
        """Sends a request made of its fields; `shape(key, version)` makes the inner structures."""
        return self.send_entity(key, version, shape(key, version).make(**values))

    def send_entity(self, key: int, version: int, request: Any) -> Answer:
        return Answer(
            key, version, self.apis[key].flexible_from, self._dispatch(self.frame(key, version, request), self._peer)
        )

    def send_frame(self, frame: bytes) -> Outcome:
        return self._dispatch(frame, self._peer)


class Answer:
    """An answer, there or not yet."""

    def __init__(self, key: int, version: int, flexible_from: int, outcome: Outcome) -> None:
        self._key, self._version = key, version
        self._header_bytes = 5 if version >= flexible_from and key != 18 else 4
        self._content: bytes | None = None
        self.is_none = outcome is None
        self._pending = outcome.pending if isinstance(outcome, Waiting) else None
        if isinstance(outcome, Waiting):
            outcome.pending.listen(lambda answer: self._arrived(outcome.encode(answer)))
        elif outcome is not None:
            self._arrived(outcome)

    def _arrived(self, outcome: Any) -> None:
        parts = [outcome] if isinstance(outcome, bytes) else outcome or []
        self._content = b"".join(map(_content, parts))

    def abandon(self) -> None:
        """The client is gone."""
        assert self._pending is not None
        self._pending.abandon()

    @property
    def is_there(self) -> bool:
        return self._content is not None

    def read(self) -> Any:
        assert self._content is not None, "there is no answer yet"
        assert int.from_bytes(self._content[:4], "big") == len(self._content) - 4
        assert int.from_bytes(self._content[4:8], "big") == 7
        body = self._content[4 + self._header_bytes :]
        read: Any = entity_reader(load_response_schema(self._key, self._version))
        entity, size = read(body, 0)
        assert size == len(body)
        return entity


def _content(part: bytes | FileSlice) -> bytes:
    return part if isinstance(part, bytes) else part.file.pread(part.length, part.position)


def shape(key: int, version: int) -> Shape:
    return Shape(load_request_schema(key, version))
