"""Replication's configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.config import ConfigKey, integer, table

KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("fetch.max.bytes", 57_671_680, "The most that one fetch is answered with.", low=1024, dynamic=False),
    integer(
        "max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions at a time.", low=0, dynamic=False
    ),
)  # fmt: skip
