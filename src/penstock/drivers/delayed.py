"""Drives a purgatory: checks keys after they changed, and ends operations at their deadlines."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from penstock.base.clock import Clock
from penstock.drivers.loop import Loop, Timer
from penstock.purgatory.purgatory import Operation, Purgatory

K = TypeVar("K", bound=Hashable)


class Delayed(Generic[K]):
    """Keys that changed are checked together in the loop's next turn, when whoever changed them holds nothing."""

    def __init__(self, name: str, clock: Clock, loop: Loop) -> None:
        self._clock = clock
        self._loop = loop
        self.purgatory: Purgatory[K] = Purgatory(name, clock.monotonic_ms())
        self._changed: dict[K, None] = {}
        self._is_held = False
        self._is_stopped = False
        self._timer: Timer | None = None
        self._wake_ms = 0

    def finish_or_wait(self, operation: Operation[K], keys: Iterable[K], wait_ms: int) -> bool:
        """Tries once, and lets the operation wait if that fails. Returns whether it is finished."""
        deadline_ms = self._clock.monotonic_ms() + max(wait_ms, 1)
        if self.purgatory.finish_or_watch(operation, keys, deadline_ms):
            return True
        self._set_timer()
        return False

    def changed(self, key: K) -> None:
        """Something under this key changed: check it soon."""
        if self.purgatory.is_watched(key):
            if not self._changed and not self._is_held:
                self._loop.call_soon(self.check)
            self._changed[key] = None

    def listen(self, key: K, listener: Callable[[K], object]) -> None:
        """`listener` hears of the key's changes, in the loop's turn after them, until `unlisten`."""
        self.purgatory.listen(key, listener)

    def unlisten(self, key: K, listener: Callable[[K], object]) -> None:
        self.purgatory.unlisten(key, listener)

    def finish(self, operation: Operation[K]) -> None:
        """Finishes an operation that waits for no key, when whoever listens finds it ready."""
        self.purgatory.finish(operation)

    def hold(self) -> None:
        """Whoever calls this calls `check` before the turn ends: no other turn is asked for."""
        self._is_held = True

    def drop(self, operation: Operation[K]) -> None:
        self.purgatory.drop(operation)

    def check(self) -> None:
        """Checks what changed, for one who knows that nobody holds anything; otherwise it is done in the next turn."""
        self._is_held = False
        changed, self._changed = self._changed, {}
        for key in changed:
            self.purgatory.check(key)

    def stop(self) -> None:
        """Whatever waits is left to wait: the process ends."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        wake_ms = self.purgatory.next_wake_ms()
        if wake_ms is None or self._is_stopped or (self._timer is not None and self._wake_ms <= wake_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ms = wake_ms
        self._timer = self._loop.call_later(max(wake_ms - self._clock.monotonic_ms(), 0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.purgatory.expire(self._clock.monotonic_ms())
        self._set_timer()
