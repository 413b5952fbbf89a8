"""The store of a cluster: a ZooKeeper ensemble, through kazoo, which stands in this file only.

Kazoo runs one thread, and everything it has to say goes through one queue in the order in which it was heard: answers,
watches, changes of the session. Its retries and recipes are not used. After a lost connection every watch is gone and whatever
was under way is refused with ConnectionLostError: read again, decide again. An expired session is followed by a new one, with
another id.

A session lives only while its owner does: the thread answers ZooKeeper as long as `alive` was called within half a
session timeout, and is silent otherwise, so that a process whose loop hangs loses its session like one that is dead.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError as KazooBadVersionError,
)
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.exceptions import (
    NoChildrenForEphemeralsError as KazooNoChildrenForEphemeralsError,
)
from kazoo.exceptions import (
    NodeExistsError as KazooNodeExistsError,
)
from kazoo.exceptions import (
    NoNodeError as KazooNoNodeError,
)
from kazoo.exceptions import (
    NotEmptyError as KazooNotEmptyError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from penstock.base.clock import Clock
from penstock.base.errors import PenstockError
from penstock.metadata.store import (
    Answered,
    BadPathError,
    BadVersionError,
    Change,
    Check,
    Committed,
    ConnectionLostError,
    Create,
    Delete,
    Event,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Read,
    ReadKind,
    Refused,
    Result,
    SessionChanged,
    SessionState,
    SetData,
    Stat,
    StoreError,
    Transaction,
    Watched,
)
from penstock.metadata.tree import check_path

logger = logging.getLogger(__name__)

_RECONNECT_SECONDS_MAX = 1.0
_LOOK_SECONDS = 0.1
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.DELETED: Change.DELETED,
    EventType.CHANGED: Change.DATA,
    EventType.CHILD: Change.CHILDREN,
}
_ERRORS: dict[type[KazooException], type[StoreError]] = {
    KazooNoNodeError: NoNodeError,
    KazooNodeExistsError: NodeExistsError,
    KazooBadVersionError: BadVersionError,
    KazooNotEmptyError: NotEmptyError,
    KazooNoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    ConnectionLoss: ConnectionLostError,
    ConnectionClosedError: ConnectionLostError,
    SessionExpiredError: ConnectionLostError,
}


class NoZooKeeperError(PenstockError):
    """No server of the ensemble answered in time, or let its path be made."""


class _Immediate:
    """Stands where kazoo wants a queue: what is put is called where it was put, by kazoo's one thread."""

    def put(self, callback: Callable[[], object]) -> None:
        callback()


class _OneQueue(SequentialThreadingHandler):  # type: ignore[misc]
    """No worker threads; and silent towards ZooKeeper while `is_alive` says that nobody is at home."""

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _Immediate()
        self._is_alive = is_alive
        self._last_event: WatchedEvent | None = None
        self._turned = threading.Event()

    def turned(self) -> None:
        self._turned.set()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False
        self._turned.set()

    def select(self, *arguments: Any, **named: Any) -> Any:
        while self._running and not self._is_alive():
            self._turned.clear()
            self._turned.wait(0.1)
        return super().select(*arguments, **named)

    def dispatch_callback(self, callback: Any) -> None:
        event = callback.args[0]
        if event is not self._last_event:  # a deletion is told for data and for children: once is enough
            self._last_event = event
            callback.func(event)


class ZooKeeperStore:
    """A Store. `wake` is called in kazoo's thread when events wait for `take_events`."""

    def __init__(self, connect: str, *, session_timeout_ms: int, clock: Clock, wake: Callable[[], object]) -> None:
        """`connect` is host:port,... and perhaps a path below which everything lies, as Kafka has it."""
        hosts, slash, place = connect.partition("/")
        self._place = f"{slash}{place}".rstrip("/")
        self._wake = wake
        self._clock = clock
        self._silent_after_ms = session_timeout_ms // 2
        self._alive_ms = clock.monotonic_ms()
        self._is_given_up = False
        self._events: deque[Event] = deque()
        self._token = 0
        self._handler = _OneQueue(self._is_alive)
        retry = KazooRetry(
            max_tries=-1, delay=0.05, backoff=2, max_jitter=0.2, max_delay=_RECONNECT_SECONDS_MAX, ignore_expire=False
        )
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=retry,
            command_retry=KazooRetry(max_tries=0),
            logger=logging.getLogger(f"{__name__}.kazoo"),
        )
        self._client.add_listener(self._changed)

    # Living.
    def connect(self, timeout_ms: int) -> None:
        """Waits for the first connection, until `give_up` is called. Slow: never on an event loop."""
        is_connected = self._client.start_async()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not is_connected.wait(_LOOK_SECONDS):
            if self._is_given_up or self._clock.monotonic_ms() > deadline_ms:
                self._client.stop()
                self._client.close()
                hosts = ",".join(f"{host}:{port}" for host, port in self._client.hosts)
                raise NoZooKeeperError(f"no ZooKeeper answers at {hosts} within {timeout_ms} ms")
        if self._place:
            try:
                self._client.ensure_path(self._place)
            except KazooException as error:
                raise NoZooKeeperError(f"ZooKeeper does not make the path {self._place}: {error!r}") from None
            self._client.chroot = self._place

    def give_up(self) -> None:
        """Whoever waits in `connect` need not any more. From any thread."""
        self._is_given_up = True

    @property
    def session_id(self) -> int:
        """Of the session at hand; 0 while there is none."""
        known = self._client.client_id
        return 0 if known is None else known[0]

    def alive(self) -> None:
        """The owner's loop turned."""
        was_alive = self._is_alive()
        self._alive_ms = self._clock.monotonic_ms()
        if not was_alive:
            self._handler.turned()

    def _is_alive(self) -> bool:
        return self._clock.monotonic_ms() - self._alive_ms < self._silent_after_ms

    def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes. Slow: never on an event loop."""
        self.alive()
        self._client.stop()
        self._client.close()

    # The port.
    def submit(self, request: Transaction | Read) -> int:
        self._token += 1
        token = self._token
        try:
            for path in _paths(request):
                check_path(path)
            _refuse_root(request)
        except BadPathError as error:
            self._say(Refused(token=token, index=_index_of(request, error), error=error))
            return token
        if isinstance(request, Transaction):
            self._commit(request, token)
        else:
            self._read(request, token)
        return token

    def take_events(self) -> list[Event]:
        taken: list[Event] = []
        while self._events:
            taken.append(self._events.popleft())
        return taken

    def _commit(self, transaction: Transaction, token: int) -> None:
        if not transaction.operations:
            self._say(Committed(token=token, transaction=transaction, results=()))
            return
        multi = self._client.transaction()
        for operation in transaction.operations:
            _add(multi, operation)
        multi.commit_async().rawlink(partial(self._committed, token, transaction))

    def _committed(self, token: int, transaction: Transaction, outcome: Any) -> None:
        if not outcome.successful():
            self._say(Refused(token=token, index=0, error=_error(outcome.exception, transaction.operations[0].path)))
            return
        results = outcome.value
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                error = _error(result, transaction.operations[index].path)
                self._say(Refused(token=token, index=index, error=error))
                return
        told = tuple(
            _result(operation, result) for operation, result in zip(transaction.operations, results, strict=True)
        )
        self._say(Committed(token=token, transaction=transaction, results=told))

    def _read(self, request: Read, token: int) -> None:
        watch = self._watched if request.watch else None
        if request.kind is ReadKind.DATA:
            asked = self._client.get_async(request.path, watch)
        elif request.kind is ReadKind.EXISTS:
            asked = self._client.exists_async(request.path, watch)
        else:
            asked = self._client.get_children_async(request.path, watch)
        asked.rawlink(partial(self._answered, token, request))

    def _answered(self, token: int, request: Read, outcome: Any) -> None:
        if not outcome.successful():
            self._say(Refused(token=token, index=0, error=_error(outcome.exception, request.path)))
            return
        result: Result
        if request.kind is ReadKind.DATA:
            data, stat = outcome.value
            result = Node(data=data, stat=_stat(stat))
        elif request.kind is ReadKind.EXISTS:
            result = None if outcome.value is None else _stat(outcome.value)
        else:
            result = tuple(sorted(outcome.value))
        self._say(Answered(token=token, result=result))

    def _watched(self, event: WatchedEvent) -> None:
        change = _CHANGES.get(event.type)
        if change is not None:  # else the connection is lost, which the session's change tells
            self._say(Watched(path=event.path, change=change))

    def _changed(self, state: str) -> None:
        self._say(SessionChanged(state=_STATES[state]))

    def _say(self, event: Event) -> None:
        self._events.append(event)
        self._wake()


def _paths(request: Transaction | Read) -> tuple[str, ...]:
    return (request.path,) if isinstance(request, Read) else tuple(each.path for each in request.operations)


def _index_of(request: Transaction | Read, error: BadPathError) -> int:
    for index, path in enumerate(_paths(request)):
        if repr(path) in str(error):
            return index
    return 0


def _refuse_root(request: Transaction | Read) -> None:
    if isinstance(request, Transaction) and any(
        isinstance(each, Delete) and each.path == "/" for each in request.operations
    ):
        raise BadPathError("the root stays: '/'")


def _add(multi: Any, operation: Operation) -> None:
    if isinstance(operation, Create):
        multi.create(operation.path, operation.data, ephemeral=operation.ephemeral, sequence=operation.sequential)
    elif isinstance(operation, SetData):
        multi.set_data(operation.path, operation.data, operation.version)
    elif isinstance(operation, Delete):
        multi.delete(operation.path, operation.version)
    else:
        multi.check(operation.path, operation.version)


def _result(operation: Operation, result: Any) -> Result:
    if isinstance(operation, Create):
        return str(result)
    if isinstance(operation, Check | Delete):
        return None
    return _stat(result)


def _stat(stat: Any) -> Stat:
    return Stat(
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        children_zxid=stat.pzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        version=stat.version,
        children_version=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
        data_length=stat.dataLength,
        children=stat.numChildren,
    )


def _error(error: BaseException, path: str) -> StoreError:
    known = _ERRORS.get(type(error))
    if known is None:
        return StoreError(f"ZooKeeper refused {path}: {type(error).__name__} {error}")
    return known(f"{path}: {known.__doc__}")
