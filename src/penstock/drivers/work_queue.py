"""Work in steps, one piece after the other: the next begins in a turn of the loop after the last has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.drivers.loop import Loop
from penstock.drivers.steps import run_steps

Work = Callable[[], Coroutine[Any, Any, None]]


class WorkQueue:
    """`failed` hears which piece raised what; the queue goes on."""

    def __init__(self, loop: Loop, failed: Callable[[str, Exception], object]) -> None:
        self._loop = loop
        self._failed = failed
        self._waiting: deque[tuple[str, Work]] = deque()
        self._is_busy = False
        self.is_stopped = False

    def put(self, name: str, work: Work) -> None:
        if not self.is_stopped:
            self._waiting.append((name, work))
            self._loop.call_soon(self._next)

    def put_once(self, name: str, work: Work) -> None:
        """What is due already is not done twice."""
        if all(name != waiting for waiting, _ in self._waiting):
            self.put(name, work)

    def stop(self) -> None:
        self.is_stopped = True

    def _next(self) -> None:
        if self._is_busy or not self._waiting or self.is_stopped:
            return
        self._is_busy = True
        name, work = self._waiting.popleft()
        run_steps(self._done(name, work), lambda _none: self._finished())

    async def _done(self, name: str, work: Work) -> None:
        try:
            await work()
        except Exception as error:
            self._failed(name, error)

    def _finished(self) -> None:
        self._is_busy = False
        self._loop.call_soon(self._next)
