"""Asking again: pauses that grow, and a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.base.clock import Clock, SystemClock
from penstock.client.config import ClientConfig
from penstock.client.errors import AnswerError, ClientError, UnreachableError

Sleep = Callable[[float], None]
"""Seconds."""


class Time:
    """The clock and the way to wait, together, so that a test can put both aside."""

    def __init__(self, clock: Clock | None = None, sleep: Sleep = time.sleep) -> None:
        self.clock = SystemClock() if clock is None else clock
        self.sleep = sleep


class Attempts:
    """The tries of one operation. `failed` pauses before the next, or raises when there shall be none."""

    def __init__(self, config: ClientConfig, time: Time, timeout_ms: int | None = None) -> None:
        self._time = time
        self._backoff_ms = config.retry_backoff_ms
        self._backoff_ms_max = config.retry_backoff_ms_max
        self._timeout_ms = config.api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline_ms = time.clock.monotonic_ms() + self._timeout_ms

    def failed(self, error: ClientError) -> None:
        if not (error.is_retriable if isinstance(error, AnswerError) else isinstance(error, UnreachableError)):
            raise error
        self.wait(error)

    def wait(self, error: ClientError) -> None:
        """Pauses before the next try, whatever the error is; raises it when there is no time for one."""
        left_ms = self._deadline_ms - self._time.clock.monotonic_ms()
        if left_ms <= 0:
            raise error
        self._time.sleep(min(self._backoff_ms, left_ms) / 1000)
        self._backoff_ms = min(2 * self._backoff_ms, self._backoff_ms_max)
