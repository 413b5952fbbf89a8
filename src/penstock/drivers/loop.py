"""The event loop and its threads as a port: asyncio's in a broker, a manual one in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    def call_soon(self, callback: Callable[[], object]) -> object:
        """Calls back in the loop's next turn."""

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer: ...

    def run_in_thread(self, job: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
        """Runs a job on some thread; `done` gets its result, or its error, on the loop. Jobs of one call order may overlap."""


class AsyncioLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 4) -> None:
        self._loop = loop
        self._is_closed = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="penstock-work")

    def call_soon(self, callback: Callable[[], object]) -> object:
        return self._loop.call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback)

    def run_in_thread(self, job: Callable[[], T], done: Callable[[T | BaseException], object]) -> None:
        def finished(future: Future[T]) -> None:
            error = future.exception()
            self._loop.call_soon_threadsafe(done, future.result() if error is None else error)

        if self._is_closed:
            return
        self._pool.submit(job).add_done_callback(finished)

    def close(self) -> None:
        """Waits for the jobs under way. One that is asked for from now on is not run: nobody waits for it any more."""
        self._is_closed = True
        self._pool.shutdown(wait=True)
