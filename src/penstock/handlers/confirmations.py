"""Waiting until the store has confirmed everything that one request asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.base.errors import PenstockError
from penstock.drivers.topics import TopicDriver
from penstock.handlers.api import Pending
from penstock.handlers.transactions import at_once_or_later

K = TypeVar("K")

Submit = Callable[[Callable[[PenstockError | None], object]], object]
"""Sends one change to the store; what it is given hears how that went."""


def in_turn(topics: TopicDriver, handle: Callable[[], Any]) -> Any:
    """The answer of `handle`, or a Pending of it: called when the changes before it are confirmed, so that none of them is undone."""

    def start(done: Callable[[Any], None]) -> None:
        def change(over: Callable[[], None]) -> None:
            def finish(final: Any) -> None:
                done(final)
                over()

            answer = handle()
            if isinstance(answer, Pending):
                answer.listen(finish)
            else:
                finish(answer)

        topics.in_turn(change)

    return at_once_or_later(start)


def confirm_all(
    changes: Mapping[K, Submit], refused: Callable[[K, PenstockError], object], answer: Callable[[], Any]
) -> Any:
    """The answer, once every change is confirmed or refused: at once where there is none, else a Pending."""
    if not changes:
        return answer()
    pending: Pending[Any] = Pending()
    left = set(changes)

    def confirmed(key: K, error: PenstockError | None) -> None:
        if error is not None:
            refused(key, error)
        left.discard(key)
        if not left:
            pending.resolve(answer())

    for key, submit in changes.items():
        submit(lambda error, key=key: confirmed(key, error))  # type: ignore[misc]
    return pending
