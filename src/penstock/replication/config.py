"""Replication's configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.config import ConfigKey, integer, table, text

KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("fetch.max.bytes", 57_671_680, "The most that one fetch is answered with.", low=1024, dynamic=False),
    integer(
        "max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions at a time.", low=0, dynamic=False
    ),
    integer("replica.lag.time.max.ms", 30_000, "A follower behind for so long leaves the ISR.", low=1, dynamic=False),
    integer("replica.fetch.max.bytes", 1_048_576, "Of one partition in a follower's fetch.", low=0, dynamic=False),
    integer("replica.fetch.response.max.bytes", 10_485_760, "Of a follower's whole fetch.", low=0, dynamic=False),
    integer("replica.fetch.wait.max.ms", 500, "How long a leader may wait for records.", low=0, dynamic=False),
    integer("replica.fetch.min.bytes", 1, "What a follower's fetch waits for.", low=1, dynamic=False),
    integer("replica.fetch.backoff.ms", 1_000, "How long a partition that failed waits.", low=0, dynamic=False),
    text("replica.selector.class", "", "Who chooses the replica that a consumer reads; `RackAwareReplicaSelector`, or none.", dynamic=False),
)  # fmt: skip
