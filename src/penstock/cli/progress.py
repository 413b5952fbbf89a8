"""A progress bar on stderr for what takes longer than a second, where somebody is looking."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE_SECONDS = 1.0


@contextmanager
def progress_bar(
    title: str, total: int, *, in_bytes: bool = True, force: bool = False
) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes what was done since the last call. `force` draws the bar at once."""
    if not (sys.stderr.isatty() or force):
        yield lambda _done: None
        return
    bar = _Bar(title, total, in_bytes=in_bytes, patience_seconds=0.0 if force else _PATIENCE_SECONDS)
    try:
        yield bar.advance
    finally:
        bar.close()


class _Bar:
    def __init__(self, title: str, total: int, *, in_bytes: bool, patience_seconds: float) -> None:
        self._title = title
        self._total = total
        self._in_bytes = in_bytes
        self._shown_from = time.monotonic() + patience_seconds
        self._done = 0
        self._progress: Progress | None = None

    def advance(self, done: int) -> None:
        self._done += done
        if self._progress is None and time.monotonic() >= self._shown_from:
            self._progress = self._open()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._done)

    def _open(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        counts = (DownloadColumn(), TransferSpeedColumn()) if self._in_bytes else (MofNCompleteColumn(),)
        columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.add_task(self._title, total=self._total)
        progress.start()
        return progress

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
