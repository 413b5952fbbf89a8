"""The threads port: work that blocks or computes for long, handed to somebody else's threads.

A job is a plain callable that holds what it needs and touches no shared state; its result is applied by whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

T = TypeVar("T")


class Jobs(Protocol):
    def run(self, jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Runs jobs, several at a time, and gives their results in the order of the jobs; the first error ends it."""


class InlineJobs:
    """Runs each job where it stands: for tests, simulations and small tools."""

    def run(self, jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
        for job in jobs:
            yield job()


class ThreadJobs:
    """Runs jobs on `threads` threads; at most twice as many are taken ahead of their reader, so memory is bounded."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def run(self, jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
        waiting = iter(jobs)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="penstock-job") as pool:
            running = [pool.submit(job) for job in islice(waiting, 2 * self._threads)]
            try:
                while running:
                    yield running.pop(0).result()
                    running.extend(pool.submit(job) for job in islice(waiting, 1))
            finally:
                for future in running:
                    future.cancel()
