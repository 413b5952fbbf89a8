"""Fixtures for pytest, found by it wherever Penstock is installed. Nothing of the broker is imported before one is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker


@pytest.fixture
def penstock_broker() -> Iterator[Broker]:
    """A fresh, empty broker on a thread of the test's process; gone with its files when the test ends."""
    from penstock.testing.broker import Broker

    with Broker() as broker:
        yield broker
