"""Waiting until the store has confirmed everything that one request asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.handlers.api import Pending
from penstock.metadata.store import StoreError

K = TypeVar("K")

Submit = Callable[[Callable[[StoreError | None], object]], object]
"""Sends one change to the store; what it is given hears how that went."""


def confirm_all(
    changes: Mapping[K, Submit], refused: Callable[[K, StoreError], object], answer: Callable[[], Any]
) -> Any:
    """The answer, once every change is confirmed or refused: at once where there is none, else a Pending."""
    if not changes:
        return answer()
    pending: Pending[Any] = Pending()
    left = set(changes)

    def confirmed(key: K, error: StoreError | None) -> None:
        if error is not None:
            refused(key, error)
        left.discard(key)
        if not left:
            pending.resolve(answer())

    for key, submit in changes.items():
        submit(lambda error, key=key: confirmed(key, error))  # type: ignore[misc]
    return pending
