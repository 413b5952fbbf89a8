"""Work in steps that wait for callbacks, written as one coroutine. No event loop of its own: whoever calls back drives it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Reply(Generic[T]):
    """A value that comes later, once. `give` is the callback; whoever awaits it goes on from there."""

    __slots__ = ("_has_value", "_value", "_waiting")

    def __init__(self) -> None:
        self._has_value = False
        self._value: T | None = None
        self._waiting: list[Callable[[], object]] = []

    def give(self, value: T) -> None:
        assert not self._has_value, "a reply is given once"
        self._has_value, self._value = True, value
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def when_given(self, go_on: Callable[[], object]) -> None:
        if self._has_value:
            go_on()
        else:
            self._waiting.append(go_on)

    def __await__(self) -> Generator[Reply[T], None, T]:
        if not self._has_value:
            yield self
        return self._value  # type: ignore[return-value]


def run_steps(work: Coroutine[Any, Any, T], finished: Callable[[T], object]) -> None:
    """Runs a coroutine that awaits replies only, up to its first wait at once."""
    try:
        reply = work.send(None)
    except StopIteration as end:
        finished(end.value)
        return
    assert isinstance(reply, Reply), "only replies can be awaited here"
    reply.when_given(lambda: run_steps(work, finished))
