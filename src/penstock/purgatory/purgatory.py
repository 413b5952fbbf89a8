"""Operations that wait until something is true, or until their time is over.

Each operation is watched under the keys whose change may make it true. Whoever changes state returns the keys; a
driver calls `check` with them afterwards, holding nothing. Kafka marks completed operations and purges its watcher
lists after 1,000 of them; here one thread owns the lists, so an operation leaves all of them as it
is completed.

Invariants:
- an operation is completed once: by a check, by its deadline, or by `drop`; whichever is first;
- the watcher lists hold waiting operations only, and no key without one;
- a listener is told of every check of its key, before the operations, until it is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from penstock.purgatory.timing_wheel import Timer, TimingWheel

K = TypeVar("K", bound=Hashable)


class Operation(Generic[K]):
    """Something that waits. Subclasses say for what, and what follows."""

    __slots__ = ("_keys", "_timer")

    def __init__(self) -> None:
        self._keys: tuple[K, ...] = ()
        self._timer: Timer[Operation[K]] | None = None

    def is_ready(self, key: K | None) -> bool:
        """Whether it need not wait any longer. `key` is what changed, or None at the first try."""
        raise NotImplementedError

    def finish(self) -> None:
        """It became true. Called at most once, and never beside `expire`."""
        raise NotImplementedError

    def expire(self) -> None:
        """Its time is over. Called at most once, and never beside `finish`."""
        raise NotImplementedError


class Purgatory(Generic[K]):
    """Where operations of one kind wait."""

    def __init__(self, name: str, now_ms: int) -> None:
        self.name = name
        self._wheel: TimingWheel[Operation[K]] = TimingWheel(now_ms)
        self._watchers: dict[K, dict[Operation[K], None]] = {}
        self._listeners: dict[K, dict[Callable[[K], object], None]] = {}

    @property
    def waiting(self) -> int:
        """Operations that wait."""
        return len(self._wheel)

    @property
    def watched(self) -> int:
        """Entries in watcher lists: an operation counts once for each of its keys."""
        return sum(map(len, self._watchers.values()))

    @property
    def keys(self) -> int:
        return len(self._watchers)

    def is_watched(self, key: K) -> bool:
        return key in self._watchers or key in self._listeners

    def listen(self, key: K, listener: Callable[[K], object]) -> None:
        """`listener` hears of the key's changes, whether or not an operation waits. It may finish operations."""
        self._listeners.setdefault(key, {})[listener] = None

    def unlisten(self, key: K, listener: Callable[[K], object]) -> None:
        listeners = self._listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listeners[key]

    def finish_or_watch(self, operation: Operation[K], keys: Iterable[K], deadline_ms: int) -> bool:
        """Tries once, and lets the operation wait if that fails. Returns whether it is finished."""
        if operation.is_ready(None):
            operation.finish()
            return True
        operation._keys = tuple(dict.fromkeys(keys))
        for key in operation._keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                watchers = self._watchers[key] = {}
            watchers[operation] = None
        operation._timer = self._wheel.add(operation, deadline_ms)
        return False

    def check(self, key: K) -> int:
        """Tells listeners, and finishes what this key's change made true. Returns how many."""
        for listener in list(self._listeners.get(key, ())):
            listener(key)
        watchers = self._watchers.get(key)
        if not watchers:
            return 0
        finished = 0
        for operation in list(watchers):
            # An operation finished before it in this loop may have dropped it.
            if operation in watchers and operation.is_ready(key):
                self._forget(operation)
                operation.finish()
                finished += 1
        return finished

    def finish(self, operation: Operation[K]) -> bool:
        """Finishes an operation of which somebody else knows that it is ready. Returns whether it was waiting."""
        was_waiting = self._forget(operation)
        if was_waiting:
            operation.finish()
        return was_waiting

    def drop(self, operation: Operation[K]) -> bool:
        """Nobody wants the answer any more: neither `finish` nor `expire` follows. Returns whether it was waiting."""
        return self._forget(operation)

    def next_wake_ms(self) -> int | None:
        return self._wheel.next_wake_ms()

    def expire(self, now_ms: int) -> int:
        """Ends what has passed its deadline. Returns how many."""
        ended = 0
        for operation in self._wheel.advance(now_ms):
            # One that expired before it in this loop may have dropped it.
            if self._forget(operation):
                operation.expire()
                ended += 1
        return ended

    def _forget(self, operation: Operation[K]) -> bool:
        if operation._timer is None:
            return False
        self._wheel.cancel(operation._timer)
        operation._timer = None
        for key in operation._keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        operation._keys = ()
        return True
